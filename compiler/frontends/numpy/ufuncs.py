"""NumPy's ufuncs as HLO: one rule for each, with NumPy's values at the edges.

What NumPy raises an error or a warning for has the value that NumPy leaves: an integer divided by zero
is 0. Booleans in arithmetic that NumPy does in int8 are int8 here too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.division import DIVISION_UFUNCS
from compiler.frontends.numpy.errors import BadTypeError
from compiler.frontends.numpy.float_parts import FLOAT_PART_UFUNCS
from compiler.frontends.numpy.ops import (
    ON_BOOLEANS,
    as_float,
    as_number,
    as_tracer,
    binary,
    broadcast,
    compare,
    complex_of,
    constant_like,
    convert,
    convert_keeping_weak,
    is_complex,
    needs_real,
    parts,
    promoted,
    select,
    unary,
    wrap,
)
from compiler.frontends.numpy.promotion import is_floating
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer
from compiler.hlo.dtypes import from_numpy

_BOOL = np.dtype(np.bool_)


def _float_rule(opcode: str) -> Rule:
    """Functions whose result is floating point: integers convert to f32 first."""

    def rule(trace: Trace, value: object) -> Tracer:
        return unary(opcode, as_float(as_tracer(trace, value)))

    return rule


def _real_rule(name: str, function: Callable[[Tracer], Tracer]) -> Rule:
    """Functions of real numbers only, in floating point."""

    def rule(trace: Trace, value: object) -> Tracer:
        return function(as_float(needs_real(name, as_tracer(trace, value))))

    return rule


def _scaled(x: Tracer, factor: float) -> Tracer:
    """A real factor times real or complex numbers; each part is scaled by itself."""
    if is_complex(x):
        return complex_of(*(_scaled(part, factor) for part in parts(x)))
    return binary("multiply", x, constant_like(x, factor))


def _exponential_of_base(base: float) -> Rule:
    def rule(trace: Trace, value: object) -> Tracer:
        x = as_float(as_tracer(trace, value))
        return unary("exponential", _scaled(x, math.log(base)))

    return rule


def _logarithm_to_base(base: float) -> Rule:
    def rule(trace: Trace, value: object) -> Tracer:
        return _scaled(unary("log", as_float(as_tracer(trace, value))), 1 / math.log(base))

    return rule


def _rounding_rule(name: str, opcode: str) -> Rule:
    """Integers stay as they are."""

    def rule(trace: Trace, value: object) -> Tracer:
        x = needs_real(name, as_tracer(trace, value))
        return unary(opcode, x) if is_floating(x.dtype) else x

    return rule


def round_to_even(x: Tracer) -> Tracer:
    """The nearest whole number, of complex numbers in each part."""
    if is_complex(x):
        return complex_of(*(round_to_even(part) for part in parts(x)))
    return unary("round-nearest-even", x)


def _rint(trace: Trace, value: object) -> Tracer:
    return round_to_even(as_float(as_tracer(trace, value)))


def _truncate(trace: Trace, value: object) -> Tracer:
    x = needs_real("np.trunc", as_tracer(trace, value))
    if not is_floating(x.dtype):
        return x
    negative = compare(x, constant_like(x, 0), "LT")
    return select(negative, unary("ceil", x), unary("floor", x))


def _same_type_rule(name: str, opcode: str) -> Rule:
    def rule(trace: Trace, value: object) -> Tracer:
        x = as_tracer(trace, value)
        if x.dtype == _BOOL and opcode == "negate":
            raise BadTypeError(f"{name} of booleans; use np.logical_not")
        return unary(opcode, x)

    return rule


def _invert(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    if x.dtype != _BOOL and not from_numpy(x.dtype).is_integer:
        raise BadTypeError(f"np.invert of {x.dtype}; want integers or booleans")
    return unary("not", x)


def _sign(trace: Trace, value: object) -> Tracer:
    """-1, 0 or 1; +0 for either zero, as in NumPy."""
    x = as_tracer(trace, value)
    if x.dtype == _BOOL:
        raise BadTypeError("np.sign of booleans; convert them with .astype first")
    result = unary("sign", x)
    if not is_floating(x.dtype) and not is_complex(x):
        return result
    zero = constant_like(x, 0)
    return select(compare(x, zero, "EQ"), zero, result)


def binary_rule(opcode: str) -> Rule:
    """Arithmetic in the promoted type; of booleans, + is or, * is and, as in NumPy."""

    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = promoted(trace, (a, b))
        if x.dtype != _BOOL:
            return binary(opcode, x, y)
        if opcode not in ON_BOOLEANS:
            raise BadTypeError(f"np.{opcode} of booleans; convert them with .astype first")
        return binary(ON_BOOLEANS[opcode], x, y)

    return rule


def _compare_rule(direction: str) -> Rule:
    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = promoted(trace, (a, b))
        return compare(x, y, direction)

    return rule


def _logical_rule(opcode: str) -> Rule:
    def rule(trace: Trace, *values: object) -> Tracer:
        truths = broadcast([convert(as_tracer(trace, value), _BOOL) for value in values])
        if len(truths) == 1:
            return unary(opcode, truths[0])
        return binary(opcode, *truths)

    return rule


def _bitwise_rule(opcode: str) -> Rule:
    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = promoted(trace, (a, b))
        if is_floating(x.dtype):
            raise BadTypeError(f"bitwise {opcode} of {x.dtype}; want integers or booleans")
        return binary(opcode, x, y)

    return rule


def _shift_rule(opcode: str) -> Rule:
    """Shifts of integers; `opcode` "" is to the right, by the type's signedness."""

    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = (as_number(operand) for operand in promoted(trace, (a, b)))
        if is_floating(x.dtype):
            raise BadTypeError(f"a shift of {x.dtype}; want integers")
        kind = "logical" if from_numpy(x.dtype).kind == "unsigned" else "arithmetic"
        return binary(opcode or f"shift-right-{kind}", x, y)

    return rule


_MOST_MULTIPLICATIONS_EXPONENT = 4
"""Static powers up to this are products, as NumPy's square is."""


def _power(trace: Trace, a: object, b: object) -> Tracer:
    if isinstance(b, int) and not isinstance(b, bool):
        x = as_number(as_tracer(trace, a))
        if 0 < b <= _MOST_MULTIPLICATIONS_EXPONENT:
            return _small_power(x, b)
        if b < 0 and not is_floating(x.dtype):
            raise CompileError("np.power: integers to negative integer powers are not allowed")
    x, y = (as_number(operand) for operand in promoted(trace, (a, b)))
    return _raised(x, y)


def _float_power(trace: Trace, a: object, b: object) -> Tracer:
    """np.float_power: the power of floats."""
    x, y = promoted(trace, (a, b))
    return _raised(as_float(x), as_float(y))


def _raised(x: Tracer, y: Tracer) -> Tracer:
    """The power of two arrays of one type; a complex 0 to one with a positive real part is 0."""
    result = binary("power", x, y)
    if not is_complex(x):
        return result
    is_zero: Any = (x == 0) & (y.real > 0)  # XLA's is NaN of an exponent that is not real
    zero: Any = np.where(is_zero, 0, result)
    return wrap(result, zero.instr)


def _small_power(x: Tracer, exponent: int) -> Tracer:
    """A static power of 1 to 4 as multiplications."""
    square = x if exponent == 1 else binary("multiply", x, x)
    if exponent <= 2:
        return square
    return binary("multiply", square, x if exponent == 3 else square)


def _square(trace: Trace, value: object) -> Tracer:
    x = as_number(as_tracer(trace, value))
    return binary("multiply", x, x)


def _is_nan(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    return compare(x, x, "NE")


def _is_finite(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    if is_complex(x):
        return binary("and", *(unary("is-finite", part) for part in parts(x)))
    return unary("is-finite", x) if is_floating(x.dtype) else compare(x, x, "EQ")


def _is_infinite(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    if is_complex(x):
        return binary("or", *(_is_infinite(trace, part) for part in parts(x)))
    if not is_floating(x.dtype):
        return compare(x, x, "NE")
    size = unary("abs", x)
    return compare(size, constant_like(size, math.inf), "EQ")


def _absolute(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    return x if from_numpy(x.dtype).kind in ("pred", "unsigned") else unary("abs", x)


def conjugate(trace: Trace, value: object) -> Tracer:
    """np.conjugate: real numbers are their own."""
    x = as_number(as_tracer(trace, value))
    if not is_complex(x):
        return x
    real, imaginary = parts(x)
    return complex_of(real, unary("negate", imaginary))


def _identity(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    if x.dtype == _BOOL:
        raise BadTypeError("np.positive of booleans; convert them with .astype first")
    return x


def _ignoring_nan(opcode: str) -> Rule:
    """fmax and fmin: the other operand where one is NaN."""

    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = promoted(trace, (a, b))
        if x.dtype == _BOOL:
            return binary(ON_BOOLEANS[opcode], x, y)
        result = binary(opcode, x, y)
        result = select(compare(x, x, "NE"), y, result)
        return select(compare(y, y, "NE"), x, result)

    return rule


def _float_binary_rule(opcode: str, *, needs: str = "") -> Rule:
    """A function of two floats; `needs` names one that takes real numbers only."""

    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = promoted(trace, (a, b))
        if needs:
            needs_real(needs, x)
        return binary(opcode, as_float(x), as_float(y))

    return rule


def _hypot(trace: Trace, a: object, b: object) -> Tracer:
    """``large * sqrt(1 + (small / large)^2)``: no square overflows; an infinity wins over NaN."""
    x, y = (as_float(operand) for operand in promoted(trace, (a, b)))
    x, y = (unary("abs", needs_real("np.hypot", operand)) for operand in (x, y))
    if x.dtype.itemsize < 4:
        wide = _hypot(trace, convert(x, np.float32), convert(y, np.float32))
        return convert_keeping_weak(wide, x.dtype)
    large, small = binary("maximum", x, y), binary("minimum", x, y)
    zero, one = constant_like(large, 0), constant_like(large, 1)
    is_zero = compare(large, zero, "EQ")
    ratio = binary("divide", small, select(is_zero, one, large))
    length = unary("sqrt", binary("add", one, binary("multiply", ratio, ratio)))
    result = select(is_zero, large, binary("multiply", large, length))
    infinite = binary("or", _is_infinite(trace, x), _is_infinite(trace, y))
    return select(infinite, constant_like(large, math.inf), result)


def _logaddexp(base: float | None) -> Rule:
    """``max + log1p(exp(-|x - y|))``, which does not overflow; in `base`, or e for None."""
    scale = 1.0 if base is None else math.log(base)

    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = (as_float(operand) for operand in promoted(trace, (a, b)))
        needs_real("np.logaddexp", x)
        distance = unary("negate", unary("abs", binary("subtract", x, y)))
        tail = unary("log-plus-one", unary("exponential", _scaled(distance, scale)))
        result = binary("add", binary("maximum", x, y), _scaled(tail, 1 / scale))
        # equal infinities have no distance
        same = compare(x, y, "EQ")
        return select(same, binary("add", x, constant_like(x, math.log(2) / scale)), result)

    return rule


def _copysign(trace: Trace, a: object, b: object) -> Tracer:
    x, y = (as_float(operand) for operand in promoted(trace, (a, b)))
    needs_real("np.copysign", x)
    size, negative = unary("abs", x), _has_sign(y)
    return select(negative, unary("negate", size), size)


def _has_sign(x: Tracer) -> Tracer:
    """Whether the sign bit is set, of zeros and NaN too."""
    signed = from_numpy(np.dtype(f"i{x.dtype.itemsize}"))
    bits = wrap(x, x.owner.builder.bitcast_convert(x.instr, signed))
    return compare(bits, constant_like(bits, 0), "LT")


def _signbit(trace: Trace, value: object) -> Tracer:
    return _has_sign(as_float(needs_real("np.signbit", as_tracer(trace, value))))


def _heaviside(trace: Trace, a: object, b: object) -> Tracer:
    x, y = (as_float(operand) for operand in promoted(trace, (a, b)))
    needs_real("np.heaviside", x)
    zero, one = constant_like(x, 0), constant_like(x, 1)
    step = select(compare(x, zero, "LT"), zero, select(compare(x, zero, "EQ"), y, one))
    return select(compare(x, x, "NE"), x, step)


_UNARY_FLOAT: dict[np.ufunc, str] = {
    np.arccos: "acos",
    np.arccosh: "acosh",
    np.arcsin: "asin",
    np.arcsinh: "asinh",
    np.arctan: "atan",
    np.arctanh: "atanh",
    np.cos: "cosine",
    np.cosh: "cosh",
    np.exp: "exponential",
    np.expm1: "exponential-minus-one",
    np.log: "log",
    np.log1p: "log-plus-one",
    np.sin: "sine",
    np.sinh: "sinh",
    np.sqrt: "sqrt",
    np.tan: "tan",
    np.tanh: "tanh",
}
_COMPARISONS: dict[np.ufunc, str] = {
    np.equal: "EQ",
    np.not_equal: "NE",
    np.less: "LT",
    np.less_equal: "LE",
    np.greater: "GT",
    np.greater_equal: "GE",
}
_DEGREES = math.pi / 180

UFUNCS: dict[np.ufunc, Rule] = {
    **{ufunc: _float_rule(opcode) for ufunc, opcode in _UNARY_FLOAT.items()},
    **{ufunc: _compare_rule(direction) for ufunc, direction in _COMPARISONS.items()},
    **DIVISION_UFUNCS,
    **FLOAT_PART_UFUNCS,
    np.absolute: _absolute,
    np.add: binary_rule("add"),
    np.arctan2: _float_binary_rule("atan2", needs="np.arctan2"),
    np.bitwise_and: _bitwise_rule("and"),
    np.bitwise_or: _bitwise_rule("or"),
    np.bitwise_xor: _bitwise_rule("xor"),
    np.cbrt: _real_rule("np.cbrt", lambda x: unary("cbrt", x)),
    np.ceil: _rounding_rule("np.ceil", "ceil"),
    np.conjugate: conjugate,
    np.copysign: _copysign,
    np.deg2rad: _real_rule("np.deg2rad", lambda x: _scaled(x, _DEGREES)),
    np.degrees: _real_rule("np.degrees", lambda x: _scaled(x, 1 / _DEGREES)),
    np.exp2: _exponential_of_base(2),
    np.fabs: _real_rule("np.fabs", lambda x: unary("abs", x)),
    np.float_power: _float_power,
    np.floor: _rounding_rule("np.floor", "floor"),
    np.fmax: _ignoring_nan("maximum"),
    np.fmin: _ignoring_nan("minimum"),
    np.heaviside: _heaviside,
    np.hypot: _hypot,
    np.invert: _invert,
    np.isfinite: _is_finite,
    np.isinf: _is_infinite,
    np.isnan: _is_nan,
    np.left_shift: _shift_rule("shift-left"),
    np.log10: _logarithm_to_base(10),
    np.log2: _logarithm_to_base(2),
    np.logaddexp: _logaddexp(None),
    np.logaddexp2: _logaddexp(2),
    np.logical_and: _logical_rule("and"),
    np.logical_not: _logical_rule("not"),
    np.logical_or: _logical_rule("or"),
    np.logical_xor: _logical_rule("xor"),
    np.maximum: binary_rule("maximum"),
    np.minimum: binary_rule("minimum"),
    np.multiply: binary_rule("multiply"),
    np.negative: _same_type_rule("np.negative", "negate"),
    np.positive: _identity,
    np.power: _power,
    np.rad2deg: _real_rule("np.rad2deg", lambda x: _scaled(x, 1 / _DEGREES)),
    np.radians: _real_rule("np.radians", lambda x: _scaled(x, _DEGREES)),
    np.right_shift: _shift_rule(""),
    np.rint: _rint,
    np.sign: _sign,
    np.signbit: _signbit,
    np.square: _square,
    np.subtract: binary_rule("subtract"),
    np.trunc: _truncate,
}
