"""Stacked state: arrays that a loop reads or writes slice by slice lie in memory without padding.

    while state f32[127,64,32,32], one [1,64,32,32] of it a trip   ->   state f32[127,64,1024]

Tiles of 8x128 make many bytes of one where the last dimensions are small. A scan keeps whole stacks of
such slices, so that is where memory goes. What a slice is made of or read into keeps its dimensions;
a reshape stands between, which is index arithmetic of the kernel that makes or reads the slice. Where
another order of the dimensions pads little, as of f32[512,256,12,4] with its 256 last, nothing is merged:
`dimension_order` chooses it, and kernels have full registers.

Rows of a matrix lie apart, too, where the state is larger than VMEM: f32[64,1048576] becomes
f32[64,1,1048576], for in tiles of eight rows each row that is read or written moves the others.

Only the trailing dimensions of a slice are merged; the loop must touch the array by whole slices
alone. Arrays that come from outside the program stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from compiler.analysis.resident_arrays import state_fits
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.stacked_view import Dims, is_only_caller, is_stacked, longest_slice, restate
from compiler.rewrite import make

_LEAST_SHARE = 4  # of its size that an array must come down to
_LEAST_BYTES = 8 << 20  # and what that must save
_GOOD_PADDING = 2  # a merge that leaves so little need go no further
_GOOD_ORDER = 1.5  # an order of the dimensions that leaves so little is better than a merge
_LEAST_ROWS = 8  # of a matrix whose rows are slices: a tile


def compact_stacked_state(module: HloModule, context: PassContext) -> bool:
    """Merge trailing dimensions of the stacked state of all loops."""
    for computation in control_computations(module):
        changed = False
        for loop in [i for i in computation if i.opcode == "while"]:
            for index in _candidates(module, loop, context.chip.vmem_bytes):
                whole = loop.operands[0].operands[index].array
                dims = _compact(whole)
                assert dims is not None
                restate(loop, index, _Merged(whole, dims))
                context.counts["arrays"] += 1
                changed = True
            if changed:
                loop.body.sort()
        if changed:
            computation.sort()
    return bool(context.counts["arrays"])


def _compact(shape: ArrayShape) -> Dims | None:
    """Dimensions with less padding, the first kept; None where it does not pay."""
    if shape.rank == 2:
        return _rows_apart(shape)
    first, *rest = shape.dims if shape.rank > 2 else (1,)
    if not rest or 0 in rest:
        return None
    plain = shape.byte_count
    choices = [
        (first, math.prod(rest[:at]), math.prod(rest[at:])) for at in reversed(range(len(rest)))
    ]
    sizes = [byte_size(shape.with_layout(None).with_dims(dims)) for dims in choices]
    before, least = byte_size(shape.with_layout(None)), min(sizes)
    if before < _LEAST_SHARE * least or before - least < _LEAST_BYTES:
        return None
    good = [
        dims for dims, size in zip(choices, sizes, strict=True) if size <= _GOOD_PADDING * plain
    ]
    chosen = good[0] if good else choices[sizes.index(least)]
    is_merged = _without_ones(chosen[1:]) != _without_ones(rest)
    return None if is_merged and _ordered_bytes(shape) <= _GOOD_ORDER * plain else chosen


def _without_ones(dims: Sequence[int]) -> list[int]:
    return [n for n in dims if n != 1]


def _ordered_bytes(shape: ArrayShape) -> int:
    """Bytes of an array in the best order of all its dimensions but the first: the last two count."""
    bare, count = shape.with_layout(None), shape.element_count
    last = permutations(shape.dims[1:], 2)
    return min(byte_size(bare.with_dims((count // (a * b), a, b))) for a, b in last)


def _rows_apart(shape: ArrayShape) -> Dims | None:
    """Dimensions in which a matrix' rows lie one after another; in its own a tile holds several, and
    whoever reads or writes one moves all of them."""
    rows, columns = shape.dims
    apart = shape.with_layout(None).with_dims((rows, 1, columns))
    plain = shape.byte_count
    if rows < _LEAST_ROWS or plain < _LEAST_BYTES or byte_size(apart) > _GOOD_PADDING * plain:
        return None
    return apart.dims


def _candidates(module: HloModule, loop: HloInstruction, vmem_bytes: int) -> Iterator[int]:
    """Elements of a loop's state that can be merged and should be."""
    if loop.operands[0].opcode != "tuple" or loop.body.root_instruction.opcode != "tuple":
        return
    padded = [
        index
        for index, value in enumerate(loop.operands[0].operands)
        if isinstance(value.shape, ArrayShape) and not OPCODES[value.opcode].has(Trait.GIVEN)
        if _compact(value.array) is not None
    ]
    if not padded or not is_only_caller(module, loop):
        return
    if any(u.opcode != "get-tuple-element" for u in loop.users):
        return
    rows_move = not state_fits(loop, vmem_bytes // 2)  # else, with windows, it may lie in VMEM
    for index in padded:
        is_matrix = loop.operands[0].operands[index].array.rank == 2
        if is_stacked(loop, index) and (
            not is_matrix or (rows_move and longest_slice(loop, index) == 1)
        ):
            yield index


@dataclass(frozen=True)
class _Merged:
    """A view of a stack with its trailing dimensions merged."""

    whole: ArrayShape
    dims: Dims

    def inward(self, value: HloInstruction) -> HloInstruction:
        return make.reshape(value, self.sizes(value.array.dims))

    def outward(self, value: HloInstruction) -> HloInstruction:
        return make.reshape(value, (value.array.dims[0], *self.whole.dims[1:]))

    def sizes(self, sizes: Dims) -> Dims:
        return (sizes[0], *self.dims[1:])

    def starts(self, starts: Sequence[HloInstruction]) -> list[HloInstruction]:
        zero = make.constant(starts[0], starts[0].array.dtype, 0)
        return [starts[0], zero, zero]
