"""Shapes of elementwise opcodes: all operands have the same dimensions, and so has the result."""

from __future__ import annotations

from collections.abc import Callable

from compiler.hlo.dtypes import C64, C128, F32, F64, PRED, DType, real_type
from compiler.hlo.ops.declaration import Op, Trait, words
from compiler.hlo.ops.declaration import Trait as T
from compiler.hlo.ops.inference import Inference, dims_text, plain
from compiler.hlo.shape import ArrayShape, Shape

_COMPLEX_OF = {F32: C64, F64: C128}


def _operand(q: Inference) -> ArrayShape:
    """The operand, or the shape of both."""
    a = q.array(0)
    if len(q.shapes) == 2:
        b = q.array(1)
        q.same_dtype(a, b)
        if a.dims != b.dims:
            q.fail(f"operands are {dims_text(a)} and {dims_text(b)}, want the same dimensions")
    return a


def _of(words: str, accepts: Callable[[DType], bool]) -> Callable[[Inference], ArrayShape]:
    """The rule of opcodes whose one or two operands and result have one shape, of certain types."""

    def rule(q: Inference) -> ArrayShape:
        operand = _operand(q)
        if not accepts(operand.dtype):
            q.fail(f"operand has element type {operand.dtype}, want {words}")
        return operand

    return rule


_FLOAT = _of("a float type", lambda t: t.is_float)
_FLOAT_OR_COMPLEX = _of("a float or complex type", lambda t: t.is_float or t.is_complex)
_INTEGER = _of("an integer type", lambda t: t.is_integer)
_BITS = _of("an integer type or pred", lambda t: t.is_integer or t.kind == "pred")
_NUMBER = _of("a number type", lambda t: t.kind != "pred")
_REAL = _of("a real number type", lambda t: t.is_integer or t.is_float)


def _abs(q: Inference) -> Shape:
    operand = _NUMBER(q)
    return operand.with_dtype(real_type(operand.dtype))


def _reduce_precision(q: Inference) -> ArrayShape:
    for name, least in (("exponent_bits", 1), ("mantissa_bits", 0)):
        found = q.integer(name)
        q.require(found >= least, f"{name} is {found}, want {least} or more")
    return _FLOAT(q)


def _real_part(q: Inference) -> Shape:
    operand = q.array(0)
    wanted = operand.dtype.is_float or operand.dtype.is_complex
    q.require(wanted, f"operand has element type {operand.dtype}, want complex")
    return operand.with_dtype(real_type(operand.dtype))


def _is_finite(q: Inference) -> Shape:
    return _FLOAT(q).with_dtype(PRED)


def _multiply_add(q: Inference) -> Shape:
    a, b, c = q.arrays()
    q.require(a.dtype == F32, f"operand has element type {a.dtype}, want f32")
    for other in (b, c):
        q.same_dtype(a, other)
        q.require(other.dims == a.dims, "operands differ in dimensions")
    return a


def _convert(q: Inference) -> Shape:
    return q.array(0).with_dtype(q.declared_array().dtype)


def _compare(q: Inference) -> Shape:
    directions = ("EQ", "NE", "LT", "LE", "GT", "GE")
    direction = q.attrs.get("direction")
    q.require(direction in directions, f"direction={direction}, want one of {directions}")
    return _operand(q).with_dtype(PRED)


def _complex(q: Inference) -> Shape:
    operand = _operand(q)
    if operand.dtype not in _COMPLEX_OF:
        q.fail(f"operand has element type {operand.dtype}, want f32 or f64")
    return operand.with_dtype(_COMPLEX_OF[operand.dtype])


def _stochastic_convert(q: Inference) -> Shape:
    operand, random = q.array(0), q.array(1)
    q.require(operand.dims == random.dims, "operands differ in dimensions")
    q.require(random.dtype.kind == "unsigned", f"random bits are {random.dtype}, want unsigned")
    return operand.with_dtype(q.declared_array().dtype)


def _clamp(q: Inference) -> Shape:
    low, operand, high = q.arrays()
    for bound in (low, high):
        q.same_dtype(bound, operand)
        if bound.dims not in ((), operand.dims):
            q.fail(f"bound is {dims_text(bound)}, want a scalar or {dims_text(operand)}")
    return operand


def _select(q: Inference) -> Shape:
    condition, on_true = q.array(0), q.array(1)
    q.require(condition.dtype == PRED, f"operand 0 is {dims_text(condition)}, want pred")
    if not on_true.is_same_array(q.shapes[2]):
        q.fail(f"operands 1 and 2 are {dims_text(on_true)} and {dims_text(q.array(2))}")
    if condition.dims not in ((), on_true.dims):
        q.fail(f"operand 0 is {dims_text(condition)}, want a scalar or {dims_text(on_true)}")
    return plain(on_true.dtype, on_true.dims)


_AC = T.ELEMENTWISE | T.COMMUTATIVE | T.ASSOCIATIVE
_ACI = _AC | T.IDEMPOTENT
_EUP = T.ELEMENTWISE | T.TRANSCENDENTAL
_S = T.STABLEHLO


def _accurate(
    rule: Callable[[Inference], ArrayShape], names: str, dialect: Trait = _S
) -> tuple[Op, ...]:
    """Functions of one operand of which XLA lets a program state the accuracy."""
    traits = _EUP | dialect
    return tuple(
        Op(name, 1, rule, traits, unprinted=("result_accuracy",)) for name in names.split()
    )


OPS = (
    *_accurate(
        _FLOAT_OR_COMPLEX,
        "cbrt cosine exponential exponential-minus-one log log-plus-one logistic rsqrt sine sqrt tanh",
    ),
    *_accurate(_FLOAT_OR_COMPLEX, "acos acosh asin asinh atanh cosh sinh", T.CHLO),
    *_accurate(_FLOAT_OR_COMPLEX, "tan", _S | T.CHLO),
    *_accurate(_FLOAT, "erf", T.CHLO),
    Op("abs", 1, _abs, T.ELEMENTWISE | T.EXACT),
    Op("add", 2, _operand, _AC | _S),
    Op("and", 2, _BITS, _ACI | _S),
    Op("atan", 1, _FLOAT_OR_COMPLEX, _EUP | T.UNREAD | T.CHLO),
    Op("atan2", 2, _FLOAT_OR_COMPLEX, _EUP | _S),
    Op("ceil", 1, _FLOAT, T.ELEMENTWISE | _S),
    Op("clamp", 3, _clamp, T.ELEMENTWISE | T.EXACT),
    Op("compare", 2, _compare, T.ELEMENTWISE, words("direction type")),
    Op("complex", 2, _complex, T.ELEMENTWISE | _S),
    Op("convert", 1, _convert, T.ELEMENTWISE | T.ROUNDED),
    Op("count-leading-zeros", 1, _INTEGER, T.ELEMENTWISE | _S),
    Op("divide", 2, _NUMBER, T.ELEMENTWISE | _S),
    Op("floor", 1, _FLOAT, T.ELEMENTWISE | _S),
    Op("imag", 1, _real_part, T.ELEMENTWISE),
    Op("is-finite", 1, _is_finite, T.ELEMENTWISE | _S),
    Op("maximum", 2, _operand, _ACI | T.EXACT | _S),
    Op("minimum", 2, _operand, _ACI | T.EXACT | _S),
    Op("mulhi", 2, _INTEGER, T.ELEMENTWISE | T.COMMUTATIVE),
    Op("multiply", 2, _operand, _AC | _S),
    Op("multiply-add", 3, _multiply_add, T.ELEMENTWISE | T.UNREAD),
    Op("negate", 1, _NUMBER, T.ELEMENTWISE | _S),
    Op("not", 1, _BITS, T.ELEMENTWISE | _S),
    Op("or", 2, _BITS, _ACI | _S),
    Op("popcnt", 1, _INTEGER, T.ELEMENTWISE | _S),
    Op("power", 2, _NUMBER, _EUP | _S),
    Op("real", 1, _real_part, T.ELEMENTWISE),
    Op(
        "reduce-precision",
        1,
        _reduce_precision,
        T.ELEMENTWISE | T.ROUNDED,
        words("exponent_bits mantissa_bits"),
    ),
    Op("remainder", 2, _REAL, T.ELEMENTWISE | _S),
    Op("round-nearest-afz", 1, _FLOAT, T.ELEMENTWISE | _S),
    Op("round-nearest-even", 1, _FLOAT, T.ELEMENTWISE | _S),
    Op("select", 3, _select, T.ELEMENTWISE | T.EXACT),
    Op("shift-left", 2, _INTEGER, T.ELEMENTWISE | _S),
    Op("shift-right-arithmetic", 2, _INTEGER, T.ELEMENTWISE | _S),
    Op("shift-right-logical", 2, _INTEGER, T.ELEMENTWISE | _S),
    Op("sign", 1, _NUMBER, T.ELEMENTWISE | T.EXACT | _S),
    Op("stochastic-convert", 2, _stochastic_convert, T.ELEMENTWISE | T.ROUNDED),
    Op("subtract", 2, _NUMBER, T.ELEMENTWISE | _S),
    Op("xor", 2, _BITS, _AC | _S),
)
"""`multiply-add` is not XLA's but made by passes: ``a * b + c`` of f32 with one rounding."""
