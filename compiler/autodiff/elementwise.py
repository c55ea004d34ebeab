"""Derivatives of elementwise opcodes.

Where a function has a kink the value is JAX's: of `maximum` and `minimum` equal operands take half
each, `abs` has 1 at 0, `clamp` passes what lies strictly inside of its bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.autodiff.rule import (
    Constant,
    DerivativeRule,
    DerivativeStep,
    Elementwise,
    Linear,
    LocalRule,
    Scope,
)
from compiler.autodiff.values import Contribution, Instr, Mask, Tangent, array_of, tangent_sum
from compiler.hlo.dtypes import BF16, C64, F32, S32
from compiler.hlo.expression import Expr
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape_inference import takes

_STEPS = "its values are steps, flat between them"


def _power_by_base(x: Expr, n: Expr, y: Expr, g: Expr) -> Expr:
    """``n x^(n-1)``, and 0 for n = 0 whatever x is."""
    none = n.equals(0)
    less = (~none).where(n - 1, 1)
    return (~none).where(g * n * x.of("power", less), 0)


def _power_by_exponent(x: Expr, n: Expr, y: Expr, g: Expr) -> Expr:
    """``x^n log x``, where x = 0 counts as 1 in the logarithm."""
    zero = x.equals(0)
    return g * y * zero.where(1, x).of("log")


def _extreme(direction: str) -> DerivativeRule:
    """The larger (or smaller) operand takes all, equal ones half each."""

    def share(mine: Expr, other: Expr, g: Expr) -> Expr:
        part = mine.equals(other).where(mine.like(0.5), 0)
        return g * mine.compare(direction, other).where(1, part)

    return Elementwise(
        lambda x, y, _, g: share(x, y, g),
        lambda x, y, _, g: share(y, x, g),
    )


def _quotient_whole(x: Expr, y: Expr) -> Expr:
    """x / y without its fraction."""
    quotient = x / y
    return quotient.of("sign") * abs(quotient).of("floor")


class _Absolute(LocalRule):
    """``|x|``: the sign for real numbers; of complex ones the direction, as two real dimensions."""

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The tangent along the number."""
        if tangents[0] is None:
            return None
        x, t = Expr(step.e, step.operands[0]), Expr(step.e, tangents[0])
        return (t * _direction(x)).real().instr

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """The cotangent in the number's direction."""
        x, g = Expr(step.e, step.operands[0]), Expr(step.e, array_of(cotangent))
        return [(g.as_type(x.dtype) * _direction(x)).instr]


def _direction(x: Expr) -> Expr:
    """What times a change of x is the change of its absolute value (its real part)."""
    if x.dtype.is_complex:
        return x.of("sign").conj()
    return (x >= 0).where(x.like(1), -1)


class _ComplexSign(LocalRule):
    """``z / |z|`` of complex numbers turns with the part of the tangent across it; real signs are steps."""

    def mask(self, scope: Scope, instr: Instr, masks: Sequence[Mask]) -> Mask:
        """Only complex signs change by little."""
        return masks[0] if instr.array.dtype.is_complex else False

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """``i s Im(conj(s) t) / |z|`` for the sign s."""
        z, s = Expr(step.e, step.operands[0]), Expr(step.e, step.y)
        if tangents[0] is None or not z.dtype.is_complex:
            return None
        across = (s.conj() * Expr(step.e, tangents[0])).of("imag")
        return (s * _imaginary(_over_size(across, z))).instr

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """``-i conj(s) Re(g i s) / |z|``."""
        z, s = Expr(step.e, step.operands[0]), Expr(step.e, step.y)
        across = -(Expr(step.e, array_of(cotangent)) * s).of("imag")
        return [(-(s.conj() * _imaginary(_over_size(across, z)))).instr]


def _over_size(x: Expr, z: Expr) -> Expr:
    size = abs(z)
    zero = size.equals(0)
    return (~zero).where(x / zero.where(1, size), 0)


def _imaginary(x: Expr) -> Expr:
    """``i x`` of real numbers."""
    return x.like(0).of("complex", x)


def _convert(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """Back to the operand's type, of complex numbers the real part."""
    dtype = step.operands[0].array.dtype
    if not (dtype.is_float or dtype.is_complex):
        return [None]
    term = Expr(step.e, g)
    return [(term if dtype.is_complex else term.real()).as_type(dtype).instr]


def _real(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    return [step.e.as_type(g, step.operands[0].array.dtype)]


def _imag(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    if not step.operands[0].array.dtype.is_complex:
        return [None]
    term = Expr(step.e, g)
    return [term.like(0).of("complex", -term).instr]


def _complex(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    term = Expr(step.e, g)
    return [term.of("real").instr, (-term.of("imag")).instr]


def _select(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    condition, zero = step.operands[0], step.e.like(g, 0)
    return [None, step.e.select(condition, g, zero), step.e.select(condition, zero, g)]


class _Clamp(LocalRule):
    """``clamp(low, x, high)``: whoever gives the value; bounds may be scalars."""

    def _flags(self, step: DerivativeStep) -> tuple[Expr, Expr, Expr]:
        dims = step.y.array.dims
        low, x, high = (Expr(step.e, operand).spread(dims) for operand in step.operands)
        inside = (x > low) & (x < high)
        return low > x, inside, high < x

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """The tangent of whoever gives the value."""
        dims = step.y.array.dims
        parts = [
            None if t is None else flag.where(Expr(step.e, t).spread(dims), 0).instr
            for t, flag in zip(tangents, self._flags(step), strict=True)
        ]
        return tangent_sum(step.e, parts)

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """The cotangent for whoever gave the value."""
        g = Expr(step.e, array_of(cotangent))
        found: list[Contribution] = []
        for operand, flag in zip(step.operands, self._flags(step), strict=True):
            part = flag.where(g, 0)
            found.append((part if operand.array.rank else part.summed()).instr)
        return found


class _ReducePrecision(LocalRule):
    """Derivatives are rounded as the values are."""

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """Rounded."""
        return None if tangents[0] is None else step.again([tangents[0]])

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """Rounded."""
        return [step.again([array_of(cotangent)])]


_OF_INTEGERS = [
    name
    for name in sorted(with_trait(Trait.ELEMENTWISE))
    if takes(name, S32) and not any(takes(name, dtype) for dtype in (BF16, F32, C64))
]
_NO_LITTLE = Constant("it is about bits, which do not change by little")

ELEMENTWISE_RULES: dict[str, DerivativeRule] = {
    **dict.fromkeys(_OF_INTEGERS, _NO_LITTLE),
    "abs": _Absolute(),
    "acos": Elementwise(lambda x, y, g: -(g * (1 - x * x).of("rsqrt"))),
    "acosh": Elementwise(lambda x, y, g: g * (x - 1).of("rsqrt") * (x + 1).of("rsqrt")),
    "add": Elementwise(lambda x, y, _, g: g, lambda x, y, _, g: g),
    "asin": Elementwise(lambda x, y, g: g * (1 - x * x).of("rsqrt")),
    "asinh": Elementwise(lambda x, y, g: g * (x * x + 1).of("rsqrt")),
    "atan": Elementwise(lambda x, y, g: g / (x * x + 1)),
    "atan2": Elementwise(
        lambda y, x, _, g: g * (x / (x * x + y * y)),
        lambda y, x, _, g: g * (-y / (x * x + y * y)),
    ),
    "atanh": Elementwise(lambda x, y, g: g / (1 - x) / (1 + x)),
    "cbrt": Elementwise(lambda x, y, g: g * (y / x) / 3),
    "ceil": Constant(_STEPS),
    "clamp": _Clamp(),
    "compare": Constant(_STEPS),
    "complex": Linear(None, _complex),
    "convert": Linear(None, _convert),
    "cosh": Elementwise(lambda x, y, g: g * x.of("sinh")),
    "cosine": Elementwise(lambda x, y, g: -(g * x.of("sine"))),
    "divide": Elementwise(
        lambda x, y, _, g: g / y,
        lambda x, y, z, g: -(g * z) / y,
    ),
    "erf": Elementwise(lambda x, y, g: g * (2 / math.sqrt(math.pi)) * (-(x * x)).of("exponential")),
    "exponential": Elementwise(lambda x, y, g: g * y),
    "exponential-minus-one": Elementwise(lambda x, y, g: g * (y + 1)),
    "floor": Constant(_STEPS),
    "imag": Linear(None, _imag),
    "is-finite": Constant(_STEPS),
    "log": Elementwise(lambda x, y, g: g / x),
    "log-plus-one": Elementwise(lambda x, y, g: g / (x + 1)),
    "logistic": Elementwise(lambda x, y, g: g * y * (1 - y)),
    "maximum": _extreme("GT"),
    "minimum": _extreme("LT"),
    "multiply": Elementwise(lambda x, y, _, g: g * y, lambda x, y, _, g: x * g),
    "multiply-add": Elementwise(
        lambda x, y, z, _, g: g * y, lambda x, y, z, _, g: x * g, lambda x, y, z, _, g: g
    ),
    "negate": Elementwise(lambda x, y, g: -g),
    "power": Elementwise(_power_by_base, _power_by_exponent),
    "real": Linear(None, _real),
    "reduce-precision": _ReducePrecision(),
    "remainder": Elementwise(
        lambda x, y, _, g: g,
        lambda x, y, _, g: -(g * _quotient_whole(x, y)),
    ),
    "round-nearest-afz": Constant(_STEPS),
    "round-nearest-even": Constant(_STEPS),
    "rsqrt": Elementwise(lambda x, y, g: g * -0.5 * (y / x)),
    "select": Linear((1, 2), _select),
    "sign": _ComplexSign(),
    "sine": Elementwise(lambda x, y, g: g * x.of("cosine")),
    "sinh": Elementwise(lambda x, y, g: g * x.of("cosh")),
    "sqrt": Elementwise(lambda x, y, g: g * (0.5 / y)),
    "stochastic-convert": Linear((0,), lambda step, g: [*_convert(step, g), None]),
    "subtract": Elementwise(lambda x, y, _, g: g, lambda x, y, _, g: -g),
    "tan": Elementwise(lambda x, y, g: g * (y * y + 1)),
    "tanh": Elementwise(lambda x, y, g: g * (1 - y) * (1 + y)),
}
