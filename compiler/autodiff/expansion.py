"""Rules that lead to others: by what an operation expands to, by its attributes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.autodiff.rule import DerivativeRule, Pullback, Scope
from compiler.autodiff.values import (
    Contribution,
    Instr,
    Mask,
    Tangent,
    Value,
    array_of,
    is_any,
)
from compiler.hlo.cloning import clone

Expand = Callable[[Instr], Instr | None]
"""Builds beside an instruction what it is; None when it has no such form."""


class Expansion(DerivativeRule):
    """Differentiates what `expand` makes; the value stays that of the operation itself."""

    def __init__(self, expand: Expand) -> None:
        self.expand = expand

    def _expanded(self, scope: Scope, instr: Instr, operands: Sequence[Value]) -> Instr:
        """The root of a computation of the operands that has the operation's value."""
        _, e = scope.within(instr, f"{instr.opcode}_expansion")
        parameters = [e.parameter(array_of(operand).array) for operand in operands]
        copy = clone(instr, e.computation, parameters)
        found = self.expand(copy)
        assert found is not None, f"%{instr.name}: no expansion of {instr.opcode}"
        e.computation.root = found
        return found

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The operation; the other form is made when its derivative is wanted."""
        value = scope.emit(instr, operands)

        def pullback(cotangent: Tangent) -> Sequence[Contribution]:
            computation = self._expanded(scope, instr, operands).home
            return scope.vjp(computation, operands, masks)[1](cotangent)

        return value, pullback

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """The operation, and the tangent of its other form."""
        computation = self._expanded(scope, instr, operands).home
        return scope.emit(instr, operands), scope.jvp(computation, operands, tangents)[1]


class Chosen(DerivativeRule):
    """The rule that fits an instruction."""

    def __init__(self, choose: Callable[[Instr, Sequence[bool]], DerivativeRule]) -> None:
        self.choose = choose

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """As the chosen rule."""
        rule = self.choose(instr, [is_any(m) for m in masks])
        return rule.vjp(scope, instr, operands, masks)

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """As the chosen rule."""
        rule = self.choose(instr, [t is not None for t in tangents])
        return rule.jvp(scope, instr, operands, tangents)
