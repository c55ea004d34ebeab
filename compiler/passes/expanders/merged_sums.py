"""Sums over dimensions that a reshape has merged into one, over the dimensions themselves.

    dot(reshape(f32[64,512] x), reshape(f32[64,512] y))     x and y as f32[32768], as of a vdot
    reduce(reshape(f32[64,8,512] x))                        x as f32[64,4096], summed along 4096

Where x is cut along a dimension that is not the first of those merged, its elements in that one row lie
on the devices by turns, and it would be gathered for a sum of which each device can make its part.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.hlo.iota_order import Ints
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.sharding import HloSharding
from compiler.rewrite.dims import reshape_groups
from compiler.rewrite.graph import emit

Instr = HloInstruction
SAID = ("sharding", "frontend_attributes")
"""What an instruction says of how it lies."""


def _sources(array: Instr, summed: Sequence[int]) -> list[Ints] | None:
    """By dimension of a reshape that merges nothing but summed ones the dimensions of its operand."""
    if array.opcode != "reshape" or 0 in array.array.dims or _is_stated(array):
        return None
    found: dict[int, Ints] = {}
    for source, target in reshape_groups(array.operands[0].array.dims, array.array.dims):
        is_whole = len(source) == 1 and len(target) == 1
        if not is_whole and not (source and len(target) == 1 and target[0] in summed):
            return None
        found[target[0]] = source
    is_merged = any(len(source) > 1 for source in found.values())
    return [found[dim] for dim in range(array.array.rank)] if is_merged else None


def dot_of_parts(dot: Instr) -> Instr | None:
    """A dot along all that was merged, where both sides were in the same way."""
    lhs, rhs = dot.operands
    left, right = dot.lhs_contracting_dims, dot.rhs_contracting_dims
    of_left, of_right = _sources(lhs, left), _sources(rhs, right)
    if of_left is None or of_right is None:
        return None
    given = [operand.operands[0] for operand in dot.operands]
    for i, j in zip(left, right, strict=True):
        if _sizes(given[0], of_left[i]) != _sizes(given[1], of_right[j]):
            return None
    attrs = dict(dot.attrs)
    for name, own in (
        ("lhs_contracting_dims", of_left),
        ("rhs_contracting_dims", of_right),
        ("lhs_batch_dims", of_left),
        ("rhs_batch_dims", of_right),
    ):
        if name in attrs:
            attrs[name] = _all(own, attrs[name])
    return emit(dot, "dot", dot.shape, given, attrs)


def reduce_of_parts(reduce: Instr) -> Instr | None:
    """The same of a reduction of one array, or of an elementwise operation on arrays merged in one way."""
    if len(reduce.operands) != 2:
        return None
    operand, start = reduce.operands
    is_made = OPCODES[operand.opcode].has(Trait.ELEMENTWISE) and len(operand.users) == 1
    merged = list(operand.operands) if is_made else [operand]
    own = [_sources(array, reduce.dimensions) for array in merged]
    wholes = [array.operands[0] for array in merged if array.operands]
    if not own or own[0] is None or any(w.array.dims != wholes[0].array.dims for w in wholes):
        return None
    if any(one != own[0] for one in own):
        return None
    whole = wholes[0]
    if is_made:
        shape = operand.array.with_dims(whole.array.dims)
        attrs = {name: value for name, value in operand.attrs.items() if name not in SAID}
        whole = emit(operand, operand.opcode, shape, wholes, attrs)
    attrs = {**reduce.attrs, "dimensions": _all(own[0], reduce.dimensions)}
    return emit(reduce, "reduce", reduce.shape, [whole, start], attrs)


def _is_stated(array: Instr) -> bool:
    """Whether the program says itself that the merged array is cut."""
    sharding = array.attrs.get("sharding")
    is_cut = isinstance(sharding, HloSharding) and sharding.tiles is not None
    return is_cut or "xla.sdy" in str(array.attrs.get("frontend_attributes", ""))


def _sizes(array: Instr, dims: Ints) -> list[int]:
    return [array.array.dims[dim] for dim in dims]


def _all(own: Sequence[Ints], dims: object) -> Ints:
    assert isinstance(dims, tuple)
    return tuple(source for dim in dims for source in own[dim])
