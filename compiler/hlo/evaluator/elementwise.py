"""Elementwise opcodes: one row per opcode, a NumPy function of widened operands each.

Handlers rely on NumPy broadcasting, so that a computation of scalars also runs on whole arrays.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.hlo.dtypes import from_numpy
from compiler.hlo.evaluator import integer_ops, special_functions
from compiler.hlo.evaluator.context import (
    Array,
    Context,
    Handler,
    Operands,
    finish,
    storage_dtype,
    unsupported,
)
from compiler.hlo.evaluator.extremes import maximum, minimum
from compiler.hlo.evaluator.numerics import (
    cast_exactly_once,
    convert,
    from_unsigned_bits,
    multiply_add,
    round_to_bf16,
    total_order_key,
    unsigned_bits,
    unsigned_view,
    widen,
)
from compiler.hlo.evaluator.special_functions import complex_in_double, in_double
from compiler.hlo.ir import HloInstruction

_UNARY: dict[str, Callable[[Array], Array]] = {
    "abs": special_functions.absolute,
    "acos": in_double(np.arccos),
    "acosh": in_double(np.arccosh),
    "asin": in_double(np.arcsin),
    "asinh": in_double(np.arcsinh),
    "atan": in_double(np.arctan),
    "atanh": in_double(np.arctanh),
    "cbrt": in_double(special_functions.cbrt),
    "ceil": np.ceil,
    "cosh": in_double(np.cosh),
    "cosine": in_double(np.cos),
    "erf": special_functions.erf,
    "exponential": complex_in_double(special_functions.exponential),
    "exponential-minus-one": in_double(special_functions.expm1),
    "floor": np.floor,
    "imag": np.imag,
    "is-finite": np.isfinite,
    "log": complex_in_double(np.log),
    "log-plus-one": in_double(special_functions.log1p),
    "logistic": complex_in_double(special_functions.logistic),
    "negate": special_functions.negate,
    "not": np.invert,
    "real": np.real,
    "round-nearest-afz": special_functions.round_half_away,
    "round-nearest-even": np.rint,
    "rsqrt": in_double(special_functions.rsqrt),
    "sign": complex_in_double(special_functions.sign),
    "sine": in_double(np.sin),
    "sinh": in_double(np.sinh),
    "sqrt": complex_in_double(np.sqrt),
    "tan": in_double(np.tan),
    "tanh": complex_in_double(np.tanh),
}


def _divide(x: Array, y: Array) -> Array:
    return integer_ops.divide(x, y) if x.dtype.kind in "iu" else _true_divide(x, y)


def _true_divide(x: Array, y: Array) -> Array:
    if x.dtype == np.complex64:
        wide = special_functions.quotient(x.astype(np.complex128), y.astype(np.complex128))
        return wide.astype(np.complex64)
    return np.divide(x, y)


def _remainder(x: Array, y: Array) -> Array:
    return integer_ops.remainder(x, y) if x.dtype.kind in "iu" else np.fmod(x, y)


def _power(x: Array, y: Array) -> Array:
    if x.dtype.kind in "iu":
        return integer_ops.power(x, y)
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    result = np.power(x.astype(wide), y.astype(wide))
    if x.dtype.kind == "c":  # NumPy's 0 to the power of 1 + 1j is 0, XLA's is NaN
        of_zero = np.where((y.real > 0) & (y.imag == 0), 0, np.nan * (1 + 1j))
        result = np.where(x == 0, np.where(y == 0, 1, of_zero), result)
    return np.asarray(result).astype(x.dtype)


def _atan2(y: Array, x: Array) -> Array:
    if y.dtype.kind != "c":
        return np.arctan2(y.astype(np.float64), x.astype(np.float64)).astype(y.dtype)
    a, b = y.astype(np.complex128), x.astype(np.complex128)
    return np.asarray(-1j * np.log((b + 1j * a) / np.sqrt(a * a + b * b))).astype(y.dtype)


def _complex(re: Array, im: Array) -> Array:
    result = np.empty(np.broadcast_shapes(re.shape, im.shape), np.result_type(re, 1j))
    result.real = re
    result.imag = im
    return result


_BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "and": np.bitwise_and,
    "atan2": _atan2,
    "complex": _complex,
    "divide": _divide,
    "maximum": maximum,
    "minimum": minimum,
    "mulhi": integer_ops.multiply_high,
    "multiply": np.multiply,
    "or": np.bitwise_or,
    "power": _power,
    "remainder": _remainder,
    "subtract": np.subtract,
    "xor": np.bitwise_xor,
}

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}


def _unary_handler(function: Callable[[Array], Array]) -> Handler:
    def handle(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
        return finish(ctx, instr, np.asarray(function(widen(operands[0]))))

    return handle


def _binary_handler(function: Callable[[Array, Array], Array]) -> Handler:
    def handle(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
        return finish(ctx, instr, np.asarray(function(widen(operands[0]), widen(operands[1]))))

    return handle


def _bit_count_handler(function: Callable[[Array, int], Array]) -> Handler:
    def handle(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
        bits = from_numpy(operands[0].dtype).bits
        return finish(ctx, instr, function(unsigned_bits(operands[0]), bits))

    return handle


def _shift_handler(function: Callable[[Array, Array, int], Array]) -> Handler:
    def handle(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
        value, amount = operands
        dtype = from_numpy(value.dtype)
        shifted = function(unsigned_bits(value), unsigned_bits(amount), dtype.bits)
        return from_unsigned_bits(np.asarray(shifted), dtype)

    return handle


def _compare(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    function = _COMPARE[instr.direction]
    if instr.is_total_order:
        return np.asarray(function(total_order_key(operands[0]), total_order_key(operands[1])))
    return np.asarray(function(widen(operands[0]), widen(operands[1])))


def _select(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    condition, on_true, on_false = (np.asarray(operand) for operand in operands)
    return np.where(condition, on_true, on_false)


def _clamp(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    low, value, high = (widen(operand) for operand in operands)
    return finish(ctx, instr, minimum(maximum(low, value), high))


def _multiply_add(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    return finish(ctx, instr, multiply_add(*(np.asarray(operand) for operand in operands)))


def _convert(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    target = instr.array.dtype
    source = instr.operands[0].array.dtype
    converted = convert(operands[0], target) if target is not source else operands[0]
    return cast_exactly_once(converted, storage_dtype(ctx, target))


def _reduce_precision(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    dtype = from_numpy(operands[0].dtype)
    source = special_functions.FORMATS.get(dtype.name)
    if source is None:  # 8 bits: XLA computes on f32
        wide = np.asarray(operands[0]).astype(np.float32)
        return _reduce_precision(ctx, instr, [wide]).astype(dtype.numpy)
    exponent_bits = instr.exponent_bits
    mantissa_bits = instr.mantissa_bits
    if source.exponent_bits <= exponent_bits and source.mantissa_bits <= mantissa_bits:
        return np.asarray(operands[0])
    if ctx.is_wide and dtype.name == "f32" and exponent_bits == 8 and mantissa_bits == 7:
        return round_to_bf16(operands[0])
    bits = special_functions.round_significand(
        unsigned_view(operands[0]), exponent_bits, mantissa_bits, source
    )
    return bits.view(operands[0].dtype)


def _stochastic_convert(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    """Away from zero with the probability of the fraction: `operands[1]` holds uniform random bits.

    As in XLA the fraction is cut to as many bits as those have.
    """
    value, noise = operands[0].astype(np.float64), operands[1]
    target = instr.array.dtype
    if not (target.is_integer and target.is_signed):
        raise unsupported(instr, f"rounding to {target}; only to signed integers")
    magnitude = np.abs(value)
    whole = np.trunc(magnitude)
    noise_bits = instr.operands[1].array.dtype.bits  # fewer than NumPy holds, for u4 and u2
    threshold = np.floor(np.ldexp(magnitude - whole, noise_bits))
    rounded = np.copysign(whole + (noise.astype(np.float64) < threshold), value)
    return finish(ctx, instr, convert(np.where(np.isnan(value), 0.0, rounded), target))


ELEMENTWISE_HANDLERS: dict[str, Handler] = {
    **{name: _unary_handler(function) for name, function in _UNARY.items()},
    **{name: _binary_handler(function) for name, function in _BINARY.items()},
    "clamp": _clamp,
    "compare": _compare,
    "convert": _convert,
    "count-leading-zeros": _bit_count_handler(integer_ops.count_leading_zeros),
    "multiply-add": _multiply_add,
    "popcnt": _bit_count_handler(lambda bits, width: np.asarray(np.bitwise_count(bits))),
    "reduce-precision": _reduce_precision,
    "select": _select,
    "shift-left": _shift_handler(integer_ops.shift_left),
    "shift-right-arithmetic": _shift_handler(integer_ops.shift_right_arithmetic),
    "shift-right-logical": _shift_handler(integer_ops.shift_right_logical),
    "stochastic-convert": _stochastic_convert,
}

# Opcodes that take bf16 held as f32 inside a fusion; any other gets its operands rounded first.
KEEPS_WIDE = frozenset(ELEMENTWISE_HANDLERS) - {"stochastic-convert"}
