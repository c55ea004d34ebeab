"""Calls that are differentiated by a rule of their own: checkpoints, and rules that users write.

While a program is traced such a call carries its rule as an attribute (`rule_names.DERIVATIVE`); the rule
names computations, so it is copied with the call into loops, branches and other derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.autodiff.loops import copied
from compiler.autodiff.refusal import refused
from compiler.autodiff.rule import DerivativeRule, Pullback, Scope
from compiler.autodiff.values import (
    Contribution,
    Instr,
    Mask,
    Tangent,
    Value,
    array_of,
    arrays_of,
    has_derivative,
    is_any,
    or_zeros,
    tangents_of,
)
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import leaves


class Checkpoint(DerivativeRule):
    """Keeps the arguments alone: what the pullback reads of inside is computed again when it runs."""

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """That of the callee."""
        return scope.mask(instr.to_apply, masks)

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The call; behind a barrier the callee again, which nothing can merge with the first time."""

        def pullback(cotangent: Tangent) -> Sequence[Contribution]:
            e = scope.emitter(instr)
            given = [array_of(g) for g in tangents_of(cotangent, instr.shape) if g is not None]
            arrays = [array_of(o) for o in operands]
            whole = e.tuple([*arrays, *given])
            held = e.instruction("opt-barrier", (whole,), None, whole.shape)
            again = [e.get_tuple_element(held, k) for k in range(len(arrays))]
            return scope.vjp(instr.to_apply, again, masks)[1](cotangent)

        return scope.emit(instr, operands), pullback

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """The callee, inlined: forward mode keeps nothing."""
        return scope.jvp(instr.to_apply, operands, tangents)


@dataclass(frozen=True)
class Bound:
    """A computation of some values of its own and of some operands of a call, by their numbers."""

    computation: HloComputation
    own: tuple[Instr, ...]
    captured: tuple[tuple[Instr, int], ...]

    def arguments(self, own: Sequence[Value], operands: Sequence[Value]) -> list[Value]:
        """A value for each parameter."""
        found = dict(zip(self.own, own, strict=True))
        if self.captured and len(operands) <= max(number for _, number in self.captured):
            raise CompileError(
                f"%{self.computation.name}: a derivative rule that calls its own function uses an "
                "array from around it: pass it as an argument"
            )
        found |= {parameter: operands[number] for parameter, number in self.captured}
        return [found[p] for p in self.computation.parameters]


class _Custom(DerivativeRule):
    """A rule that a user wrote for a function of the first `count` operands."""

    def __init__(self, count: int) -> None:
        self.count = count

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """Any operand may change all."""
        return has_derivative(instr.shape) if any(is_any(m) for m in masks) else False

    def _expect_constants(self, instr: Instr, flags: Sequence[bool]) -> None:
        if any(flags[self.count :]):
            raise refused(
                instr,
                "a function with a derivative rule of its own uses an array from around it that is "
                "differentiated: pass it as an argument",
            )


class CustomVjp(_Custom):
    """`forward` returns results, then residuals; `backward` takes residuals, then cotangents.

    They are given once they are traced: calls inside of them may carry this rule already.
    """

    forward: Bound
    backward: Bound

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The user's forward function, and later the backward one."""
        self._expect_constants(instr, [is_any(m) for m in masks])
        given = self.forward.arguments(operands[: self.count], operands)
        found = arrays_of(copied(scope, self.forward.computation, given))
        shapes = leaves(instr.shape)
        results, residuals = found[: len(shapes)], found[len(shapes) :]

        def pullback(cotangent: Tangent) -> Sequence[Contribution]:
            e = scope.emitter(instr)
            pairs = zip(tangents_of(cotangent, instr.shape), shapes, strict=True)
            seeds = [or_zeros(e, g, shape) for g, shape in pairs]
            given = self.backward.arguments([*residuals, *seeds], operands)
            made = arrays_of(copied(scope, self.backward.computation, given))
            rest: list[Contribution] = [None] * (len(operands) - self.count)
            return [*made, *rest]

        return tuple(results), pullback

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Refused: the user gave no rule for it."""
        raise refused(
            instr,
            "forward mode of a function with custom_vjp; give it custom_jvp, which serves both modes",
        )


class CustomJvp(_Custom):
    """`rule` takes arguments, then their tangents, and returns results, then theirs."""

    rule: Bound

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """The user's rule."""
        self._expect_constants(instr, [t is not None for t in tangents])
        e, own = scope.emitter(instr), operands[: self.count]
        moving = [
            or_zeros(e, None if t is None else array_of(t), array_of(x).array)
            for x, t in zip(own, tangents, strict=False)
        ]
        given = self.rule.arguments([*own, *moving], operands)
        found = arrays_of(copied(scope, self.rule.computation, given))
        half = len(leaves(instr.shape))
        moved = [t if has_derivative(t.shape) else None for t in found[half:]]
        return tuple(found[:half]), tuple(moved)

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The transpose of the user's rule, which is linear in the tangents."""
        self._expect_constants(instr, [is_any(m) for m in masks])
        e, own = scope.emitter(instr), operands[: self.count]
        zeros = [e.like(array_of(x), 0) for x in own]
        given = self.rule.arguments([*own, *zeros], operands)
        moving = set(self.rule.own[self.count :])
        parameters = self.rule.computation.parameters
        flags = [has_derivative(p.shape) if p in moving else False for p in parameters]
        found, pull = scope.vjp(self.rule.computation, given, flags)
        results = arrays_of(found)[: len(leaves(instr.shape))]

        def pullback(cotangent: Tangent) -> Sequence[Contribution]:
            seeds = tangents_of(cotangent, instr.shape)
            back = dict(zip(parameters, pull((*(None for _ in results), *seeds)), strict=True))
            rest: list[Contribution] = [None] * (len(operands) - self.count)
            return [*(back[p] for p in self.rule.own[self.count :]), *rest]

        return tuple(results), pullback
