"""Rules of `runtime.advice` about what another operation does better: lookups, sorts, moves, sums of pairs.

What the other way costs is estimated from shapes, with what fills a matrix unit and with the transfers
that it needs too; advice is given only where that is far less.
"""

from __future__ import annotations

import math

from compiler.analysis.code_costs import ScatterCosts
from runtime.advice_site import Finding, SiteFacts
from runtime.kernel_report import peak_multiply_adds_per_cycle
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.geometry import LANES, WORD_BYTES
from tpu_sim.isa.kernel_facts import (
    CHEAPER_ORDER,
    COLUMNS,
    ONE_HOT_COLUMNS,
    ONE_HOT_ROWS,
    OUTER_SUM,
    PRODUCTS,
    OperationFacts,
)

_FAR_LESS = 0.5
"""Of a kernel's cycles: another way that takes less is worth a try."""
_ROW_BY_ROW = frozenset({"gather", "scatter"})
_ONE_BY_ONE = 1.0
"""Cycles: rows that take fewer are not taken one after the other, but a register of them at a time."""
_WIDE_ROW_CYCLES = 4
"""About what a gathered row of one register takes (docs/kernels.md)."""
_ROW_CYCLES = 14
"""About what one takes from HBM beside its bytes (measured on rows of 256 to 4,096 f32)."""
_UNIQUE_KERNELS = 16
"""That indices which are each once take: sorted, neighbours compared, places counted (of jnp.unique)."""
_ONE_HOT_OPERATIONS = 2
"""On each element of a one-hot matrix: the comparison, and its result as a number."""


def is_by_rows(site: SiteFacts) -> bool:
    """Whether `rows` says what the site waits for."""
    return bool(site.of_opcodes(_ROW_BY_ROW))


def rows(site: SiteFacts) -> Finding | None:
    """What is taken or put row by row."""
    taken = [o for o in site.of_opcodes(_ROW_BY_ROW) if len(o.dims) == 3]
    if not taken:
        return None
    first = max(taken, key=lambda o: o.dims[0])
    count, each, _ = first.dims
    report = site.report
    cycles = report.cycles / max(report.calls * count, 1)
    if cycles < _ONE_BY_ONE and each < LANES:
        return _elements_looked_up(site, first, count * each)
    what = f"{first.opcode} of {count:,} rows of {each:,} elements"
    why = f"{what}: {cycles:,.1f} cycles a row, one after the other"
    product = _one_hot_cycles(site, first)
    if product * site.calls < _FAR_LESS * report.cycles:
        return Finding(
            "rows",
            report.cycles - product * site.calls,
            why,
            _one_hot(first, product),
            first.source,
        )
    loose = site.cycles(Cause.SCALAR, Cause.LOOP, Cause.LATENCY) + site.waits
    if each < LANES:
        remedy = f"fewer, wider rows: one of {LANES} elements takes about as long as one of {each}"
        return Finding("rows", loose * (1 - each / LANES), why, remedy, first.source)
    fewer = "fewer rows: where they repeat each once (sorted, unique indices)"
    once = loose / 2 - _unique_cycles(site, count)
    if site.calls == 1:
        return Finding("rows", once, why, fewer, first.source)
    at_once = f"one {first.opcode} of all that steps need, outside of the loop"
    outside = report.cycles - _gathered_rows_cycles(site, count * site.calls, each)
    if once > outside:
        return Finding("rows", once, why, f"{fewer}; or {at_once}", first.source)
    return Finding("rows", outside, why, at_once, first.source)


def _unique_cycles(site: SiteFacts, count: int) -> float:
    """What it takes to have so many indices each once: the kernels around a sort, and its comparisons."""
    levels = math.ceil(math.log2(max(count, 2)))
    compared = ScatterCosts.of(site.chip).compared * levels * (levels + 1)
    return count * compared * site.calls + _UNIQUE_KERNELS * site.cycles(Cause.LAUNCH)


def _one_hot(first: OperationFacts, cycles: float) -> str:
    count, _, table = first.dims
    rounded = "" if first.shape.startswith("bf16") else "; it rounds to bf16 at default precision"
    return f"a product with a one-hot matrix of {count:,}x{table:,}, about {cycles:,.0f} cycles{rounded}"


def _one_hot_cycles(site: SiteFacts, first: OperationFacts) -> float:
    """Of a call that looks up, or adds, by a product: the larger of its units' work, behind what it moves."""
    count, each, table = first.dims
    depth, out = (table, count) if first.opcode == "gather" else (count, table)
    multiply_adds = out * _filled(depth) * _filled(each)
    matrix = multiply_adds / peak_multiply_adds_per_cycle(site.chip)
    vector = _ONE_HOT_OPERATIONS * out * _filled(depth) / site.elements_per_cycle
    moved = site.transfer_cycles(WORD_BYTES * (count + table) * _filled(each))
    return matrix + vector + moved + site.cycles(Cause.LAUNCH) / site.calls


def _filled(size: int) -> int:
    """A dimension in whole passes, or registers."""
    return -(-size // LANES) * LANES


def _gathered_rows_cycles(site: SiteFacts, count: int, each: int) -> float:
    """What so many whole rows take: sent for one by one, each read and written."""
    return count * (_ROW_CYCLES + 2 * site.transfer_cycles(WORD_BYTES * each))


def columns(site: SiteFacts) -> Finding | None:
    """A lookup across rows that would be far less along them."""
    taken = [o for o in site.facts.operations if COLUMNS in o.marks and len(o.dims) == 3]
    if not taken:
        return None
    first = max(taken, key=lambda o: o.dims[0])
    count, each, table = first.dims
    lines = _gathered_rows_cycles(site, count, each) * site.calls
    if lines >= _FAR_LESS * site.report.cycles:
        return None
    why = f"gather of {count:,} columns of {each:,} elements, each in a row of its own of {table:,}"
    remedy = f"keep that array transposed, so that these are rows: about {lines:,.0f} cycles"
    return Finding("columns", site.report.cycles - lines, why, remedy, first.source)


def _elements_looked_up(site: SiteFacts, first: OperationFacts, elements: int) -> Finding:
    """Of elements that are taken by an index each, a register of them at a time."""
    work = site.report.cycles - site.cycles(Cause.LAUNCH)
    each = site.report.cycles / max(site.calls * elements, 1)
    why = f"{first.opcode} of {elements:,} elements by an index each, {each:.2f} cycles an element"
    remedy = f"an index for a whole row ({LANES} elements or more)"
    if site.calls > 1:
        remedy += f", or one {first.opcode} of all that steps need, outside of the loop"
    whole = -(-elements // LANES) * site.calls
    return Finding("rows", work - whole * _WIDE_ROW_CYCLES, why, remedy, first.source)


def lookup(site: SiteFacts) -> Finding | None:
    """A product with a one-hot matrix that is large enough for rows to be looked up in less."""
    product = site.product
    if product is None:
        return None
    batch, left, right, depth = product.dims
    if ONE_HOT_ROWS in product.marks:
        count, each = batch * left, right
    elif ONE_HOT_COLUMNS in product.marks:
        count, each = batch * right, left
    else:
        return None
    cycles = _gathered_rows_cycles(site, count, each) * site.calls
    if cycles >= _FAR_LESS * site.report.cycles:
        return None
    why = f"a product with a one-hot matrix of {count:,}x{depth:,}: all but {count:,} of its numbers are zero"
    remedy = f"look the rows up: table[indices] takes about {cycles:,.0f} cycles"
    return Finding("lookup", site.report.cycles - cycles, why, remedy, product.source)


def sorts(site: SiteFacts) -> Finding | None:
    """A sort: its stages grow with the square of the logarithm of a line, those of a few largest do not."""
    found = [o for o in site.of_opcodes(frozenset({"network-sort"})) if len(o.dims) == 2]
    if not found:
        return None
    first = max(found, key=lambda o: o.dims[1])
    lines, length = first.dims
    levels = max(math.ceil(math.log2(max(length, 2))), 1)
    stages = levels * (levels + 1) // 2
    many = f"sort of {lines:,} lines of" if lines > 1 else "sort of a line of"
    why = f"{many} {length:,} elements: {stages} stages that compare every element"
    remedy = (
        "lax.top_k where only the first few are read; shorter lines; no sort where a maximum,"
        " a count or a threshold will do"
    )
    work = site.cycles(Cause.VECTOR, Cause.SCALAR, Cause.LOOP, Cause.LATENCY)
    return Finding("sort", work * (1 - levels / stages), why, remedy, first.source)


def sums_of_pairs(site: SiteFacts) -> Finding | None:
    """Sums over all pairs of rows of two arrays, element by element, that products would make."""
    found = [o for o in site.facts.operations if OUTER_SUM in o.marks]
    if not found:
        return None
    first = max(found, key=lambda o: o.work)
    products = first.work / peak_multiply_adds_per_cycle(site.chip) * site.calls
    work = site.cycles(Cause.VECTOR, Cause.LATENCY)
    if products >= _FAR_LESS * work:
        return None
    why = (
        f"{first.work:,} pairs of elements are put together one by one, and summed to {first.shape}"
    )
    same = (
        "sum x*y = x @ y.T"
        if PRODUCTS in first.marks
        else "as in sum (x-y)^2 = sum x^2 + sum y^2 - 2 x @ y.T"
    )
    remedy = f"a product of matrices, {products:,.0f} cycles of the matrix units: {same}"
    return Finding("sums of pairs", work - products, why, remedy, first.source)


def moves(site: SiteFacts) -> Finding | None:
    """A kernel that computes nothing: all of it would go, were the array where and as it is read."""
    operations = site.facts.operations
    if not operations or any(o.work or len(o.dims) != 1 for o in operations):
        return None
    first = operations[0]
    why = f"only moves elements: {first.opcode} to {first.shape}"
    if first.opcode == "copy":
        remedy = (
            "donate the argument (donate_argnums) that is changed, or read no old value behind the"
            " change; an array that its reader wants in another order is made in that order"
        )
    elif first.opcode == "transpose":
        remedy = (
            "keep the array in the order in which it is read, or leave it as it is: products and"
            " reductions take any dimension (dot_general, axis=)"
        )
    else:
        remedy = "have its readers take the parts, or its maker write them where they belong"
    return Finding("moves", float(site.report.cycles), why, remedy, first.source)


def product_order(site: SiteFacts) -> Finding | None:
    """What two products of three arrays take more than they would in another order; of a kernel with other
    products, what its part of the multiply-adds takes."""
    dots = site.of_opcodes(frozenset({"dot"}))
    orders = [o for o in dots if CHEAPER_ORDER in o.marks and len(o.dims) == 2]
    if not orders:
        return None
    takes = {o.source: math.prod(o.dims) for o in dots if len(o.dims) == 4}
    total = max(sum(takes.values()), 1)
    staying = sum(array.bytes for array in site.facts.arrays) - _bytes_between(site, orders)
    shares = (takes.get(o.source, 0) / total * (1 - o.dims[1] / max(o.dims[0], 1)) for o in orders)
    most = site.report.cycles - site.transfer_cycles(staying * site.calls)
    saved = min(site.report.cycles * sum(shares), most)
    stated, other = max(orders, key=lambda o: o.dims[0] - o.dims[1]).dims
    why = f"a product of a product: {stated:,} multiply-adds, or {other:,} in the other order"
    remedy = "a @ (b @ c) for (a @ b) @ c, or the other way about; it rounds otherwise"
    return Finding("order of products", saved, why, remedy, orders[0].source)


def _bytes_between(site: SiteFacts, orders: list[OperationFacts]) -> int:
    """What a product leaves in HBM for the next: the smallest array of its dimensions, in any type; nothing
    where both are of one kernel."""
    if len(orders) > 1:
        return 0
    dims = orders[0].shape.partition("[")[2]
    return min((a.bytes for a in site.facts.arrays if a.shape.endswith(f"[{dims}")), default=0)
