"""A law of reductions over neighbours in the last dimension, which a reshape put into rows of their own.

Pooling by ``x.reshape(h, 2, w, 2).sum((1, 3))`` would have rows of two lanes. Every second element, twice,
added, has them all. Of large pools, ``x.reshape(h, 16, w, 16)``, the rows are added up before.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.analysis.reducers import has_identity_init, reducer_kind
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.rewrite import make
from compiler.rewrite.dims import Dims
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op
from compiler.rewrite.rewriter import ANY_ORDER, rule

_MOST_NEIGHBOURS = 16
"""In lanes, which four rotations of a register sum (assumed: of more a sum in two steps is no
worse)."""
_MOST_ROWS = 4  # of a sum that are strided slices, too
_MOST_POOLED = 64  # elements of a sum; of more, the other dimensions are reduced first
_LEAST_LANES = 128  # of the dimension that was split
_FEWEST_ELEMENTS = 1 << 14
"""Sixteen registers: below, the launch of a second kernel is more (assumed)."""


# reduce(reshape(x), {.., last}) == reduce(reshape(x[.., 0::k] + .. + x[.., k-1::k]), {..})
@rule("reduce-of-neighbours", Op("reduce"), ANY_ORDER)
def reduce_of_neighbours(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Combine strided slices of what was split, instead of reducing short rows."""
    if len(instr.operands) != 2 or not isinstance(instr.shape, ArrayShape):
        return None
    split, init = instr.operands
    wide: DType | None = None
    if split.opcode == "convert":
        split, wide = split.operands[0], split.array.dtype
    if split.opcode != "reshape" or not _is_split(split, instr.dimensions):
        return None
    kind = reducer_kind(instr.to_apply)
    if kind is None or not has_identity_init(instr) or not _is_exact_enough(instr, kind):
        return None
    whole = split.operands[0]
    if wide is not None:
        whole = make.convert(whole, wide)
    *outer, count = split.array.dims
    rest = tuple(d for d in instr.dimensions if d != len(outer))
    if count * math.prod(outer[d] for d in rest) > _MOST_POOLED:
        if len(outer) - 1 in rest or outer[-1] * count != whole.array.dims[-1]:
            return None
        lanes = whole.array.dims[-1]
        rows = make.reshape(whole, (*outer[:-1], lanes))
        kept = tuple(n for d, n in enumerate(rows.array.dims) if d not in rest)
        if math.prod(kept) < _FEWEST_ELEMENTS:
            return None
        attrs = {**instr.attrs, "dimensions": rest}
        whole = emit(instr, "reduce", rows.array.with_dims(kept), (rows, init), attrs)
        return make.reshape(_pooled(instr, whole, kind, count), instr.array.dims)
    pooled = _pooled(instr, whole, kind, count)
    if _is_split_row(pooled.array.dims, outer, rest):
        return make.reshape(_pooled_rows(instr, pooled, kind, outer[-2]), instr.array.dims)
    rows = make.reshape(pooled, tuple(outer))
    if not rest:
        return rows
    return emit(instr, "reduce", instr.array, (rows, init), {**instr.attrs, "dimensions": rest})


def _pooled(near: HloInstruction, whole: HloInstruction, kind: str, count: int) -> HloInstruction:
    """Every `count` neighbours of the last dimension combined."""
    *lead, lanes = whole.array.dims
    total: HloInstruction | None = None
    for place in range(count):
        bounds = (*((0, n, 1) for n in lead), (place, lanes - count + place + 1, count))
        part = make.slice_(whole, bounds)
        total = part if total is None else emit(near, kind, part.array, (total, part))
    assert total is not None
    return total


def _is_split_row(pooled: Dims, outer: Sequence[int], rest: Dims) -> bool:
    """Whether the other dimension to reduce is a small part of the rows, beside the lanes."""
    rows = len(outer) - 2
    is_part = rest == (rows,) and len(pooled) > 1 and pooled[-1] == outer[-1]
    return is_part and pooled[-2] % outer[rows] == 0 and outer[rows] <= _MOST_ROWS


def _pooled_rows(
    near: HloInstruction, whole: HloInstruction, kind: str, count: int
) -> HloInstruction:
    """Every `count` neighbouring rows combined."""
    *lead, rows, lanes = whole.array.dims
    total: HloInstruction | None = None
    for place in range(count):
        bounds = [(0, n, 1) for n in lead]
        bounds += [(place, rows - count + place + 1, count), (0, lanes, 1)]
        part = make.slice_(whole, tuple(bounds))
        total = part if total is None else emit(near, kind, part.array, (total, part))
    assert total is not None
    return total


def _is_exact_enough(reduce: HloInstruction, kind: str) -> bool:
    """Whether parts may be combined in the type of the result: a reduction adds up in f32."""
    dtype = reduce.array.dtype
    return not dtype.is_float or dtype.bits == 32 or kind in ("maximum", "minimum")


def _is_split(reshape: HloInstruction, reduced: tuple[int, ...]) -> bool:
    """Whether the last, reduced dimension is a small part of the operand's last."""
    before, after = reshape.operands[0].array, reshape.array
    if not before.dims or before.dtype.bits > 32 or before.element_count < _FEWEST_ELEMENTS:
        return False
    count, lanes = after.dims[-1], before.dims[-1]
    is_part = 1 < count <= _MOST_NEIGHBOURS and lanes % count == 0 and lanes >= _LEAST_LANES
    return is_part and after.rank - 1 in reduced
