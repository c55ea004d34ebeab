"""`emit_matmul_stage`: a product of matrices in VMEM, at any of XLA's precisions.

The left side is packed bf16 tiles [M/16][K/128], the right side [K/16][N/128], or transposed
[N/16][K/128]; the result is f32 tiles [M/8][N/128] in natural row order. Columns of the left side
(and rows of the right side) beyond K, up to the tile, must be zero; rows beyond M and columns
beyond N may hold anything and give results beyond M and N.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

from compiler.backend.dot.epilogue import emit_epilogue_pass
from compiler.backend.dot.plan import (
    PUSHES_PER_BLOCK,
    ProductRegion,
    batched,
    costs_of,
    is_fusable,
    plan_regions,
)
from compiler.backend.dot.results import (
    FLOATS,
    Accumulate,
    Arithmetic,
    Epilogue,
    integer_arithmetic,
)
from compiler.backend.dot.stream import emit_region
from compiler.backend.dot.tiles import TileGrid, WeightGrid
from compiler.backend.vector.arrays import VmemArray
from compiler.diagnostics import CompileError
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg
from tpu_sim.isa.chips import Chip


def emit_matmul_stage(
    builder: LloBuilder,
    chip: Chip,
    lhs: VmemArray | Sequence[VmemArray],
    rhs: VmemArray | Sequence[VmemArray],
    rhs_transposed: bool,
    out: VmemArray,
    accumulate: bool = False,
    accumulate_when: SReg = -1,
    epilogue: Epilogue | None = None,
    integer: str = "",
) -> bool:
    """Emit ``out (+)= lhs @ rhs``; whether the epilogue, if any, was done.

    `lhs`, `rhs`: one bf16 matrix, or its parts hi, mid (, lo) as split by `emit_split`: two parts
    are XLA's HIGH (3 passes), three HIGHEST (6). Arrays with majors are as many matrices, which go
    through one after another without a pause; one matrix stands for all of a batch. `accumulate` adds
    to what `out` holds; `accumulate_when` does if that sreg is not 0. With an `epilogue`, every
    finished tile goes to it once, as it is popped where possible; what `out` then holds is undefined.
    One that takes whole rows is done on the way or not at all: `out` holds the product then.
    `integer`: operands are pairs of this 8-bit type and `out` is s32.
    """
    lhs_parts = [lhs] if isinstance(lhs, VmemArray) else list(lhs)
    rhs_parts = [rhs] if isinstance(rhs, VmemArray) else list(rhs)
    arithmetic = integer_arithmetic(integer) if integer else FLOATS
    _check(lhs_parts, rhs_parts, rhs_transposed, out, "u16" if integer else "bf16")
    stage = _Stage(builder, chip, rhs_transposed, out, arithmetic)
    products = precision_passes(len(lhs_parts), len(rhs_parts))
    is_done = False
    for number, (i, j) in enumerate(products):
        mode = Accumulate(accumulate, accumulate_when)
        if number:
            mode = Accumulate(always=True, clears_nans=(i, j) == (0, 0))
        last = epilogue if number == len(products) - 1 else None
        is_done = stage.product(lhs_parts[i], rhs_parts[j], mode, last)
    return is_done


def precision_passes(lhs_parts: int, rhs_parts: int) -> list[tuple[int, int]]:
    """Pairs (part of lhs, part of rhs) to multiply, small products first.

    >>> precision_passes(2, 2)
    [(1, 0), (0, 1), (0, 0)]
    """
    order = max(lhs_parts, rhs_parts) - 1
    pairs = [(i, j) for i in range(lhs_parts) for j in range(rhs_parts) if i + j <= order]
    return sorted(pairs, key=lambda pair: (-sum(pair), -pair[0]))


def _check(
    lhs: list[VmemArray], rhs: list[VmemArray], rhs_transposed: bool, out: VmemArray, dtype: str
) -> None:
    for array in (*lhs, *rhs):
        if prod(array.majors) != 1 and array.majors != out.majors:
            raise CompileError(f"matmul stage: batches {array.majors}, the result's {out.majors}")
    for array in (*lhs, *rhs):
        if array.shape.dtype.name != dtype:
            raise CompileError(f"matmul stage: operand {array.shape} is not {dtype}")
    k_of_rhs = rhs[0].cols if rhs_transposed else rhs[0].rows
    if lhs[0].col_tiles != -(-k_of_rhs // 128):
        raise CompileError(f"matmul stage: {lhs[0].cols} columns times {k_of_rhs} rows")


@dataclass(frozen=True)
class _Span:
    """Weight blocks [start, start + blocks) of one axis, each of `pushes` pushes."""

    start: int
    blocks: int
    pushes: int


def _spans(push_tiles: int) -> list[_Span]:
    """Whole blocks, and a last one that the right side's rows end in."""
    whole, rest = divmod(push_tiles, PUSHES_PER_BLOCK)
    spans = [_Span(0, whole, PUSHES_PER_BLOCK)] if whole else []
    return [*spans, _Span(whole, 1, rest)] if rest else spans


@dataclass(frozen=True)
class _Work:
    """A region, the weights it takes, and the first of its matrices."""

    region: ProductRegion
    weights: WeightGrid
    is_whole_k: bool
    first: int


class _Stage:
    """What the products of one stage share."""

    def __init__(
        self,
        builder: LloBuilder,
        chip: Chip,
        rhs_transposed: bool,
        out: VmemArray,
        arithmetic: Arithmetic,
    ) -> None:
        self.builder = builder
        self.arithmetic = arithmetic
        self.chip = chip
        self.rhs_transposed = rhs_transposed
        self.out = _grid(out)
        self.batches = prod(out.majors)

    def product(
        self, lhs: VmemArray, rhs: VmemArray, first: Accumulate, epilogue: Epilogue | None
    ) -> bool:
        """One bf16 product: regions deeper in K add to those before. Whether the epilogue was done."""
        works = list(self._plan(lhs, rhs, epilogue))
        is_fused = epilogue is not None and all(
            work.is_whole_k and is_fusable(work.region, epilogue.ops, epilogue.columns)
            for work in works
        )
        if epilogue is not None and epilogue.columns and not is_fused:
            epilogue = None
            works = list(self._plan(lhs, rhs, None))
        for work in works:
            mode = first if work.region.k0 == 0 else Accumulate(always=True)
            emit_region(
                self.builder, self.chip, work.region, self._from(_grid(lhs), work.first),
                replace(work.weights, tiles=self._from(work.weights.tiles, work.first)),
                self._from(self.out, work.first), mode, epilogue if is_fused else None,
                self.arithmetic, work.first,
            )  # fmt: skip
        if epilogue is not None and not is_fused:
            emit_epilogue_pass(self.builder, self.out, epilogue, self.batches)
        return epilogue is not None

    def _from(self, grid: TileGrid, batch: int) -> TileGrid:
        """The matrices from number `batch` on."""
        return replace(grid, base=self.builder.saddi(grid.base, batch * grid.matrix_rows))

    def _plan(self, lhs: VmemArray, rhs: VmemArray, epilogue: Epilogue | None) -> Iterator[_Work]:
        """Regions in the order they run."""
        out = self.out
        m_tiles = min(lhs.row_tiles, -(-out.row_tiles // 2))
        n_spans = [_Span(0, out.col_tiles, PUSHES_PER_BLOCK)]
        k_spans = _spans(rhs.row_tiles)
        if self.rhs_transposed:
            k_spans, n_spans = [_Span(0, lhs.col_tiles, PUSHES_PER_BLOCK)], k_spans
        finish = (epilogue.ops, epilogue.columns) if epilogue is not None else (0, 0)
        costs = costs_of(self.chip, 2 if out.col_tiles == 1 else 4, *finish)
        for n_span, k_span in product(n_spans, k_spans):
            pushes = min(n_span.pushes, k_span.pushes)
            weights = WeightGrid(_grid(rhs), self.rhs_transposed, pushes)
            for planned in plan_regions(m_tiles, k_span.blocks, n_span.blocks, costs):
                shifted = replace(
                    planned, k0=planned.k0 + k_span.start, n0=planned.n0 + n_span.start
                )
                for first, region in batched(shifted, self.batches, costs):
                    yield _Work(region, weights, region.k_tiles == lhs.col_tiles, first)


def _grid(array: VmemArray) -> TileGrid:
    is_one = prod(array.majors) == 1
    return TileGrid(array.window, array.base, array.row_tiles, array.col_tiles, is_one)
