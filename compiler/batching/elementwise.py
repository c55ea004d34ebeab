"""Batching of elementwise opcodes and of those that move data."""

from __future__ import annotations

from compiler.autodiff.values import Value
from compiler.batching.step import BatchedStep, Rule, local, plus_batch, shifted
from compiler.hlo.dtypes import PRED
from compiler.hlo.opcodes import Trait, with_trait


def _elementwise(step: BatchedStep) -> Value:
    """Operands get the batch dimension; scalars beside arrays (of clamp, of select) may stay."""
    rank = len(step.instr.array.dims)
    dims = (step.size, *step.instr.array.dims)
    operands = []
    for number, (x, flag) in enumerate(zip(step.xs, step.flags, strict=True)):
        of_one = step.instr.operands[number].array.rank
        if of_one == rank:
            operands.append(step.batched(number))
        else:
            operands.append(step.e.broadcast(x, dims, (0,)) if flag else x)
    return step.again(operands)


def _same_dims(step: BatchedStep) -> Value:
    return step.again(step.xs)


def _pad(step: BatchedStep) -> Value:
    """A batched padding value is put where padding is, which padded truths say."""
    e, padding = step.e, ((0, 0, 0), *step.instr.padding)
    x = step.batched(0)
    if not step.flags[1]:
        return step.again([x, step.xs[1]], {"padding": padding})
    zero = e.constant(x.array.dtype, 0)
    padded = e.pad(x, zero, padding)
    inside = e.pad(e.full(PRED, x.array.dims, 1), e.constant(PRED, 0), padding)
    return e.select(inside, padded, e.broadcast(step.xs[1], padded.array.dims, (0,)))


def _concatenate(step: BatchedStep) -> Value:
    return step.again(step.all_batched(), {"dimensions": shifted(step.instr.dimensions)})


def _slice(step: BatchedStep) -> Value:
    return step.again(step.xs, {"slice": ((0, step.size, 1), *step.instr.slice)})


ELEMENTWISE_RULES: dict[str, Rule] = {
    **{name: local(_elementwise) for name in with_trait(Trait.ELEMENTWISE)},
    "bitcast": local(_same_dims),
    "bitcast-convert": local(_same_dims),
    "broadcast": local(lambda s: s.again(s.xs, {"dimensions": plus_batch(s.instr.dimensions)})),
    "concatenate": local(_concatenate),
    "copy": local(_same_dims),
    "pad": local(_pad),
    "reshape": local(lambda s: s.again(s.xs)),
    "reverse": local(lambda s: s.again(s.xs, {"dimensions": shifted(s.instr.dimensions)})),
    "slice": local(_slice),
    "transpose": local(lambda s: s.again(s.xs, {"dimensions": plus_batch(s.instr.dimensions)})),
}
