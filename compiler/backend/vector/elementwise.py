"""Elementwise opcodes as vector code: tables by opcode and value class ("f", "i", "m").

A handler gets `Ops`, the instruction and its operands' registers and returns the result's. Floats
are f32 lanes whatever their type; results of narrow types are rounded, but bf16 only where it is
stored or converted. Integers narrower than 32 bits are wrapped.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.analysis.float_signs import has_sign, is_only_rounded
from compiler.backend.vector import integer_math, transcendental, trigonometry
from compiler.backend.vector.constants import uniform_constant
from compiler.backend.vector.conversion import emit_bitcast, emit_convert
from compiler.backend.vector.float_math import (
    divide,
    float_remainder,
    is_finite,
    remainder_by_constant,
    round_half_away,
    sign_of_float,
)
from compiler.backend.vector.ops import Ops, compare_type, value_class
from compiler.backend.vector.power import emit_power
from compiler.backend.vector.small_floats import reduce_half, reduce_precision, round_to, settle
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import BF16
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.llo.ir import VReg

Handler = Callable[[Ops, HloInstruction, list[int]], int]
Function = Callable[..., int]


def emit_elementwise(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    """The result register of an elementwise instruction; UnsupportedError by name."""
    try:
        kind = value_class(instr.operands[0].array.dtype)
        value_class(instr.array.dtype)
    except UnsupportedError as error:
        raise UnsupportedError(f"%{instr.name}: {error.message}", instr.span) from None
    if instr.opcode in _SPECIAL:
        return _SPECIAL[instr.opcode](ops, instr, operands)
    table = _BY_CLASS[kind]
    if instr.opcode not in table:
        dtype = instr.operands[0].array.dtype
        message = f"%{instr.name}: {instr.opcode} of {dtype} is not supported"
        raise UnsupportedError(message, instr.span)
    result = table[instr.opcode](ops, instr, operands)
    if kind == "i":
        return ops.wrap(result, instr.array.dtype)
    is_rounded = instr.array.dtype.is_float and not OPCODES[instr.opcode].has(Trait.EXACT)
    return settle(ops, result, instr.array.dtype) if is_rounded else result


def _row(name: str) -> Handler:
    def handle(ops: Ops, _: HloInstruction, operands: list[int]) -> int:
        return ops.emit(name, *operands)

    return handle


def _plain(function: Function) -> Handler:
    """A function of `Ops` and the operands."""

    def handle(ops: Ops, _: HloInstruction, operands: list[int]) -> int:
        return function(ops, *operands)

    return handle


def _typed(function: Function) -> Handler:
    """A function of `Ops`, the operands' dtype and the operands."""

    def handle(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
        return function(ops, instr.operands[0].array.dtype, *operands)

    return handle


def _extremum(name: str) -> Handler:
    def handle(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
        return ops.emit(f"v{name}.{compare_type(instr.array.dtype)}", *operands)

    return handle


def _clamp(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    low, value, high = operands
    kind = compare_type(instr.array.dtype)
    return ops.emit(f"vmin.{kind}", ops.emit(f"vmax.{kind}", low, value), high)


def _clamp_mask(ops: Ops, _: HloInstruction, operands: list[int]) -> int:
    low, value, high = operands
    return ops.emit("mand", ops.emit("mor", low, value), high)


def _remainder(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    divisor, made = uniform_constant(instr.operands[1]), None
    if isinstance(divisor, float):
        made = remainder_by_constant(ops, operands[0], divisor)
    return float_remainder(ops, *operands) if made is None else made


def _select(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    return ops.choose(value_class(instr.array.dtype), *operands)


def _compare(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    direction = instr.direction.lower()
    dtype = instr.operands[0].array.dtype
    a, b = operands
    if value_class(dtype) == "m":
        return _compare_masks(ops, direction, a, b)
    if instr.is_total_order and dtype.is_float:
        a, b = (_total_order_key(ops, x) for x in (a, b))
        return ops.compare(direction, "s32", a, b)
    return ops.compare(direction, compare_type(dtype), a, b)


def _total_order_key(ops: Ops, value: VReg) -> VReg:
    """Signed integers in the order -NaN < -inf < .. < -0 < 0 < .. < NaN."""
    flip = ops.emit("vandi", ops.emit("vsrai", value, 31), 0x7FFFFFFF)
    return ops.emit("vxor", value, flip)


def _compare_masks(ops: Ops, direction: str, a: int, b: int) -> int:
    match direction:
        case "eq":
            return ops.inverse(ops.emit("mxor", a, b))
        case "ne":
            return ops.emit("mxor", a, b)
        case "lt":
            return ops.both(ops.inverse(a), b)
        case "gt":
            return ops.both(a, ops.inverse(b))
        case "le":
            return ops.either(ops.inverse(a), b)
        case _:
            return ops.either(a, ops.inverse(b))


def _exponential(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    is_below = has_sign(instr.operands[0], -1)
    function = transcendental.exponential_below if is_below else transcendental.exponential
    return function(ops, *operands)


def _divide(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    """What is rounded to bf16 needs no quotient of f32: that of two is right within 2 units of it."""
    a, b = operands
    return ops.mul(a, ops.reciprocal(b)) if is_only_rounded(instr) else divide(ops, a, b)


def _convert(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    return emit_convert(ops, operands[0], instr.operands[0].array.dtype, instr.array.dtype)


def _bitcast_convert(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    source, target = instr.operands[0].array.dtype, instr.array.dtype
    if source.bits != target.bits:
        message = f"%{instr.name}: bitcast-convert from {source} to {target} changes the width"
        raise UnsupportedError(message, instr.span)
    return emit_bitcast(ops, operands[0], source, target)


def _reduce_precision(ops: Ops, instr: HloInstruction, operands: list[int]) -> int:
    exponent, mantissa = instr.exponent_bits, instr.mantissa_bits
    if instr.array.dtype == BF16 and exponent >= 8 and mantissa >= 7:
        return round_to(ops, operands[0], BF16)  # to all that the type has
    if instr.array.dtype.name == "f16":
        result = reduce_half(ops, operands[0], exponent, mantissa)
    else:
        result = reduce_precision(ops, operands[0], exponent, mantissa)
    return settle(ops, result, instr.array.dtype)


_SPECIAL: dict[str, Handler] = {
    "bitcast-convert": _bitcast_convert,
    "compare": _compare,
    "convert": _convert,
    "reduce-precision": _reduce_precision,
    "select": _select,
}

_FLOAT: dict[str, Handler] = {
    "abs": _plain(Ops.magnitude),
    "acos": _plain(trigonometry.acos),
    "acosh": _plain(transcendental.acosh),
    "add": _row("vadd.f32"),
    "asin": _plain(trigonometry.asin),
    "asinh": _plain(transcendental.asinh),
    "atan": _plain(trigonometry.atan),
    "atan2": _plain(trigonometry.atan2),
    "atanh": _plain(transcendental.atanh),
    "cbrt": _plain(transcendental.cbrt),
    "ceil": _row("vceil.f32"),
    "clamp": _clamp,
    "cosh": _plain(transcendental.cosh),
    "cosine": _plain(trigonometry.cosine),
    "divide": _divide,
    "erf": _plain(transcendental.erf),
    "exponential": _exponential,
    "exponential-minus-one": _plain(transcendental.exponential_minus_one),
    "floor": _row("vfloor.f32"),
    "is-finite": _plain(is_finite),
    "log": _plain(transcendental.log),
    "log-plus-one": _plain(transcendental.log_plus_one),
    "logistic": _plain(transcendental.logistic),
    "maximum": _extremum("max"),
    "minimum": _extremum("min"),
    "multiply": _row("vmul.f32"),
    "multiply-add": _row("vfma.f32"),
    "negate": _plain(Ops.negate),
    "power": emit_power,
    "remainder": _remainder,
    "round-nearest-afz": _plain(round_half_away),
    "round-nearest-even": _row("vround.f32"),
    "rsqrt": _row("vrsqrt.f32"),
    "sign": _plain(sign_of_float),
    "sine": _plain(trigonometry.sine),
    "sinh": _plain(transcendental.sinh),
    "sqrt": _row("vsqrt.f32"),
    "subtract": _row("vsub.f32"),
    "tan": _plain(trigonometry.tangent),
    "tanh": _row("vtanh.f32"),
}

_INTEGER: dict[str, Handler] = {
    "abs": _typed(integer_math.absolute),
    "add": _row("vadd.s32"),
    "and": _row("vand"),
    "clamp": _clamp,
    "count-leading-zeros": _typed(integer_math.leading_zeros),
    "divide": _typed(integer_math.divide),
    "maximum": _extremum("max"),
    "minimum": _extremum("min"),
    "mulhi": _typed(integer_math.multiply_high),
    "multiply": _row("vmul.s32"),
    "negate": _plain(integer_math.negate),
    "not": _plain(integer_math.invert),
    "or": _row("vor"),
    "popcnt": _typed(integer_math.population_count),
    "power": _typed(integer_math.power),
    "remainder": _typed(integer_math.remainder),
    "shift-left": _typed(integer_math.shift_left),
    "shift-right-arithmetic": _typed(integer_math.shift_right_arithmetic),
    "shift-right-logical": _typed(integer_math.shift_right_logical),
    "sign": _typed(integer_math.sign),
    "subtract": _row("vsub.s32"),
    "xor": _row("vxor"),
}

_MASK: dict[str, Handler] = {
    "add": _row("mor"),
    "and": _row("mand"),
    "clamp": _clamp_mask,
    "maximum": _row("mor"),
    "minimum": _row("mand"),
    "multiply": _row("mand"),
    "not": _row("mnot"),
    "or": _row("mor"),
    "xor": _row("mxor"),
}

_BY_CLASS: dict[str, dict[str, Handler]] = {"f": _FLOAT, "i": _INTEGER, "m": _MASK}
