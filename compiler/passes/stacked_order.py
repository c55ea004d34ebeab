"""Stacked order: a loop carries a stack in the order of dimensions that it has outside.

    w = f32[4096,32,8,128] parameter(0)             state[k] = w
    t = f32[32,4096,8,128] transpose(w)      ->     slice = f32[4096,1,8,128] dynamic-slice(state[k])
    state[k] = t, one slice a trip

Frontends move the dimension that a scan goes over to the front. Done with the whole stack that is a
second copy of all weights; a slice has one element of that dimension, and turns without moving
anything. What a scan stacks, and is moved back afterwards, likewise.

The last dimension stays where it is. So does the one before, as its tiles would hold neighbours of
several slices; unless slices are only read: then one row of each tile is fetched, alone. What VMEM
may hold for all trips is turned as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from compiler.analysis.loop_invariants import element_reads, is_invariant
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.stacked_view import (
    Dims,
    is_only_caller,
    is_stacked,
    restate,
)
from compiler.rewrite import make
from compiler.rewrite.pattern import splat_value

_MOST_IN_A_ROW = 2
"""Elements of neighbouring slices in a word: all come with one that is read. Turning the whole
stack moves three times its bytes."""


@dataclass(frozen=True)
class _Turned:
    """A view of a stack as it lies, of which the loop's is the transpose by `permutation`."""

    permutation: Dims

    def inward(self, value: HloInstruction) -> HloInstruction:
        return make.transpose(value, _inverse(self.permutation))

    def outward(self, value: HloInstruction) -> HloInstruction:
        return make.transpose(value, self.permutation)

    def sizes(self, sizes: Dims) -> Dims:
        return tuple(sizes[i] for i in _inverse(self.permutation))

    def starts(self, starts: Sequence[HloInstruction]) -> list[HloInstruction]:
        return [starts[i] for i in _inverse(self.permutation)]


def order_stacks(module: HloModule, context: PassContext) -> bool:
    """Let loops carry stacks as they lie outside, callers first."""
    for computation in reversed(control_computations(module)):
        for loop in [i for i in computation if i.opcode == "while"]:
            found = list(_candidates(module, loop, context.chip.vmem_bytes))
            for index, permutation in found:
                restate(loop, index, _Turned(permutation))
                context.counts["arrays"] += 1
            if found:
                loop.body.sort()
                computation.sort()
    return bool(context.counts["arrays"])


def _candidates(
    module: HloModule, loop: HloInstruction, vmem_bytes: int
) -> Iterator[tuple[int, Dims]]:
    """Elements of a loop's state that are turned outside, and how."""
    if loop.operands[0].opcode != "tuple" or loop.body.root_instruction.opcode != "tuple":
        return
    if any(u.opcode != "get-tuple-element" for u in loop.users):
        return
    turned = [
        (index, permutation)
        for index in range(len(loop.operands[0].operands))
        if (permutation := _permutation(loop, index, vmem_bytes))
    ]
    if turned and is_only_caller(module, loop):
        yield from ((i, p) for i, p in turned if is_stacked(loop, i))


def _permutation(loop: HloInstruction, index: int, vmem_bytes: int) -> Dims | None:
    """How the loop's array is turned against those outside, if more transposes go than come."""
    start = loop.operands[0].operands[index]
    before = start.dimensions if start.opcode == "transpose" else None
    results = [user for r in element_reads(loop, index) for user in r.users]
    afters = {u.dimensions if u.opcode == "transpose" else None for u in results}
    after = _inverse(afters.pop() or ()) if len(afters) == 1 else None
    if before is None:
        before = after if splat_value(start) is not None else None
    elif results and after != before:
        return None
    return before if before is not None and _turns_slices(loop, index, before, vmem_bytes) else None


def _turns_slices(loop: HloInstruction, index: int, permutation: Dims, vmem_bytes: int) -> bool:
    """Whether slices of the stack as it lies are as good as those of the loop's."""
    rank = len(permutation)
    if rank < 3 or permutation == tuple(range(rank)) or permutation[-1] != rank - 1:
        return False
    if permutation[-2] == rank - 2:
        return True
    whole = loop.operands[0].operands[index].array
    is_row = permutation[0] == rank - 2 and is_invariant(loop.body, index)
    return is_row and whole.dtype.packing <= _MOST_IN_A_ROW and byte_size(whole) > vmem_bytes // 2


def _inverse(permutation: Dims) -> Dims:
    return tuple(permutation.index(d) for d in range(len(permutation)))
