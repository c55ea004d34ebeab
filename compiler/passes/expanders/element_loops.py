"""`map` and `reduce` whose computation is more than arithmetic of scalars: a loop over the elements.

Computations that are applied to elements mostly become operations on whole arrays (`Emitter.apply`).
One with a loop or an array of its own in it does not: it is called for one element after another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import leaves
from compiler.passes.expanders.scan_expander import called, slice_at, with_slice
from compiler.rewrite.emitter import Emitter, cone, result_of

Instr = HloInstruction
_CALLS = frozenset({"call", "map", "conditional"})
_STRUCTURE = frozenset({"parameter", "constant", "tuple", "get-tuple-element", "bitcast-convert"})


def map_by_elements(instr: Instr) -> Instr | None:
    """A loop for a `map` that cannot be done on whole arrays; None for the others."""
    if not instr.operands or is_of_scalars(instr.to_apply):
        return None
    e = Emitter.at(instr)
    count = instr.array.element_count
    lines = [e.reshape(operand, (count,)) for operand in instr.operands]
    made = e.full(instr.array.dtype, (count,), 0)

    def step(b: Emitter, i: Instr, state: list[Instr]) -> list[Instr]:
        *given, done = state
        (result,) = called(b, instr.to_apply, [slice_at(b, line, 0, i) for line in given])
        return [*given, with_slice(b, done, result, 0, i)]

    if count:
        made = e.loop(count, [*lines, made], step)[-1]
    return e.reshape(made, instr.array.dims)


def reduce_by_elements(instr: Instr) -> Instr | None:
    """The same for a `reduce`, whose results take in one element after another."""
    if is_of_scalars(instr.to_apply):
        return None
    e = Emitter.at(instr)
    half = len(instr.operands) // 2
    rank, over = instr.operands[0].array.rank, instr.dimensions
    order = tuple([d for d in range(rank) if d not in over] + sorted(over))
    lines = [_line(e, operand, order) for operand in instr.operands[:half]]
    shapes = leaves(instr.shape)
    kept = shapes[0].element_count
    steps = math.prod(instr.operands[0].array.dims[d] for d in over)
    sums = [e.broadcast(start, (kept,)) for start in instr.operands[half:]]

    def step(b: Emitter, i: Instr, state: list[Instr]) -> list[Instr]:
        given, held = state[:half], state[half:]
        at = b.divide(i, b.constant(S32, steps))
        before = [slice_at(b, value, 0, at) for value in held]
        results = called(b, instr.to_apply, [*before, *(slice_at(b, g, 0, i) for g in given)])
        after = [with_slice(b, v, r, 0, at) for v, r in zip(held, results, strict=True)]
        return [*given, *after]

    if kept * steps:
        sums = e.loop(kept * steps, [*lines, *sums], step)[half:]
    pairs = zip(sums, shapes, strict=True)
    return result_of(e, instr, [e.reshape(value, shape.dims) for value, shape in pairs])


def _line(e: Emitter, operand: Instr, order: Sequence[int]) -> Instr:
    """The elements of an array in a row, dimensions in this order."""
    turned = e.transpose(operand, tuple(order)) if operand.array.rank > 1 else operand
    return e.reshape(turned, (operand.array.element_count,))


def is_of_scalars(computation: HloComputation) -> bool:
    """Whether `Emitter.apply` can do it on whole arrays, what it calls and chooses from included."""
    return all(map(_is_of_scalars, cone(computation.root_instruction)))


def _is_of_scalars(instr: Instr) -> bool:
    if instr.opcode in _CALLS:
        return all(map(is_of_scalars, instr.called_computations()))
    op = OPCODES[instr.opcode]
    is_known = instr.opcode in _STRUCTURE or op.has(Trait.ELEMENTWISE) or op.has(Trait.REARRANGES)
    return is_known and not any(leaf.dims for leaf in leaves(instr.shape))
