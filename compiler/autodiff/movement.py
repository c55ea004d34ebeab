"""Derivatives of opcodes that make, copy and rearrange arrays: all linear, or without derivative."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.rule import Constant, DerivativeRule, DerivativeStep, Linear, Refused
from compiler.autodiff.values import Contribution, Instr, Onto
from compiler.rewrite.emitter import Emitter

_NO_OPERANDS = "it depends on nothing"
_DYNAMIC = "the sizes of its dimensions are not known when it is differentiated"


def _broadcast(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """Sum over what was repeated; HLO's mapping may permute, too."""
    mapping = step.instr.dimensions
    gone = [d for d in range(g.array.rank) if d not in mapping]
    total = step.e.total(g, *gone) if gone else g
    order = sorted(mapping)
    places = [order.index(d) for d in mapping]
    return [total if places == sorted(places) else step.e.transpose(total, places)]


def _concatenate(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    (dim,) = step.instr.dimensions
    parts: list[Contribution] = []
    start = 0
    for operand, wanted in zip(step.operands, step.wanted, strict=True):
        limit = start + operand.array.dims[dim]
        parts.append(step.e.part(g, dim, start, limit) if wanted else None)
        start = limit
    return parts


def _pad(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """What is left of the operand's places; the value has all the others."""
    operand = step.operands[0]
    kept = _cropped(step, g, operand.array.dims) if any(step.wanted) else None
    value = None
    if step.wanted[1]:
        assert kept is not None
        rank = range(operand.array.rank)
        everything = step.e.total(g, *rank) if rank else g
        value = step.e.binary("subtract", everything, step.e.total(kept, *rank) if rank else kept)
    return [kept, value]


def _cropped(step: DerivativeStep, g: Instr, dims: tuple[int, ...]) -> Instr:
    """The inverse of padding: where padding was negative there are zeros."""
    padding = step.instr.padding
    zero = step.e.constant(g.array.dtype, 0)
    # Undo low and high first, by padding the other way around; then drop the holes.
    if any(low or high for low, high, _ in padding):
        g = step.e.pad(g, zero, [(-low, -high, 0) for low, high, _ in padding])
    if any(interior for _, _, interior in padding):
        bounds = [
            (0, n, interior + 1) for n, (_, _, interior) in zip(g.array.dims, padding, strict=True)
        ]
        g = step.e.instruction("slice", (g,), {"slice": tuple(bounds)})
    assert g.array.dims == dims
    return g


def _slice(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """Zeros around, and between what a stride left out."""
    dims = step.operands[0].array.dims
    padding = []
    for n, made, (start, _, stride) in zip(dims, g.array.dims, step.instr.slice, strict=True):
        covered = max(0, (made - 1) * stride + 1)
        padding.append((start, n - start - covered, stride - 1))
    return [step.e.pad(g, step.e.constant(g.array.dtype, 0), padding)]


def _transpose(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    order = step.instr.dimensions
    return [step.e.transpose(g, [order.index(d) for d in range(len(order))])]


def _dynamic_slice(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """Added to what is in that place of the operand's cotangent."""
    starts = step.operands[1:]
    sizes = g.array.dims

    def add(e: Emitter, total: Instr) -> Instr:
        box = {"dynamic_slice_sizes": sizes}
        there = e.instruction("dynamic-slice", (total, *starts), dict(box))
        return e.instruction("dynamic-update-slice", (total, e.add(there, g), *starts))

    return [Onto(add), *(None for _ in starts)]


def _dynamic_update_slice(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    update, *starts = step.operands[1:]
    e = step.e
    zeros = e.like(update, 0)
    kept = e.instruction("dynamic-update-slice", (g, zeros, *starts)) if step.wanted[0] else None
    attrs: dict[str, object] = {"dynamic_slice_sizes": update.array.dims}
    part = e.instruction("dynamic-slice", (g, *starts), attrs) if step.wanted[1] else None
    return [kept, part, *(None for _ in starts)]


def _same(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    return [g]


MOVEMENT_RULES: dict[str, DerivativeRule] = {
    "bitcast": Linear((0,), lambda s, g: [s.e.shaped(g, s.operands[0].array.dims)]),
    "bitcast-convert": Constant("the bits of a number are steps of it"),
    "broadcast": Linear((0,), _broadcast),
    "concatenate": Linear(None, _concatenate),
    "constant": Constant(_NO_OPERANDS),
    "copy": Linear((0,), _same),
    "dynamic-reshape": Refused(_DYNAMIC),
    "dynamic-slice": Linear((0,), _dynamic_slice),
    "dynamic-update-slice": Linear((0, 1), _dynamic_update_slice),
    "get-dimension-size": Constant("it is a size"),
    "iota": Constant(_NO_OPERANDS),
    "pad": Linear(None, _pad),
    "reshape": Linear((0,), lambda s, g: [s.e.shaped(g, s.operands[0].array.dims)]),
    "reverse": Linear((0,), lambda s, g: [s.e.reverse(g, s.instr.dimensions)]),
    "set-dimension-size": Refused(_DYNAMIC),
    "shuffle": Refused("nobody says what it is"),
    "slice": Linear((0,), _slice),
    "transpose": Linear((0,), _transpose),
}
