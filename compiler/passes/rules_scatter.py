"""Laws of scatters whose kernel would go through the updates in too small steps.

A scatter's kernel combines one row after another, each read, changed and written back. Columns are
turned into rows first; single elements that meet in a few places are found by comparison.
"""

from __future__ import annotations

import math

from compiler.analysis.code_costs import ElementCosts, ScatterCosts
from compiler.analysis.reducers import reducer_kind
from compiler.analysis.scatter_dims import combines_elements, has_numbers_last, scatter_dims
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op
from compiler.rewrite.rewriter import ANY_ORDER, rule, weighed_rule
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES

Dims = tuple[int, ...]
_FEW_PLACES = 1024
"""One register's, which every update is compared with."""
_FEWEST_UPDATES = 64
"""Fewer are scattered one by one as fast (assumed)."""
_REGISTER = 1024


# scatter(x, i, u) == x when there are no updates
@rule("scatter-of-nothing", Op("scatter"))
def scatter_of_nothing(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """A scatter without updates is its operand (or the tuple of them)."""
    count = len(instr.operands) // 2
    if instr.operands[-1].array.element_count:
        return None
    if count == 1:
        return instr.operands[0]
    return emit(instr, "tuple", instr.shape, tuple(instr.operands[:count]))


# scatter(x, i, u) of columns == transpose(scatter(transpose(x), i, transpose(u))) of rows
@weighed_rule("scatter-rows-not-columns", Op("scatter"))
def scatter_rows_not_columns(instr: HloInstruction, _: Match, chip: Chip) -> HloInstruction | None:
    """Updates that lie across the minor dimension are turned into rows where that is cheaper.

    A kernel combines a row at a time, and a column is as many rows as it has elements. Updates that
    lie along their numbers are left alone: their elements go by address.
    """
    if len(instr.operands) != 3 or has_numbers_last(scatter_dims(instr)):
        return None
    operand, indices, updates = instr.operands
    dims = operand.array.dims
    gone = instr.inserted_window_dims + instr.input_batching_dims
    window = instr.update_window_dims
    if not window or len(dims) - 1 not in gone:
        return None
    sizes = [updates.array.dims[d] for d in window]
    number = max(range(len(window)), key=lambda n: sizes[n])
    column = [d for d in range(len(dims)) if d not in gone][number]
    if not pays_to_turn(dims, updates.array.dims, sizes[number], chip):
        return None
    order, update_order = (
        _moved_last(len(dims), column),
        _moved_last(updates.array.rank, window[number]),
    )
    attrs = dict(instr.attrs)
    for name in ("inserted_window_dims", "input_batching_dims", "scatter_dims_to_operand_dims"):
        attrs[name] = tuple(order.index(d) for d in instr.ints(name))
    attrs["update_window_dims"] = tuple(sorted(update_order.index(d) for d in window))
    turned = (make.transpose(operand, order), indices, make.transpose(updates, update_order))
    back = tuple(order.index(d) for d in range(len(dims)))
    shape = instr.array.with_dims(tuple(dims[d] for d in order))
    return make.transpose(emit(instr, "scatter", shape, turned, attrs), back)


def _moved_last(rank: int, dim: int) -> Dims:
    return (*(d for d in range(rank) if d != dim), dim)


def pays_to_turn(dims: Dims, update_dims: Dims, size: int, chip: Chip) -> bool:
    """Whether slices of `update_dims` that are rows, not columns of `size`, save more cycles than
    transposes of two operands of `dims` and of the slices cost."""
    elements = math.prod(update_dims)
    rows = elements // max(size, 1) * -(-size // LANES)
    costs = ScatterCosts.of(chip)
    saved = (elements - rows) * costs.combined
    return saved > costs.turn * (2 * _vregs(dims) + _vregs(update_dims))


def _vregs(dims: Dims) -> int:
    """Tiles of an array of words."""
    *majors, rows, columns = (1, *dims)
    return math.prod(majors) * -(-rows // 8) * -(-columns // LANES)


# scatter-f(x, i, u) of elements == f(x, reduce-f over n of (i[n] == place ? u[n] : identity))
@weighed_rule("scatter-into-few-places", Op("scatter"), ANY_ORDER)
def scatter_into_few_places(instr: HloInstruction, _: Match, chip: Chip) -> HloInstruction | None:
    """Every place looks through all updates at once; an index outside is no place.

    A kernel that combines elements at computed addresses takes as long for any number of places.
    """
    if len(instr.operands) != 3 or instr.array.rank != 1:
        return None
    operand, indices, updates = instr.operands
    count, places = updates.array.element_count, operand.array.element_count
    if indices.array.element_count != count or instr.input_batching_dims:
        return None
    if places > _FEW_PLACES or count < _FEWEST_UPDATES or updates.array.rank != 1:
        return None
    kind, dtype = reducer_kind(instr.to_apply), operand.array.dtype
    if kind not in ("add", "maximum", "minimum") or dtype.kind == "pred" or dtype.is_complex:
        return None
    neutral = identity(kind, dtype)
    if neutral is None:
        return None
    if instr.update_window_dims or _is_faster_by_address(instr, places, count, chip):
        return None
    index = make.reshape(indices, (count,))
    if index.array.dtype.bits < S32.bits:
        index = make.convert(index, S32)  # which can count the places
    dims = (places, count)
    shape = ArrayShape(index.array.dtype, dims)
    place = emit(instr, "iota", shape, (), {"iota_dimension": 0})
    wanted = make.broadcast(index, dims, (1,))
    mask = emit(instr, "compare", ArrayShape(PRED, dims), (place, wanted), {"direction": "EQ"})
    wide = make.broadcast(updates, dims, (1,))
    values = (mask, wide, make.splat(instr, wide.array, neutral))
    chosen = emit(instr, "select", wide.array, values)
    init = make.constant(instr, dtype, neutral)
    attrs = {"dimensions": (1,), "to_apply": make.reducer(instr, kind, dtype)}
    found = emit(instr, "reduce", operand.array, (chosen, init), attrs)
    return emit(instr, kind, operand.array, (operand, found))


def _is_faster_by_address(scatter: HloInstruction, places: int, count: int, chip: Chip) -> bool:
    registers = -(-count // _REGISTER)
    costs = ElementCosts.of(chip)
    compared = costs.searched * registers * places
    addressed = costs.addressed * registers + costs.tables
    return combines_elements(scatter_dims(scatter)) and addressed < compared
