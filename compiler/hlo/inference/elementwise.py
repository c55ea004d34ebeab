"""Shapes of elementwise opcodes: all operands have the same dimensions, and so has the result."""

from __future__ import annotations

from collections.abc import Callable

from compiler.hlo.dtypes import BY_NAME, C64, F32, F64, PRED, DType
from compiler.hlo.inference.context import Inference, Rule, dims_text, plain
from compiler.hlo.opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY
from compiler.hlo.shape import ArrayShape, Shape

_C128 = BY_NAME["c128"]
_REAL_OF = {C64: F32, _C128: F64}
_COMPLEX_OF = {F32: C64, F64: _C128}


def _is_float(dtype: DType) -> bool:
    return dtype.is_float


def _is_float_or_complex(dtype: DType) -> bool:
    return dtype.is_float or dtype.is_complex


def _is_integer(dtype: DType) -> bool:
    return dtype.is_integer


def _is_bits(dtype: DType) -> bool:
    return dtype.is_integer or dtype.kind == "pred"


def _is_number(dtype: DType) -> bool:
    return dtype.kind != "pred"


def _is_real(dtype: DType) -> bool:
    return not dtype.is_complex


def _is_any(dtype: DType) -> bool:
    return True


_FLOATS = "floor ceil is-finite reduce-precision round-nearest-afz round-nearest-even erf"
_FLOATS_OR_COMPLEX = (
    "acos acosh asin asinh atan atan2 atanh cbrt cosh cosine exponential exponential-minus-one log "
    "log-plus-one logistic rsqrt sine sinh sqrt tan tanh"
)
_INTEGERS = "count-leading-zeros popcnt shift-left shift-right-arithmetic shift-right-logical mulhi"

_WANTED: dict[str, tuple[Callable[[DType], bool], str]] = {
    **dict.fromkeys(_FLOATS.split(), (_is_float, "a float type")),
    **dict.fromkeys(_FLOATS_OR_COMPLEX.split(), (_is_float_or_complex, "a float or complex type")),
    **dict.fromkeys(_INTEGERS.split(), (_is_integer, "an integer type")),
    **dict.fromkeys(("and", "or", "xor", "not"), (_is_bits, "an integer type or pred")),
    **dict.fromkeys(("abs", "negate", "sign", "subtract"), (_is_number, "a number type")),
    "remainder": (_is_real, "a real type"),
}


def _check_dtype(q: Inference, dtype: DType) -> None:
    accepts, words = _WANTED.get(q.opcode, (_is_any, ""))
    q.require(accepts(dtype), f"operand has element type {dtype}, want {words}")


def _unary(q: Inference) -> Shape:
    operand = q.array(0)
    _check_dtype(q, operand.dtype)
    return operand


def _abs(q: Inference) -> Shape:
    operand = q.array(0)
    _check_dtype(q, operand.dtype)
    return operand.with_dtype(_REAL_OF.get(operand.dtype, operand.dtype))


def _real_part(q: Inference) -> Shape:
    operand = q.array(0)
    wanted = _is_float_or_complex(operand.dtype)
    q.require(wanted, f"operand has element type {operand.dtype}, want complex")
    return operand.with_dtype(_REAL_OF.get(operand.dtype, operand.dtype))


def _is_finite_rule(q: Inference) -> Shape:
    operand = q.array(0)
    _check_dtype(q, operand.dtype)
    return operand.with_dtype(PRED)


def _multiply_add(q: Inference) -> Shape:
    a, b, c = q.arrays()
    q.require(a.dtype == F32, f"operand has element type {a.dtype}, want f32")
    for other in (b, c):
        q.same_dtype(a, other)
        q.require(other.dims == a.dims, "operands differ in dimensions")
    return a


def _convert(q: Inference) -> Shape:
    return q.array(0).with_dtype(q.declared_array().dtype)


def _pair(q: Inference) -> ArrayShape:
    a, b = q.array(0), q.array(1)
    q.same_dtype(a, b)
    if a.dims != b.dims:
        q.fail(f"operands are {dims_text(a)} and {dims_text(b)}, want the same dimensions")
    return a


def _binary(q: Inference) -> Shape:
    operand = _pair(q)
    _check_dtype(q, operand.dtype)
    return operand


def _compare(q: Inference) -> Shape:
    directions = ("EQ", "NE", "LT", "LE", "GT", "GE")
    direction = q.attrs.get("direction")
    q.require(direction in directions, f"direction={direction}, want one of {directions}")
    return _pair(q).with_dtype(PRED)


def _complex(q: Inference) -> Shape:
    operand = _pair(q)
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


RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE_UNARY, _unary),
    **dict.fromkeys(ELEMENTWISE_BINARY, _binary),
    "abs": _abs,
    "clamp": _clamp,
    "compare": _compare,
    "complex": _complex,
    "convert": _convert,
    "imag": _real_part,
    "is-finite": _is_finite_rule,
    "multiply-add": _multiply_add,
    "real": _real_part,
    "select": _select,
    "stochastic-convert": _stochastic_convert,
}
