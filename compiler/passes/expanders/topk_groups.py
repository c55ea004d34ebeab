"""topk of long rows: the groups that may hold it are found first, and only these are sorted.

    [rows, n] as groups of 128        the greatest of each group
    topk of these                     k groups: in no other one is an element of the result
    their elements, in order          k * 128 of n
    sorted, cut

Were an element of the result in another group, the greatest of k groups would come before it. Groups
are of neighbours and are taken in order of position, so that equal elements come as in a stable sort.
"""

from __future__ import annotations

import math

from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import S32
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.expanders.topk_expander import of_order_key, order_key
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
_GROUP = 128
_LEAST_GAIN = 2
"""Times as many groups as are taken."""


def can_group(instr: Instr) -> bool:
    """Whether rows are so long that most groups hold nothing of the result."""
    array = instr.operands[0].array
    is_real = array.dtype.is_float or array.dtype.is_integer
    if not instr.largest or not is_real or array.dtype.bits > S32.bits:
        return False
    return instr.k > 0 and _LEAST_GAIN * instr.k * _GROUP <= array.dims[-1]


def topk_by_groups(instr: Instr) -> Instr:
    """The tuple of the k greatest elements of each row and their places."""
    e = Emitter.at(instr)
    operand, k = instr.operands[0], instr.k
    *major, size = operand.array.dims
    key = order_key(instr, operand) if operand.array.dtype.is_float else operand
    rows, count = math.prod(major), -(-size // _GROUP)
    least = identity("maximum", key.array.dtype)
    assert least is not None
    padded = e.pad_dim(e.shaped(key, (rows, size)), 1, 0, count * _GROUP - size, least)
    groups = e.shaped(padded, (rows, count, _GROUP))
    order = _groups_in_order(e, e.total(groups, 2, kind="maximum"), k)
    taken = e.gather(
        groups,
        order,
        offset_dims=(2,),
        collapsed_slice_dims=(1,),
        start_index_map=(1,),
        operand_batching_dims=(0,),
        start_indices_batching_dims=(0,),
        index_vector_dim=2,
        slice_sizes=(1, 1, _GROUP),
    )
    dims = (rows, k, _GROUP)
    first = e.multiply(order, e.like(order, _GROUP))
    place = e.add(e.broadcast(first, dims, (0, 1)), e.positions(dims, 2))
    flat = (rows, k * _GROUP)
    comparator = _order(e, taken.array, "GT")
    found = e.sort((e.shaped(taken, flat), e.shaped(place, flat)), 1, comparator, stable=True)
    best, where = (
        e.shaped(e.part(e.get_tuple_element(found, i), 1, 0, k), (*major, k)) for i in (0, 1)
    )
    if operand.array.dtype.is_float:
        best = of_order_key(instr, best, operand.array.dtype)
    return e.tuple([best, where])


def _groups_in_order(e: Emitter, best: Instr, k: int) -> Instr:
    """The k groups of the greatest elements, in order of position: [rows, k]."""
    rows = best.array.dims[0]
    shape = TupleShape((best.array.with_dims((rows, k)), ArrayShape(S32, (rows, k))))
    attrs: dict[str, object] = {"k": k, "largest": True}
    found = e.get_tuple_element(e.instruction("topk", (best,), attrs, shape), 1)
    b = HloBuilder("by_place", e.module)
    x, y = (b.parameter(ArrayShape(S32, ())) for _ in range(2))
    by_place = b.build(b.instruction("compare", (x, y), {"direction": "LT"}))
    return e.sort((found,), 1, by_place, stable=False)


def _order(e: Emitter, array: ArrayShape, direction: str) -> HloComputation:
    """A comparator of keys; places are not looked at."""
    b = HloBuilder("by_key", e.module)
    key, place = ArrayShape(array.dtype, ()), ArrayShape(S32, ())
    x, y = b.parameter(key), b.parameter(key)
    b.parameter(place)
    b.parameter(place)
    return b.build(b.instruction("compare", (x, y), {"direction": direction}))
