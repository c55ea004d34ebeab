"""NumPy's ufuncs about the parts of a float: exponent, mantissa, neighbours, whole and fraction.

They go through the bits of f32, which holds the values of every narrower type; a neighbour is looked
for among the values of the type itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.frontends.numpy.errors import BadTypeError
from compiler.frontends.numpy.ops import (
    as_float,
    as_tracer,
    binary,
    broadcast,
    compare,
    constant_like,
    convert,
    needs_real,
    promoted,
    select,
    unary,
    wrap,
)
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer
from compiler.hlo.dtypes import from_numpy

_LEAST_NORMAL = 2.0**-126
"""Of f32: what is smaller is scaled up first."""
_MANTISSA = 23
_WORDS = {1: np.int8, 2: np.int16, 4: np.int32}


def _bits(x: Tracer, dtype: npt.DTypeLike) -> Tracer:
    """The same bits as another type of as many."""
    return wrap(x, x.owner.builder.bitcast_convert(x.instr, from_numpy(np.dtype(dtype))))


def _f32(name: str, x: Tracer) -> Tracer:
    return convert(as_float(needs_real(name, x)), np.float32)


def _plus(x: Tracer, value: int) -> Tracer:
    return binary("add", x, constant_like(x, value))


def _ldexp(trace: Trace, a: object, exponent: object) -> Tracer:
    """Multiplied by powers of two step by step, so that a small result is rounded once."""
    x, count = as_float(as_tracer(trace, a)), as_tracer(trace, exponent)
    if count.dtype.kind not in "iub":
        raise BadTypeError(f"np.ldexp: an exponent of {count.dtype}; want integers")
    y, n = broadcast([_f32("np.ldexp", x), convert(count, np.int32)])
    for _ in range(2):
        y, n = _scaled_where(y, n, compare(n, constant_like(n, 127), "GT"), 127)
    n = binary("minimum", n, constant_like(n, 127))
    for _ in range(2):
        y, n = _scaled_where(y, n, compare(n, constant_like(n, -126), "LT"), _MANTISSA + 1 - 126)
    n = binary("maximum", n, constant_like(n, -126))
    power = binary("shift-left", _plus(n, 127), constant_like(n, _MANTISSA))
    return convert(binary("multiply", y, _bits(power, np.float32)), x.dtype)


def _scaled_where(y: Tracer, n: Tracer, where: Tracer, power: int) -> tuple[Tracer, Tracer]:
    """2^power moved from the exponent into the value."""
    scaled = binary("multiply", y, constant_like(y, 2.0**power))
    return select(where, scaled, y), select(where, _plus(n, -power), n)


def _frexp(trace: Trace, a: object) -> tuple[Tracer, Tracer]:
    """A mantissa of at least a half and below one; 0, infinities and NaN stay, with exponent 0."""
    given = as_float(needs_real("np.frexp", as_tracer(trace, a)))
    x = convert(given, np.float32)
    is_small = compare(unary("abs", x), constant_like(x, _LEAST_NORMAL), "LT")
    raised = 25
    y = select(is_small, binary("multiply", x, constant_like(x, 2.0**raised)), x)
    word = _bits(y, np.int32)
    field = binary("shift-right-logical", word, constant_like(word, _MANTISSA))
    field = binary("and", field, constant_like(field, 255))
    bias = select(is_small, constant_like(field, -126 - raised), constant_like(field, -126))
    rest = binary("and", word, constant_like(word, ~(255 << _MANTISSA)))
    half = binary("or", rest, constant_like(rest, 126 << _MANTISSA))
    is_zero = compare(x, constant_like(x, 0), "EQ")
    is_plain = binary("and", unary("is-finite", x), unary("not", is_zero))
    mantissa = select(is_plain, _bits(half, np.float32), x)
    exponent = select(is_plain, binary("add", field, bias), constant_like(field, 0))
    return convert(mantissa, given.dtype), exponent


def _modf(trace: Trace, a: object) -> tuple[Tracer, Tracer]:
    """Fraction and whole number, both of the sign of the value."""
    x = as_float(needs_real("np.modf", as_tracer(trace, a)))
    down = unary("floor", unary("abs", x))
    is_negative = compare(_signs(x), constant_like(x, 0), "LT")
    whole = select(is_negative, unary("negate", down), down)
    is_infinite = compare(unary("abs", x), constant_like(x, np.inf), "EQ")
    size = unary("abs", binary("subtract", x, whole))
    size = select(is_infinite, constant_like(x, 0), size)
    fraction = select(is_negative, unary("negate", size), size)
    is_number = compare(x, x, "EQ")
    return select(is_number, fraction, x), select(is_number, whole, x)


def _signs(x: Tracer) -> Tracer:
    """1 or -1 by the sign bit, also of zeros."""
    word_type = _WORDS[x.dtype.itemsize]
    word = _bits(x, word_type)
    is_negative = compare(word, constant_like(word, 0), "LT")
    return select(is_negative, constant_like(x, -1), constant_like(x, 1))


def _nextafter(trace: Trace, a: object, b: object) -> Tracer:
    x, y = promoted(
        trace, [as_float(needs_real("np.nextafter", as_tracer(trace, v))) for v in (a, b)]
    )
    zero = constant_like(x, 0)
    word = _bits(x, _WORDS[x.dtype.itemsize])
    one = constant_like(word, 1)
    grows = compare(x, y, "LT")
    is_away = compare(word, constant_like(word, 0), "GE")  # a larger word is further from zero
    is_up = binary("xor", grows, unary("not", is_away))
    moved = select(is_up, binary("add", word, one), binary("subtract", word, one))
    least = select(grows, one, _sign_bit(word, one))
    is_zero = compare(x, zero, "EQ")
    result = _bits(select(is_zero, least, moved), x.dtype)
    result = select(compare(x, y, "EQ"), y, result)
    are_numbers = binary("and", compare(x, x, "EQ"), compare(y, y, "EQ"))
    return select(are_numbers, result, binary("add", x, y))


def _sign_bit(word: Tracer, one: Tracer) -> Tracer:
    """The words of the least negative number."""
    lowest = constant_like(word, -(1 << (8 * word.dtype.itemsize - 1)))
    return binary("or", lowest, one)


def _spacing(trace: Trace, a: object) -> Tracer:
    """The distance to the neighbour further from zero."""
    x = as_float(needs_real("np.spacing", as_tracer(trace, a)))
    is_negative = compare(x, constant_like(x, 0), "LT")
    far = select(is_negative, constant_like(x, -np.inf), constant_like(x, np.inf))
    gap = binary("subtract", _nextafter(trace, x, far), x)
    return select(unary("is-finite", x), gap, constant_like(x, np.nan))


FLOAT_PART_UFUNCS: dict[np.ufunc, Rule] = {
    np.frexp: _frexp,
    np.ldexp: _ldexp,
    np.modf: _modf,
    np.nextafter: _nextafter,
    np.spacing: _spacing,
}
