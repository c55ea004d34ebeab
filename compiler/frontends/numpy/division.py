"""NumPy's divisions as HLO: true, floored and truncated quotients with their remainders."""

from __future__ import annotations

import numpy as np

from compiler.frontends.numpy.ops import (
    as_float,
    as_number,
    as_tracer,
    binary,
    compare,
    constant_like,
    needs_real,
    promoted,
    select,
    unary,
)
from compiler.frontends.numpy.promotion import is_floating
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer


def divide(trace: Trace, a: object, b: object) -> Tracer:
    """True division: integers give f32."""
    x, y = promoted(trace, (a, b))
    return binary("divide", as_float(x), as_float(y))


def reciprocal(trace: Trace, value: object) -> Tracer:
    """1 / x; of integers the truncated one, as in NumPy."""
    x = as_number(as_tracer(trace, value))
    return binary("divide", constant_like(x, 1), x)


def _operands(trace: Trace, name: str, a: object, b: object) -> tuple[Tracer, Tracer]:
    x, y = (needs_real(name, as_number(operand)) for operand in promoted(trace, (a, b)))
    return x, y


def _truncated_rest(x: Tracer, y: Tracer) -> Tracer:
    """The remainder with the sign of `x`; 0 for an integer over 0."""
    rest = binary("remainder", x, y)
    if is_floating(x.dtype):
        return rest
    zero = constant_like(y, 0)
    return select(compare(y, zero, "EQ"), zero, rest)


def _is_off(rest: Tracer, y: Tracer) -> Tracer:
    """Whether a truncated remainder has another sign than the divisor, so that flooring moves it."""
    zero = constant_like(y, 0)
    differs = binary("xor", compare(rest, zero, "LT"), compare(y, zero, "LT"))
    return binary("and", compare(rest, zero, "NE"), differs)


def _fmod(trace: Trace, a: object, b: object) -> Tracer:
    return _truncated_rest(*_operands(trace, "np.fmod", a, b))


def remainder(trace: Trace, a: object, b: object) -> Tracer:
    """Python's %: the sign of the divisor, zeros too."""
    x, y = _operands(trace, "np.remainder", a, b)
    rest = _truncated_rest(x, y)
    result = select(_is_off(rest, y), binary("add", rest, y), rest)
    if not is_floating(x.dtype):
        return result
    zero = constant_like(y, 0)
    signed_zero = select(compare(y, zero, "LT"), constant_like(y, -0.0), zero)
    return select(compare(rest, zero, "EQ"), signed_zero, result)


def floor_divide(trace: Trace, a: object, b: object) -> Tracer:
    """Python's //: rounded down, exact for integers, 0 for an integer over 0."""
    x, y = _operands(trace, "np.floor_divide", a, b)
    rest = _truncated_rest(x, y)
    if is_floating(x.dtype):
        return _floored_float(x, y, rest)
    zero, one = constant_like(y, 0), constant_like(y, 1)
    is_zero = compare(y, zero, "EQ")
    quotient = binary("divide", x, select(is_zero, one, y))
    floored = select(_is_off(rest, y), binary("subtract", quotient, one), quotient)
    return select(is_zero, zero, floored)


def _floored_float(x: Tracer, y: Tracer, rest: Tracer) -> Tracer:
    """What is left over is taken away before dividing, so the quotient is nearly whole already."""
    one = constant_like(x, 1)
    quotient = binary("divide", binary("subtract", x, rest), y)
    quotient = select(_is_off(rest, y), binary("subtract", quotient, one), quotient)
    rounded = unary("round-nearest-even", quotient)
    exact = binary("divide", x, y)
    zero = constant_like(x, 0)
    signed_zero = binary("multiply", exact, zero)
    result = select(compare(quotient, zero, "EQ"), signed_zero, rounded)
    return select(compare(y, zero, "EQ"), exact, result)


def _divmod(trace: Trace, a: object, b: object) -> tuple[Tracer, Tracer]:
    return floor_divide(trace, a, b), remainder(trace, a, b)


DIVISION_UFUNCS: dict[np.ufunc, Rule] = {
    np.divide: divide,
    np.divmod: _divmod,
    np.floor_divide: floor_divide,
    np.fmod: _fmod,
    np.reciprocal: reciprocal,
    np.remainder: remainder,
}
