"""What a derivative rule of an opcode is: `DerivativeRule`, and the kinds that most opcodes are of.

A rule emits the operation itself and what its derivative needs. In reverse mode it returns a pullback,
which is called later with the cotangent of the result and returns a contribution for each operand; in
forward mode it takes tangents along. The cotangent of a complex number pairs with a tangent as
``Re(cotangent * tangent)``, without conjugation, as in JAX.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from compiler.autodiff.refusal import refused
from compiler.autodiff.values import (
    Contribution,
    Instr,
    Mask,
    Tangent,
    Value,
    array_of,
    both,
    has_derivative,
    is_any,
    or_zeros,
    tangent_sum,
)
from compiler.diagnostics import UnsupportedError
from compiler.hlo.expression import Expr
from compiler.hlo.ir import HloComputation
from compiler.rewrite.emitter import Emitter

Pullback = Callable[[Tangent], Sequence[Contribution]]
Resolved = Callable[[Tangent], list[Tangent]]
"""The pullback of a computation: each argument's contributions are summed."""


class Scope(Protocol):
    """Where instructions go, and the modes themselves, for rules of opcodes that run computations."""

    def emit(self, instr: Instr, operands: Sequence[Value]) -> Value:
        """A copy of an instruction with other operands."""

    def emitter(self, near: Instr) -> Emitter:
        """An emitter whose instructions remember that they come of `near`."""

    def at(self, e: Emitter) -> Scope:
        """The scope of an emitter's computation."""

    def within(self, near: Instr, name: str) -> tuple[Scope, Emitter]:
        """A scope in a new computation, and an emitter for it."""

    def vjp(
        self, computation: HloComputation, args: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Resolved]:
        """Copy a computation here; return its result and the pullback to its arguments."""

    def jvp(
        self, computation: HloComputation, args: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Copy a computation here, and compute the tangent of its result beside it."""

    def mask(self, computation: HloComputation, masks: Sequence[Mask]) -> Mask:
        """Which parts of a computation's result depend on the parts of its arguments that are set."""


class DerivativeRule(ABC):
    """The derivative of one opcode."""

    reason = ""
    """Why there is none, if there is none."""

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """Which parts of the result change with the operands' parts that are set."""
        return both(any(is_any(m) for m in masks), has_derivative(instr.shape))

    @abstractmethod
    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """Emit the operation; return its result and the pullback."""

    @abstractmethod
    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Emit the operation and its derivative."""


@dataclass
class DerivativeStep:
    """One operation on arrays that was emitted: as it was written, and what it takes and gives here."""

    e: Emitter
    instr: Instr
    operands: list[Instr]
    result: Value
    wanted: list[bool]
    """Which operands' cotangents anybody wants."""

    @property
    def y(self) -> Instr:
        """The result, which is one array."""
        return array_of(self.result)

    def again(self, operands: Sequence[Instr]) -> Instr:
        """The same operation on other operands."""
        attrs = {k: v for k, v in self.instr.attrs.items() if k != "metadata"}
        return self.e.instruction(self.instr.opcode, operands, attrs, self.instr.shape)


class LocalRule(DerivativeRule):
    """An operation on arrays whose derivative needs no more than its operands and its result."""

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """Emit the operation; the pullback reads operands and result where they are."""
        value = scope.emit(instr, operands)
        wanted = [is_any(m) for m in masks]
        step = DerivativeStep(
            scope.emitter(instr), instr, [array_of(o) for o in operands], value, wanted
        )
        return value, lambda cotangent: self.cotangents(step, cotangent)

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Emit the operation, then its derivative."""
        value = scope.emit(instr, operands)
        wanted = [t is not None for t in tangents]
        step = DerivativeStep(
            scope.emitter(instr), instr, [array_of(o) for o in operands], value, wanted
        )
        return value, self.tangent(step, [None if t is None else array_of(t) for t in tangents])

    @abstractmethod
    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The result's tangent of the operands'."""

    @abstractmethod
    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """The operands' cotangents of the result's."""


Partial = Callable[..., Expr]
"""Takes the operands, the result and a derivative, as expressions; returns what the derivative becomes. It
multiplies by a factor of its own, so that it serves for tangents and cotangents."""


class Elementwise(LocalRule):
    """Each element is a holomorphic (or real) function of the operands' elements: its partial derivatives."""

    def __init__(self, *partials: Partial | None) -> None:
        self.partials = partials

    def _part(self, step: DerivativeStep, number: int, derivative: Instr) -> Instr | None:
        partial = self.partials[number]
        if partial is None:
            return None
        xs = [Expr(step.e, operand) for operand in step.operands]
        return partial(*xs, Expr(step.e, step.y), Expr(step.e, derivative)).instr

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The sum of what each operand's tangent makes."""
        parts = [None if t is None else self._part(step, i, t) for i, t in enumerate(tangents)]
        return tangent_sum(step.e, parts)

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """The cotangent times each partial derivative."""
        g = array_of(cotangent)
        return [self._part(step, i, g) if w else None for i, w in enumerate(step.wanted)]


Transpose = Callable[[DerivativeStep, Instr], Sequence[Contribution]]


class Linear(LocalRule):
    """Linear in the operands at `places` together (all of them for None): tangents go the same way."""

    def __init__(self, places: Sequence[int] | None, transpose: Transpose) -> None:
        self.places = places
        self.transpose = transpose

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The operation, of the tangents."""
        places = range(len(tangents)) if self.places is None else self.places
        if all(tangents[i] is None for i in places):
            return None
        operands = [
            or_zeros(step.e, tangents[i], operand.array) if i in places else operand
            for i, operand in enumerate(step.operands)
        ]
        return step.again(operands)

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """The transposed operation, of the cotangent."""
        return self.transpose(step, array_of(cotangent))


class Bilinear(LocalRule):
    """Linear in each of the first two operands."""

    def __init__(self, transpose: Transpose) -> None:
        self.transpose = transpose

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The product rule."""
        x, y, *rest = step.operands
        dx, dy = tangents[:2]
        parts = [
            None if dx is None else step.again([dx, y, *rest]),
            None if dy is None else step.again([x, dy, *rest]),
        ]
        return tangent_sum(step.e, parts)

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """Each operand's cotangent: a product of the cotangent and the other operand."""
        return self.transpose(step, array_of(cotangent))


class Constant(DerivativeRule):
    """The derivative is zero, wherever there is one."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """Nothing changes it by little."""
        return False

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The operation; no cotangent gets past it."""
        return scope.emit(instr, operands), lambda _: [None] * len(operands)

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """The operation; its tangent is zero."""
        return scope.emit(instr, operands), None


class Refused(DerivativeRule):
    """There is no derivative; differentiating what depends on the arguments raises `UnsupportedError`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def _error(self, instr: Instr) -> UnsupportedError:
        return refused(instr, f"{instr.opcode} has no derivative: {self.reason}")

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """Refused."""
        raise self._error(instr)

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Refused."""
        raise self._error(instr)
