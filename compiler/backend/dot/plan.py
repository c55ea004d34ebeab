"""How a product of VMEM tiles is cut over the MXUs.

Sizes are in tiles: M in 16-row lhs tiles, K and N in 128. A `ProductRegion` is a box of the product. Its
128x128 MXU units form a grid ``mw x kw x nw``: in one *step* each takes its own lhs row tile (mw),
its own 128-deep slice of K (kw; the partial results are added) and its own 128 output columns (nw).
A *pass* is the run of steps that uses one set of latched weights. A 256-wide MXU is two units deep
and two wide, so what has fewer tiles than that leaves units idle, as it does on the chip. Products
of many matrices are one stream of passes, matrix after matrix; MXUs that a small one leaves idle
take the next ones (bw).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isqrt

from compiler.analysis.code_costs import DotCosts
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Slot

PUSHES_PER_BLOCK = 8
"""``vmatpush`` rows of a full 128x128 weight block."""
_STREAM_LIMIT_STEPS = 16
"""Passes of at most so many steps are unrolled whole."""
_LOOPED_STEPS = 12
"""Passes of more steps may be looped over, where unrolling them whole would be too much code."""
_SUM_STORES = 2
"""Stores (and loads) of 16 rows of an unfinished sum."""
_STEP_OPS = 36
"""Operations of a step, about."""
_BODY_OPS = 640
"""Operations to aim at in a loop body."""
_STATIC_OPS = 2000
"""The most operations of a loop body that covers whole sums over K."""
_SHORT_BLOCK_STEPS = 8
"""Steps of short passes to have in a block."""
_CARRIED_TILES = 8
"""The most 16-row results to keep in vregs from pass to pass."""


@dataclass(frozen=True)
class ProductRegion:
    """A box of a product, in tiles, and the unit grid that computes it."""

    m0: int
    k0: int
    n0: int
    m_tiles: int
    k_tiles: int
    n_tiles: int
    mw: int = 1
    kw: int = 1
    nw: int = 1
    batches: int = 1
    bw: int = 1

    @property
    def steps(self) -> int:
        """Steps of a pass."""
        return self.m_tiles // self.mw

    @property
    def k_groups(self) -> int:
        """Passes that add up to one output block."""
        return self.k_tiles // self.kw

    @property
    def n_groups(self) -> int:
        """Groups of output columns."""
        return self.n_tiles // self.nw

    @property
    def passes(self) -> int:
        """Weight sets latched in all, one after another."""
        return self.k_groups * self.sums

    @property
    def sums(self) -> int:
        """Sums over K in all, one after another: of each group of columns, of each matrix."""
        return self.n_groups * (self.batches // self.bw)

    @property
    def results(self) -> int:
        """Tiles of 16 rows that a step makes."""
        return self.bw * self.mw * self.nw

    @property
    def units(self) -> int:
        """Units in use."""
        return self.bw * self.mw * self.kw * self.nw

    def unit(self, bu: int, mu: int, ku: int, nu: int) -> int:
        """The unit at a place of the unit grid."""
        return ((bu * self.mw + mu) * self.nw + nu) * self.kw + ku


@dataclass(frozen=True)
class DotPlanCosts:
    """What the plan's estimate needs: of the chip (`side`: units along an MXU's side), the stores
    that 16 result rows take, and the epilogue's vector operations (0: none) and columns."""

    mxus: int
    side: int
    matmul_cycles: int
    loads: int
    stores: int
    valus: int
    stores_per_tile: int
    epilogue_ops: int
    epilogue_columns: int
    region: float
    block: float


def costs_of(
    chip: Chip, stores_per_tile: int, epilogue_ops: int = 0, epilogue_columns: int = 0
) -> DotPlanCosts:
    """Read the costs off a chip."""
    return DotPlanCosts(
        chip.mxu_count,
        isqrt(chip.units_per_mxu),
        chip.matmul_cycles,
        chip.slot_count(Slot.LOAD),
        chip.slot_count(Slot.STORE),
        chip.slot_count(Slot.VALU),
        stores_per_tile,
        epilogue_ops,
        epilogue_columns,
        DotCosts.of(chip).region,
        DotCosts.of(chip).block,
    )


def plan_regions(
    m_tiles: int, k_tiles: int, n_tiles: int, costs: DotPlanCosts
) -> list[ProductRegion]:
    """Cut a product into regions, in the order they must run (K ascending for equal M, N)."""
    return list(_best(m_tiles, k_tiles, n_tiles, costs)[1])


def batched(
    region: ProductRegion, batches: int, costs: DotPlanCosts
) -> list[tuple[int, ProductRegion]]:
    """The region in so many matrices: first matrix and region, where units that it leaves idle take
    matrices of their own; those left over at the end are a region too."""
    mxus = region.mw * -(-region.kw // costs.side) * -(-region.nw // costs.side)
    is_short = region.steps <= _STREAM_LIMIT_STEPS
    width = min(batches, max(1, costs.mxus // mxus)) if is_short else 1
    main = batches - batches % width
    parts = [(0, replace(region, batches=main, bw=width))]
    if main < batches:
        parts.append((main, replace(region, batches=batches - main, bw=batches - main)))
    return parts


@lru_cache(maxsize=4096)
def _best(m: int, k: int, n: int, costs: DotPlanCosts) -> tuple[float, tuple[ProductRegion, ...]]:
    """The cheapest cut of a box at the origin, and its estimated cycles."""
    if not (m and k and n):
        return 0.0, ()
    candidates = [_cut(m, k, n, grid, costs) for grid in _grids(m, k, n, costs)]
    return min(candidates, key=lambda candidate: (candidate[0], len(candidate[1])))


def _grids(m: int, k: int, n: int, costs: DotPlanCosts) -> Iterator[tuple[int, int, int]]:
    mxus, side = costs.mxus, costs.side
    for deep in range(min(mxus, -(-k // side)), 0, -1):
        for wide in range(1, min(mxus // deep, -(-n // side)) + 1):
            yield min(mxus // (deep * wide), m), min(deep * side, k), min(wide * side, n)


def _cut(
    m: int, k: int, n: int, grid: tuple[int, int, int], costs: DotPlanCosts
) -> tuple[float, tuple[ProductRegion, ...]]:
    """Whole multiples of `grid` first, then what is left in N, K and M."""
    mw, kw, nw = grid
    m_main, k_main, n_main = m - m % mw, k - k % kw, n - n % nw
    region = ProductRegion(0, 0, 0, m_main, k_main, n_main, mw, kw, nw)
    total = _cycles(region, costs)
    if costs.epilogue_ops and (
        k_main < k or not is_fusable(region, costs.epilogue_ops, costs.epilogue_columns)
    ):
        total += 2 * m * n * (costs.epilogue_ops + 8) / costs.valus
    regions = [region]
    for origin, box in (
        ((0, k_main, 0), (m_main, k - k_main, n_main)),
        ((0, 0, n_main), (m_main, k, n - n_main)),
        ((m_main, 0, 0), (m - m_main, k, n)),
    ):
        cost, rest = _best(*box, costs) if min(box) else (0.0, ())
        total += cost
        regions.extend(_moved(r, origin) for r in rest)
    return total, tuple(regions)


def _moved(region: ProductRegion, by: tuple[int, int, int]) -> ProductRegion:
    return ProductRegion(
        region.m0 + by[0], region.k0 + by[1], region.n0 + by[2],
        region.m_tiles, region.k_tiles, region.n_tiles, region.mw, region.kw, region.nw,
    )  # fmt: skip


def _cycles(region: ProductRegion, costs: DotPlanCosts) -> float:
    """Estimated cycles: the busiest of MXU, stores and loads, and what starting costs."""
    outputs, groups = region.mw * region.nw, region.k_groups
    stores = (costs.stores_per_tile + _SUM_STORES * (groups - 1)) / groups * outputs
    sum_loads = _SUM_STORES * (groups - 1) / groups * outputs
    per_slot = -(-region.units // costs.mxus)
    step = max(
        costs.matmul_cycles,
        per_slot,
        stores / costs.stores,
        (region.mw * region.kw + sum_loads) / costs.loads,
    )
    weights = PUSHES_PER_BLOCK * max(region.kw * region.nw / costs.loads, per_slot)
    one_pass = max(region.steps * step, region.steps * step / 2 + weights, PUSHES_PER_BLOCK + 4)
    blocks = 1 if region.steps <= _STREAM_LIMIT_STEPS else 2
    return region.passes * (one_pass + blocks * costs.block) + costs.region


def is_fusable(region: ProductRegion, epilogue_ops: int, columns: int = 0) -> bool:
    """Whether the stream of a region can know, when it pops, which sums are finished.

    With `columns`, a step must also have whole rows of so many tiles.
    """
    if columns and region.nw != columns:
        return False
    return (
        region.k_groups == 1
        or region.steps > _LOOPED_STEPS
        or _sum_ops(region, epilogue_ops) <= _STATIC_OPS
    )


def _sum_ops(region: ProductRegion, epilogue_ops: int) -> int:
    """Operations of the passes of one sum over K, with about 8 steps at least."""
    sums = -(-_SHORT_BLOCK_STEPS // (region.steps * region.k_groups))
    passes = region.steps * _STEP_OPS + 2 * PUSHES_PER_BLOCK * region.units
    finish = 2 * region.steps * region.results * epilogue_ops
    return sums * (region.k_groups * passes + finish)


@dataclass(frozen=True)
class Skew:
    """How far matmuls run ahead of pops, and how a pass is cut into blocks.

    ``lag_passes > 0``: whole passes, unrolled, `unroll` of them in a block. Otherwise the first
    `lag_steps` steps of a pass share a block with the last of the pass before, and the rest are a
    loop of `unroll` steps. `static_k`: blocks cover whole sums over K. `carried_passes`: so many
    consecutive passes of a block are added up in vregs.
    """

    lag_passes: int
    lag_steps: int
    unroll: int
    static_k: bool = False
    carried_passes: int = 1


def choose_skew(region: ProductRegion, chip: Chip, epilogue_ops: int = 0) -> Skew:
    """The least skew that hides the MXU's latency and the epilogue's, within the result queue."""
    hidden = chip.latency("mxu_result") + chip.matmul_cycles + _epilogue_latency(epilogue_ops)
    queue = chip.mrf_entries // 2  # steps whose results fit
    least = max(1, min(-(-hidden // chip.matmul_cycles) + 1, queue - 4))
    step_ops = _STEP_OPS + 2 * region.results * epilogue_ops
    limit = min(max(_STREAM_LIMIT_STEPS, least), 2 * _STREAM_LIMIT_STEPS, queue // 2)
    is_short = region.steps <= limit
    if is_short and epilogue_ops and region.steps > _LOOPED_STEPS and region.k_groups > 1:
        is_short = _sum_ops(region, epilogue_ops) <= _STATIC_OPS
    if is_short:
        return _short_skew(region, least, queue, epilogue_ops)
    copies = min(region.k_groups, 3)  # code for each kind of pass
    block = DotCosts.of(chip).block
    return _long_skew(region.steps, least, queue, step_ops * copies, block)


def _epilogue_latency(ops: int) -> int:
    """A guess at the longest path of an epilogue of so many operations a register."""
    return min(30 + 2 * ops, 120) if ops else 0


def _short_skew(region: ProductRegion, least: int, queue: int, epilogue_ops: int) -> Skew:
    steps, groups = region.steps, region.k_groups
    lag = max(1, min(-(-least // steps), (queue - 1) // steps))
    unroll = -(-_SHORT_BLOCK_STEPS // steps)
    whole_sums = -(-unroll // groups) * groups
    is_static = _sum_ops(region, epilogue_ops) <= _STATIC_OPS
    if is_static:
        unroll = whole_sums
    else:
        divisors = [u for u in range(unroll, 2 * unroll + 1) if groups % u == 0]
        unroll = divisors[0] if divisors else unroll
    unroll = min(unroll, region.passes)
    carried = groups if is_static else unroll if groups % unroll == 0 else 1
    if steps * region.results > _CARRIED_TILES:
        carried = 1
    return Skew(lag, 0, unroll, is_static, carried)


def _long_skew(steps: int, least: int, queue: int, step_ops: int, block: float) -> Skew:
    """Weigh cycles lost between blocks (`block`, each) against code."""
    most = max(4, min(16, _BODY_OPS // step_ops))
    best: tuple[float, int, int] | None = None
    least = min(least, steps - 1)
    for lag in range(least, max(least + 1, min(least + 9, queue - 3, steps))):
        for unroll in range(min(4, most), most + 1):
            rest = steps - lag
            if rest % unroll:
                continue
            blocks = 1 + rest // unroll
            code = (unroll + 2 * lag) * step_ops / _STEP_OPS
            cost = blocks * block + code
            if best is None or cost < best[0]:
                best = (cost, lag, unroll)
    if best is None:
        best = (0.0, least, 1)
    return Skew(0, best[1], best[2])
