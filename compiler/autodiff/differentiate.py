"""Reverse and forward mode: a computation copied into another one, with its derivative beside it.

    values, pull = Differentiator(computation).vjp(f, args, masks)     # pull(cotangents) -> cotangents
    values, tangents = Differentiator(computation).jvp(f, args, tangents)

Only what the result needs is copied, and only what depends on the masked arguments has derivatives, so
opcodes without any may stand elsewhere. The pullback may be called more than once.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.copying import Copying, needed
from compiler.autodiff.rule import Pullback, Resolved
from compiler.autodiff.table import DERIVATIVES
from compiler.autodiff.values import (
    Instr,
    Mask,
    Pending,
    Tangent,
    Value,
    accumulate,
    both,
    has_derivative,
    is_any,
    is_zero,
    resolve,
)
from compiler.hlo.ir import HloComputation
from compiler.rewrite.emitter import Emitter


class Differentiator(Copying):
    """The modes, with the computation that instructions go to (`compiler.autodiff.rule.Scope`)."""

    def at(self, e: Emitter) -> Differentiator:
        """The modes in an emitter's computation."""
        return Differentiator(e.computation)

    def within(self, near: Instr, name: str) -> tuple[Differentiator, Emitter]:
        """The modes in a new computation of the same module."""
        e = self.new_computation(near, name)
        return self.at(e), e

    def vjp(
        self, computation: HloComputation, args: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Resolved]:
        """Copy a computation; return its result and the pullback to its arguments."""
        values = dict(zip(computation.parameters, args, strict=True))
        flags = dict(zip(computation.parameters, masks, strict=True))
        tape: list[tuple[Instr, Pullback]] = []
        for instr in needed(computation):
            operands = [values[o] for o in instr.operands]
            wanted = [flags[o] for o in instr.operands]
            flags[instr] = DERIVATIVES[instr.opcode].mask(self, instr, wanted)
            if is_any(flags[instr]):
                values[instr], pull = DERIVATIVES[instr.opcode].vjp(self, instr, operands, wanted)
                tape.append((instr, pull))
            else:
                values[instr] = self.plain(instr, operands)
        root = computation.root_instruction

        def pullback(cotangent: Tangent) -> list[Tangent]:
            return self._run(computation, tape, flags, cotangent)

        return values[root], pullback

    def _run(
        self,
        computation: HloComputation,
        tape: Sequence[tuple[Instr, Pullback]],
        flags: dict[Instr, Mask],
        cotangent: Tangent,
    ) -> list[Tangent]:
        """Go through the tape backwards."""
        root = computation.root_instruction
        pending: dict[Instr, Pending] = {root: accumulate(None, cotangent)}
        for instr, pull in reversed(tape):
            found = resolve(self.emitter(instr), pending.pop(instr, None), instr.shape)
            if is_zero(found):
                continue
            for operand, part in zip(instr.operands, pull(found), strict=True):
                if is_any(flags[operand]):
                    pending[operand] = accumulate(pending.get(operand), part)
        return [
            resolve(self.emitter(p), pending.get(p), p.shape) if is_any(flags[p]) else None
            for p in computation.parameters
        ]

    def jvp(
        self, computation: HloComputation, args: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Copy a computation; return its result and that one's tangent."""
        values = dict(zip(computation.parameters, args, strict=True))
        found = dict(zip(computation.parameters, tangents, strict=True))
        for instr in needed(computation):
            operands = [values[o] for o in instr.operands]
            moved = [found[o] for o in instr.operands]
            rule = DERIVATIVES[instr.opcode]
            wanted = rule.mask(self, instr, [_mask_of(t) for t in moved])
            if is_any(wanted):
                values[instr], found[instr] = rule.jvp(self, instr, operands, moved)
                continue
            values[instr], found[instr] = self.plain(instr, operands), None
        return values[computation.root_instruction], found[computation.root_instruction]

    def mask(self, computation: HloComputation, masks: Sequence[Mask]) -> Mask:
        """Which parts of a computation's result change with the arguments' parts that are set."""
        flags = {
            p: both(m, has_derivative(p.shape))
            for p, m in zip(computation.parameters, masks, strict=True)
        }
        for instr in needed(computation):
            wanted = [flags[o] for o in instr.operands]
            flags[instr] = DERIVATIVES[instr.opcode].mask(self, instr, wanted)
        return flags[computation.root_instruction]


def _mask_of(tangent: Tangent) -> Mask:
    if isinstance(tangent, tuple):
        return tuple(_mask_of(t) for t in tangent)
    return tangent is not None
