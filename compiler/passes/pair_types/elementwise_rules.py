"""Elementwise operations on pairs: one row per opcode and kind of type."""

from __future__ import annotations

from collections.abc import Callable

from compiler.hlo.dtypes import C64, F32, U32
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types import complex_functions as functions
from compiler.passes.pair_types import complex_inverses as inverses
from compiler.passes.pair_types import int64_division, int64_power
from compiler.passes.pair_types.bit_casts import bitcast_rule
from compiler.passes.pair_types.complex_arithmetic import Complex
from compiler.passes.pair_types.emitter import Emitter
from compiler.passes.pair_types.int64_arithmetic import Int64
from compiler.passes.pair_types.int64_conversion import from_int64, to_int64
from compiler.passes.pair_types.scope import Scope, refuse, wide_dtype
from compiler.passes.pair_types.values import Pair, Value, is_wide

Instr = HloInstruction
Rule = Callable[[Scope, Instr], Value]
_Integer = Callable[..., Value]

_INTEGER: dict[str, _Integer] = {
    "abs": Int64.absolute,
    "add": Int64.add,
    "and": lambda i, a, b: i.bitwise("and", a, b),
    "count-leading-zeros": lambda i, a: i.widened(i.leading_zeros(a), a.dtype),
    "divide": int64_division.divide,
    "maximum": Int64.maximum,
    "minimum": Int64.minimum,
    "mulhi": Int64.high_half,
    "multiply": Int64.multiply,
    "negate": Int64.negate,
    "not": lambda i, a: i.bitwise("not", a),
    "or": lambda i, a, b: i.bitwise("or", a, b),
    "popcnt": lambda i, a: i.widened(i.population(a), a.dtype),
    "power": int64_power.power,
    "remainder": int64_division.remainder,
    "shift-left": lambda i, a, b: i.shift_left(a, i.amount(b)),
    "shift-right-arithmetic": lambda i, a, b: i.shift_right_arithmetic(a, i.amount(b)),
    "shift-right-logical": lambda i, a, b: i.shift_right_logical(a, i.amount(b)),
    "sign": Int64.sign,
    "subtract": Int64.subtract,
    "xor": lambda i, a, b: i.bitwise("xor", a, b),
}

_COMPLEX: dict[str, _Integer] = {
    "abs": Complex.absolute,
    "acos": inverses.arc_cosine,
    "acosh": inverses.arc_hyperbolic_cosine,
    "add": Complex.add,
    "asin": inverses.arc_sine,
    "asinh": inverses.arc_hyperbolic_sine,
    "atan": inverses.arc_tangent,
    "atan2": functions.arc_tangent_2,
    "atanh": inverses.arc_hyperbolic_tangent,
    "cbrt": functions.cube_root,
    "cosh": functions.hyperbolic_cosine,
    "cosine": functions.cosine,
    "divide": Complex.divide,
    "exponential": functions.exponential,
    "exponential-minus-one": functions.exponential_minus_one,
    "imag": lambda c, z: z.second,
    "log": functions.logarithm,
    "log-plus-one": functions.log_plus_one,
    "logistic": functions.logistic,
    "maximum": lambda c, a, b: c.extreme("GT", a, b),
    "minimum": lambda c, a, b: c.extreme("LT", a, b),
    "multiply": Complex.multiply,
    "negate": Complex.negate,
    "power": functions.power,
    "real": lambda c, z: z.first,
    "rsqrt": functions.reciprocal_root,
    "sign": Complex.sign,
    "sine": functions.sine,
    "sinh": functions.hyperbolic_sine,
    "sqrt": functions.square_root,
    "subtract": Complex.subtract,
    "tan": functions.tangent,
    "tanh": functions.hyperbolic_tangent,
}


def _arithmetic(scope: Scope, instr: Instr) -> Value:
    """Rows of the two tables above."""
    is_complex = wide_dtype(instr).is_complex
    rule = (_COMPLEX if is_complex else _INTEGER).get(instr.opcode)
    if rule is None:
        raise refuse(instr, "no expansion into 32-bit lanes; use a 32-bit type")
    emitter = Emitter(instr)
    pairs = [scope.pair(operand) for operand in instr.operands]
    return rule(Complex(emitter) if is_complex else Int64(emitter), *pairs)


JOINT_KINDS = frozenset({"add", "multiply", "maximum", "minimum"})
"""Commutative operations whose result words depend on both words of the operands."""


def combine(e: Emitter, kind: str, a: Pair, b: Pair) -> Pair:
    """One of `JOINT_KINDS` of two pairs."""
    is_complex = a.dtype.is_complex
    rule = (_COMPLEX if is_complex else _INTEGER)[kind]
    value = rule(Complex(e) if is_complex else Int64(e), a, b)
    assert isinstance(value, Pair)
    return value


def _compare(scope: Scope, instr: Instr) -> Value:
    a, b = (scope.pair(operand) for operand in instr.operands)
    direction = instr.direction
    if not a.dtype.is_complex:
        return Int64(Emitter(instr)).compare(direction, a, b)
    if direction not in ("EQ", "NE"):
        raise refuse(instr, "complex numbers have no order")
    return Complex(Emitter(instr)).compare(direction, a, b)


def _select(scope: Scope, instr: Instr) -> Value:
    e = Emitter(instr)
    a, b = (scope.pair(operand) for operand in instr.operands[1:])
    condition = instr.operands[0]
    first = e.select(condition, a.first, b.first)
    return Pair(first, e.select(condition, a.second, b.second), a.dtype)


def _clamp(scope: Scope, instr: Instr) -> Value:
    if wide_dtype(instr).is_complex:
        raise refuse(instr, "complex numbers have no order")
    i = Int64(Emitter(instr))
    dims = instr.array.dims
    low, value, high = (broadcast(i.e, scope.pair(o), dims) for o in instr.operands)
    return i.minimum(i.maximum(value, low), high)


def broadcast(e: Emitter, a: Pair, dims: tuple[int, ...]) -> Pair:
    """A scalar pair repeated; an array stays."""
    return Pair(e.broadcast(a.first, dims), e.broadcast(a.second, dims), a.dtype)


def _complex(scope: Scope, instr: Instr) -> Value:
    return Pair(instr.operands[0], instr.operands[1], C64)


def _convert(scope: Scope, instr: Instr) -> Value:
    """Between pairs, and between pairs and what a lane holds."""
    e = Emitter(instr)
    target = instr.array.dtype
    value = scope.value(instr.operands[0])
    if isinstance(value, Pair) and value.dtype.is_complex:
        if target.is_complex:
            return value
        return _real_to(e, value.first, instr)
    if isinstance(value, Pair):
        if target.is_complex:
            return Complex(e).from_real(from_int64(Int64(e), value, F32))
        return (
            value.retyped(target) if is_wide(instr.shape) else from_int64(Int64(e), value, target)
        )
    assert isinstance(value, HloInstruction)
    return Complex(e).from_real(value) if target.is_complex else _real_to(e, value, instr)


def _real_to(e: Emitter, x: Instr, instr: Instr) -> Value:
    target = instr.array.dtype
    return to_int64(Int64(e), x, target) if is_wide(instr.shape) else e.convert(x, target)


def _iota(scope: Scope, instr: Instr) -> Value:
    e = Emitter(instr)
    target = instr.array.dtype
    part = F32 if target.is_complex else U32
    first = e.op("iota", part, instr.array.dims, (), iota_dimension=instr.iota_dimension)
    return Pair(first, e.like(first, 0), target)


ELEMENTWISE_RULES: dict[str, Rule] = {
    **dict.fromkeys(_INTEGER.keys() | _COMPLEX.keys(), _arithmetic),
    "bitcast-convert": bitcast_rule,
    "clamp": _clamp,
    "compare": _compare,
    "complex": _complex,
    "convert": _convert,
    "iota": _iota,
    "select": _select,
}
