"""Derivatives of tuples, calls and control flow."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.rule import Constant, DerivativeRule, Linear, Pullback, Refused, Scope
from compiler.autodiff.rule_names import DERIVATIVE
from compiler.autodiff.values import Contribution, Instr, Mask, Tangent, Value
from compiler.hlo.ir import HloComputation


class _Tuple(DerivativeRule):
    """Elements keep their derivatives."""

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """A flag for each element."""
        return tuple(masks)

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """Nothing is emitted."""
        return tuple(operands), lambda g: g if isinstance(g, tuple) else [None] * len(operands)

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Nothing is emitted."""
        return tuple(operands), tuple(tangents)


class _Element(DerivativeRule):
    """One element of a tuple."""

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """The element's flag."""
        (mask,) = masks
        return mask[instr.index] if isinstance(mask, tuple) else mask

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """Nothing is emitted."""
        (whole,) = operands
        assert isinstance(whole, tuple)
        count, index = len(whole), instr.index
        return whole[index], lambda g: [tuple(g if k == index else None for k in range(count))]

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """Nothing is emitted."""
        (whole,), (tangent,) = operands, tangents
        assert isinstance(whole, tuple)
        return whole[instr.index], tangent[instr.index] if isinstance(tangent, tuple) else None


class _Call(DerivativeRule):
    """What is called stands in the place of the call, unless the call carries a rule."""

    def __init__(self, attribute: str) -> None:
        self.attribute = attribute

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """That of the callee."""
        own = _own_rule(instr)
        return own.mask(scope, instr, masks) if own else scope.mask(self._callee(instr), masks)

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The callee, inlined."""
        own = _own_rule(instr)
        if own:
            return own.vjp(scope, instr, operands, masks)
        return scope.vjp(self._callee(instr), operands, masks)

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """The callee, inlined."""
        own = _own_rule(instr)
        if own:
            return own.jvp(scope, instr, operands, tangents)
        return scope.jvp(self._callee(instr), operands, tangents)

    def _callee(self, instr: Instr) -> HloComputation:
        callee = instr.attrs[self.attribute]
        assert isinstance(callee, HloComputation)
        return callee


def _own_rule(instr: Instr) -> DerivativeRule | None:
    found = instr.attrs.get(DERIVATIVE)
    return found if isinstance(found, DerivativeRule) else None


class _Forward(DerivativeRule):
    """Returns its first operand, or all of them, in an order that others keep."""

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """That of the first operand."""
        return masks[0]

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The operation; the cotangent goes back as it is."""
        rest: list[Contribution] = [None] * (len(operands) - 1)
        return scope.emit(instr, operands), lambda g: [g, *rest]

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """The operation; the tangent is the operand's."""
        return scope.emit(instr, operands), tangents[0]


class _CustomCall(Refused):
    """A note of a sharding is linear, and its cotangent lies as the value does; all else is unknown."""

    _placed = Linear((0,), lambda step, g: [step.again([g])])

    def vjp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], masks: Sequence[Mask]
    ) -> tuple[Value, Pullback]:
        """The note, of the cotangent too."""
        if instr.attrs.get("custom_call_target") == "Sharding":
            return self._placed.vjp(scope, instr, operands, masks)
        return super().vjp(scope, instr, operands, masks)

    def jvp(
        self, scope: Scope, instr: Instr, operands: Sequence[Value], tangents: Sequence[Tangent]
    ) -> tuple[Value, Tangent]:
        """The note, of the tangent too."""
        if instr.attrs.get("custom_call_target") == "Sharding":
            return self._placed.jvp(scope, instr, operands, tangents)
        return super().jvp(scope, instr, operands, tangents)


_HOST = "it exchanges values with the host"
_ASYNC = "it is half of an operation that compilers split; differentiate the whole one"

CONTROL_RULES: dict[str, DerivativeRule] = {
    "add-dependency": _Forward(),
    "after-all": Constant("it is a token"),
    "async-done": Refused(_ASYNC),
    "async-start": Refused(_ASYNC),
    "async-update": Refused(_ASYNC),
    "call": _Call("to_apply"),
    "copy-done": Refused(_ASYNC),
    "copy-start": Refused(_ASYNC),
    "custom-call": _CustomCall("what it calls is not known here; give it a rule with custom_vjp"),
    "domain": _Forward(),
    "fusion": _Call("calls"),
    "get-tuple-element": _Element(),
    "infeed": Constant("it comes from the host"),
    "opt-barrier": _Forward(),
    "outfeed": Refused(_HOST),
    "parameter": Constant("it is given"),
    "recv": Refused(_HOST),
    "recv-done": Refused(_HOST),
    "send": Refused(_HOST),
    "send-done": Refused(_HOST),
    "tuple": _Tuple(),
}
