"""The rules of `runtime.advice`: each takes a call site and says what would help it, or nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from runtime.advice_loops import fetches, loop_of, tables, turning_vectors, turns
from runtime.advice_site import Finding, SiteFacts
from runtime.advice_ways import (
    columns,
    is_by_rows,
    lookup,
    moves,
    product_order,
    rows,
    sorts,
    sums_of_pairs,
)  # fmt: skip
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.geometry import LANES
from tpu_sim.isa.kernel_facts import STATED_PRECISION, ArrayFacts, OperationFacts

_LEAST_FILL = 0.6
"""Of a matrix unit's passes, or of lanes: below, the shape is what costs."""
_MOST_AGAIN = 1.3
"""Times the least bytes: above, what is moved beyond them is what costs."""
_MOVING_SHARE = 0.3
"""Of vector cycles that operations on elements need: below, most of them move elements about."""
_NARROWER = {"f32": "bf16", "bf16": "an 8-bit type", "f16": "an 8-bit type"}
"""Element types, and one of half their size that may do."""


def _fill(site: SiteFacts, product: OperationFacts) -> float:
    """The share of the matrix units' work in passes that is the model's."""
    matrix = site.cycles(Cause.MXU, Cause.MXU_RESULT, Cause.MXU_WEIGHTS)
    useful = site.report.mxu_utilisation * site.report.cycles * product.passes
    return useful / matrix if matrix else 1.0


def _unfilled(site: SiteFacts) -> Finding | None:
    product = site.product
    if product is None or (fill := _fill(site, product)) >= _LEAST_FILL:
        return None
    matrix = site.cycles(Cause.MXU, Cause.MXU_RESULT, Cause.MXU_WEIGHTS)
    batch, rows, columns, depth = product.dims
    few = min(rows, columns)
    if depth < LANES:
        remedy = f"sum over more at a time: a pass takes {LANES} numbers, here are {depth}"
    elif few < LANES:
        remedy = (
            f"a larger batch, or products put together: a pass has room for {LANES}, here are {few}"
        )
    else:
        remedy = f"dimensions that are multiples of {LANES}; fewer, larger products"
    many = f"{batch:,} products" if batch > 1 else "a product"
    shapes = f"{many} of {rows:,}x{depth:,} with {depth:,}x{columns:,}"
    why = f"{shapes}: {fill:.0%} of the matrix units' work is used"
    saved = site.above_transfers(matrix * (1 - fill))
    return Finding("unfilled products", saved, why, remedy, product.source)


def _many_passes(site: SiteFacts) -> Finding | None:
    product = site.product
    if product is None or product.passes < 2:
        return None
    saved = site.above_transfers(site.cycles(Cause.MXU) * (1 - 1 / product.passes))
    why = f"{product.passes} passes of bf16 for each product of f32"
    fewer = (
        "precision=DEFAULT there" if STATED_PRECISION in product.marks else "--precision default"
    )
    remedy = f"{fewer} takes one, where factors of 8 bits will do"
    return Finding("precision", saved, why, remedy, product.source)


def _busy_units(site: SiteFacts) -> Finding | None:
    product = site.product
    if product is None or product.passes != 1 or (fill := _fill(site, product)) < _LEAST_FILL:
        return None
    rate = site.chip.int8_rate
    saved = site.above_transfers(site.cycles(Cause.MXU) * (1 - 1 / max(rate, 2)))
    batch, rows, columns, depth = product.dims
    shapes = f"{batch * rows:,}x{depth:,} with {depth:,}x{columns:,}"
    why = f"the matrix units are busy and filled to {fill:.0%}: {shapes}"
    less = "8-bit integers, which are faster here" if rate > 1 else "a second chip (a slice)"
    return Finding("busy units", saved, why, f"fewer multiply-adds; {less}", product.source)


def _needed_bytes(site: SiteFacts) -> Finding | None:
    report, arrays = site.report, site.facts.arrays
    total = sum(array.bytes for array in arrays)
    if not site.waits or not total or report.amplification > _MOST_AGAIN or tables(site):
        return None
    wide: dict[str, int] = defaultdict(int)
    for array in arrays:
        if array.element in _NARROWER:
            wide[array.element] += array.bytes
    if not wide:
        return None
    element = max(wide, key=lambda name: wide[name])
    share = wide[element] / total
    saved = min(site.waits, site.transfer_cycles(report.hbm_bytes * share / 2))
    moved = f"waits for HBM: {_megabytes(report.hbm_bytes)}, about as much as it must move"
    narrower = f"{_NARROWER[element]} for {element} halves these bytes"
    if few := _served(site, total):
        served = "one row" if few == 1 else f"{few:,} rows"
        remedy = (
            "a larger batch, or products that share this operand put together, cost little more: "
            f"what is read serves {served} of the other operand; {narrower}"
        )
    else:
        remedy = f"{narrower}; or read and write fewer arrays"
    return Finding("needed bytes", saved, f"{moved}, {share:.0%} of it {element}", remedy)


def _served(site: SiteFacts, total: int) -> int:
    """The rows (or columns) of a product that the operand serves that most bytes are of; 0: many, or there
    is no product."""
    product = site.product
    if product is None:
        return 0
    batch, left, right, depth = product.dims
    few, many = sorted((left, right))
    widest = max((array.bytes for array in site.facts.arrays), default=0)
    is_most = 2 * widest >= total and widest >= batch * many * depth
    return few if few < LANES and is_most else 0


def _other_bytes(site: SiteFacts) -> Finding | None:
    report = site.report
    if not site.waits or report.amplification <= _MOST_AGAIN:
        return None
    more = report.hbm_bytes - report.least_bytes
    saved = min(site.waits, site.transfer_cycles(more))
    least = _megabytes(report.least_bytes)
    moved = f"waits for HBM: {_megabytes(report.hbm_bytes)} for {least} that it must move"
    padded = max(site.facts.arrays, key=lambda a: a.stored_bytes - a.bytes, default=None)
    if padded is not None and 2 * (padded.stored_bytes - padded.bytes) * report.calls >= more:
        return Finding("padding", saved, f"{moved}; {_padding(padded)}", _unpadded(padded))
    remedy = f"other windows (--window {report.name}=..), or operands that fit VMEM and stay there"
    return Finding("bytes read again", saved, f"{moved}: windows are read again", remedy)


def _padding(array: ArrayFacts) -> str:
    times = array.stored_bytes / max(array.bytes, 1)
    return f"{array.shape} takes {times:.1f} times its size in whole tiles"


def _unpadded(array: ArrayFacts) -> str:
    if array.minor % LANES:
        return f"rows of a multiple of {LANES} elements, not of {array.minor}: put several side by side"
    return "dimensions that are multiples of the tile's"


def _launches(site: SiteFacts) -> Finding | None:
    """Of kernels whose largest part it is: others are not small, and stay kernels of their own."""
    if site.cycles(Cause.LAUNCH) < max(site.report.causes.values()):
        return None
    calls = max(site.report.calls, 1)
    each = site.cycles(Cause.LAUNCH) / calls
    why = f"{{calls}} calls of small kernels, each {each:,.0f} cycles beside what it computes"
    apart = "what kept operations apart, `tpuc view` says at the pass fusion"
    if calls > 1:
        fewer = "lax.scan(.., unroll=..), or jax.lax.associative_scan where steps combine in any grouping"
        remedy = f"more work in each step of the loop, so that fewer are taken: {fewer}; {apart}"
    else:
        remedy = f"one batched operation for many small ones, a loop (lax.scan) over what repeats; {apart}"
    return Finding("launches", each * calls, why, remedy, once=each)


def _vector(site: SiteFacts) -> Finding | None:
    vector = site.cycles(Cause.VECTOR)
    dearest = [operation for operation in site.facts.operations if operation.work]
    if not vector or not dearest:
        return None
    if not site.element_ops:
        return turning_vectors(site, vector)
    needed = site.element_ops / site.elements_per_cycle
    if needed >= _MOVING_SHARE * vector:
        return _elements(site, dearest, vector)
    first, minor = dearest[0], dearest[0].minor
    fill = minor / (-(-minor // LANES) * LANES) if minor else 1.0
    if fill < _LEAST_FILL:
        why = f"vector instructions on {first.shape}: {fill:.0%} of their lanes are filled"
        remedy = f"a large dimension last: {minor} of {LANES} lanes are used"
        return Finding("unfilled lanes", vector * (1 - fill), why, remedy, first.source)
    return _moved(site, vector, needed)


def _moved(site: SiteFacts, vector: float, needed: float) -> Finding:
    moving = [o for o in site.facts.operations if not o.work and len(o.dims) == 1]
    names = " and ".join(dict.fromkeys(f"{o.opcode} to {o.shape}" for o in moving))
    what = f"elements ({names})" if names else "and convert elements"
    why = f"vector instructions that move {what}; what they compute takes {needed / vector:.0%}"
    remedy = "fewer transposes, slices and conversions between types; bf16 where products read it"
    source = moving[0].source if moving else ""
    return Finding("moved elements", vector - needed, why, remedy, source)


def _elements(site: SiteFacts, dearest: list[OperationFacts], vector: float) -> Finding:
    first, total = dearest[0], max(site.element_ops / max(site.report.calls, 1), 1)
    work: Counter[str] = Counter()
    for operation in dearest:
        work[operation.opcode] += operation.work
    names = ", ".join(f"{name} {min(n / total, 1):.0%}" for name, n in work.most_common(3))
    why = f"operations on elements, by what they take: {names}"
    remedy = (
        f"less of {first.opcode} on {first.shape}: a cheaper function, on fewer elements, or once"
    )
    saved = vector * min(first.work / total, 1.0)
    return Finding("elements", saved, why, remedy, first.source)


def _latency(site: SiteFacts) -> Finding | None:
    if is_by_rows(site) or loop_of(site) is not None:
        return None  # `rows` or `turns` says what its waits are for
    saved = site.above_transfers(site.cycles(Cause.LATENCY, Cause.MXU_RESULT))
    why = "instructions wait for each other's results, with nothing to do beside them"
    remedy = "more independent work at a time: larger arrays, a larger batch"
    return Finding("latency", saved, why, remedy)


def _small_steps(site: SiteFacts) -> Finding | None:
    if is_by_rows(site) or loop_of(site) is not None:
        return None
    why = "scalar code and loop overhead around little work in each step"
    remedy = "larger steps: larger arrays, fewer iterations, other windows"
    return Finding("small steps", site.cycles(Cause.SCALAR, Cause.LOOP), why, remedy)


def _links(site: SiteFacts) -> Finding | None:
    remedy = (
        "a sharding that moves less, or independent work beside the collective;"
        " `tpuc estimate MODEL --target A,B` shows how it scales"
    )
    return Finding("links", site.cycles(Cause.ICI), "waits for other chips", remedy)


_Rule = Callable[[SiteFacts], Finding | None]

_WAYS: tuple[_Rule, ...] = (moves, columns, lookup, sorts, sums_of_pairs)
"""About all that a kernel does: where one speaks, those of causes are silent."""
_CAUSES: tuple[_Rule, ...] = (
    _unfilled, _many_passes, _busy_units, _needed_bytes, _other_bytes, _vector, _latency, rows,
    fetches, tables, turns, _small_steps, _links, product_order,
)  # fmt: skip
"""One for each kind of cause."""


def findings(site: SiteFacts) -> Iterator[Finding]:
    """What would help a site, by each rule that has something to say; what saves nothing is no help."""
    ways = list(_saving(_WAYS, site))
    yield from _saving((_launches,), site)
    yield from ways or _saving(_CAUSES, site)


def _saving(rules: tuple[_Rule, ...], site: SiteFacts) -> Iterator[Finding]:
    for rule in rules:
        finding = rule(site)
        if finding is not None and finding.saved > 0:
            yield finding


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e5 else f"{size_bytes / 1e3:,.1f} kB"
