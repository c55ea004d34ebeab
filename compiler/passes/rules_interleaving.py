"""Laws of arrays whose elements take turns along the last dimension.

``stack([a, b], -1).reshape(n, 2 * m)`` is an inverse wavelet transform, rotated pairs of features, or
parts of complex numbers side by side. The stack has rows of two lanes, so that it would be laid out, and
turned, for these. Each array put apart along the lanes, and a selection by the place, have whole rows.

A stack of many, ``stack(xs, -1)``, has a lane of each. Each lane would be turned by itself; a stack of rows
is turned whole.
"""

from __future__ import annotations

import math

from compiler.hlo.dtypes import BY_NAME, PRED
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.repeated_work import LEAST_STACKED
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op
from compiler.rewrite.rewriter import rule
from tpu_sim.isa.geometry import LANES

_MOST_PARTS = 4
"""Each takes a permutation and a selection of every register (assumed)."""


# reshape(concatenate(a, b, {last})) == select(place % 2 == 0, pad(a, interior 1), pad(b, interior 1))
@rule("interleaved-lanes", Op("reshape", Op("concatenate")))
def interleaved_lanes(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Put elements that take turns where they lie, instead of stacking them in short rows."""
    (joined,) = instr.operands
    *outer, count = joined.array.dims
    parts = joined.operands
    is_stack = joined.dimensions == (len(outer),) and count == len(parts) <= _MOST_PARTS
    if not is_stack or not outer or outer[-1] < LANES or not instr.array.dims:
        return None
    lanes = outer[-1] * count
    if instr.array.dims[-1] % lanes and instr.array.dims != (math.prod(outer) * count,):
        return None
    dims = (*outer[:-1], lanes)
    place = emit(instr, "iota", ArrayShape(BY_NAME["s32"], (lanes,)), (), {"iota_dimension": 0})
    turn = emit(instr, "remainder", place.array, (place, make.splat(instr, place.array, count)))
    result: HloInstruction | None = None
    for number, part in enumerate(parts):
        apart = _apart(part, (*outer,), number, count)
        if result is None:
            result = apart
            continue
        is_turn = emit(
            instr,
            "compare",
            ArrayShape(PRED, (lanes,)),
            (turn, make.splat(instr, turn.array, number)),
            {"direction": "EQ"},
        )
        chosen = make.broadcast(is_turn, dims, (len(dims) - 1,))
        result = emit(instr, "select", apart.array, (chosen, apart, result))
    assert result is not None
    return make.reshape(result, instr.array.dims)


# concatenate(columns, {last}) == transpose(concatenate(rows, {last but one}))
@rule("stacked-columns", Op("concatenate"))
def stacked_columns(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Stack many columns as rows, and turn the stack."""
    dims, last = instr.array.dims, instr.array.rank - 1
    is_stack = instr.dimensions == (last,) and dims[last:] == (len(instr.operands),)
    if not is_stack or dims[last] < LEAST_STACKED or last < 1 or dims[-2] < LANES // 2:
        return None
    row = (*dims[:-2], 1, dims[-2])
    parts = tuple(make.reshape(part, row) for part in instr.operands)
    rows = emit(
        instr,
        "concatenate",
        instr.array.with_dims((*dims[:-2], dims[-1], dims[-2])),
        parts,
        {"dimensions": (last - 1,)},
    )
    return make.transpose(rows, (*range(last - 1), last, last - 1))


def _apart(part: HloInstruction, dims: tuple[int, ...], number: int, count: int) -> HloInstruction:
    """`part` with `count - 1` places between its elements, the first one at `number`."""
    rows = make.reshape(part, dims)
    padding = (*((0, 0, 0) for _ in dims[:-1]), (number, count - 1 - number, count - 1))
    wide = rows.array.with_dims((*dims[:-1], dims[-1] * count))
    filler = make.constant(part, rows.array.dtype, 0)
    return emit(part, "pad", wide, (rows, filler), {"padding": padding})
