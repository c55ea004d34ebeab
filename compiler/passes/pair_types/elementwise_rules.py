"""Elementwise operations on pairs: one row per opcode and kind of type."""

from __future__ import annotations

import operator
from collections.abc import Callable

from compiler.hlo.dtypes import C64, F32, U32, DType
from compiler.hlo.expression import Expr
from compiler.hlo.ir import HloInstruction
from compiler.passes.pair_types import complex_functions as functions
from compiler.passes.pair_types import complex_inverses as inverses
from compiler.passes.pair_types import int64_division, int64_power
from compiler.passes.pair_types.bit_casts import bitcast_rule
from compiler.passes.pair_types.complex_arithmetic import Complex
from compiler.passes.pair_types.formulas import select
from compiler.passes.pair_types.int64_arithmetic import Int64, widened
from compiler.passes.pair_types.int64_conversion import from_int64, to_int64
from compiler.passes.pair_types.scope import Scope, refuse, wide_dtype
from compiler.passes.pair_types.values import Pair, Value, is_wide, part_dtype
from compiler.passes.pair_types.wide import Wide, complex_of, int64_of, pair_of, wide
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Rule = Callable[[Scope, Instr], Value]
_Formula = Callable[..., Wide | Expr]

_INTEGER: dict[str, _Formula] = {
    "abs": Int64.absolute,
    "add": operator.add,
    "and": lambda a, b: a.bitwise("and", b),
    "count-leading-zeros": lambda a: widened(a.leading_zeros(), a.dtype),
    "divide": int64_division.divide,
    "maximum": Int64.maximum,
    "minimum": Int64.minimum,
    "mulhi": Int64.high_half,
    "multiply": operator.mul,
    "negate": operator.neg,
    "not": lambda a: a.bitwise("not"),
    "or": lambda a, b: a.bitwise("or", b),
    "popcnt": lambda a: widened(a.population(), a.dtype),
    "power": int64_power.power,
    "remainder": int64_division.remainder,
    "shift-left": lambda a, b: a.shift_left(b.amount()),
    "shift-right-arithmetic": lambda a, b: a.shift_right_arithmetic(b.amount()),
    "shift-right-logical": lambda a, b: a.shift_right_logical(b.amount()),
    "sign": Int64.sign,
    "subtract": operator.sub,
    "xor": lambda a, b: a.bitwise("xor", b),
}

_COMPLEX: dict[str, _Formula] = {
    "abs": Complex.absolute,
    "acos": inverses.arc_cosine,
    "acosh": inverses.arc_hyperbolic_cosine,
    "add": operator.add,
    "asin": inverses.arc_sine,
    "asinh": inverses.arc_hyperbolic_sine,
    "atan": inverses.arc_tangent,
    "atan2": functions.arc_tangent_2,
    "atanh": inverses.arc_hyperbolic_tangent,
    "cbrt": functions.cube_root,
    "cosh": functions.hyperbolic_cosine,
    "cosine": functions.cosine,
    "divide": operator.truediv,
    "exponential": functions.exponential,
    "exponential-minus-one": functions.exponential_minus_one,
    "imag": lambda z: z.second,
    "log": functions.logarithm,
    "log-plus-one": functions.log_plus_one,
    "logistic": functions.logistic,
    "maximum": lambda a, b: a.extreme("GT", b),
    "minimum": lambda a, b: a.extreme("LT", b),
    "multiply": operator.mul,
    "negate": operator.neg,
    "power": functions.power,
    "real": lambda z: z.first,
    "rsqrt": functions.reciprocal_root,
    "sign": Complex.sign,
    "sine": functions.sine,
    "sinh": functions.hyperbolic_sine,
    "sqrt": functions.square_root,
    "subtract": operator.sub,
    "tan": functions.tangent,
    "tanh": functions.hyperbolic_tangent,
}


def _value(result: Wide | Expr) -> Value:
    return result.instr if isinstance(result, Expr) else pair_of(result)


def _arithmetic(scope: Scope, instr: Instr) -> Value:
    """Rows of the two tables above."""
    rule = (_COMPLEX if wide_dtype(instr).is_complex else _INTEGER).get(instr.opcode)
    if rule is None:
        raise refuse(instr, "no expansion into 32-bit lanes; use a 32-bit type")
    e = Emitter.at(instr)
    return _value(rule(*(wide(e, scope.pair(operand)) for operand in instr.operands)))


JOINT_KINDS = frozenset({"add", "multiply", "maximum", "minimum"})
"""Commutative operations whose result words depend on both words of the operands."""


def combine(e: Emitter, kind: str, a: Pair, b: Pair) -> Pair:
    """One of `JOINT_KINDS` of two pairs."""
    rule = (_COMPLEX if a.dtype.is_complex else _INTEGER)[kind]
    value = _value(rule(wide(e, a), wide(e, b)))
    assert isinstance(value, Pair)
    return value


def _compare(scope: Scope, instr: Instr) -> Value:
    e = Emitter.at(instr)
    a, b = (scope.pair(operand) for operand in instr.operands)
    if not a.dtype.is_complex:
        return int64_of(e, a).compare(instr.direction, int64_of(e, b)).instr
    if instr.direction not in ("EQ", "NE"):
        raise refuse(instr, "complex numbers have no order")
    return complex_of(e, a).compare(instr.direction, complex_of(e, b)).instr


def _select(scope: Scope, instr: Instr) -> Value:
    e = Emitter.at(instr)
    a, b = (wide(e, scope.pair(operand)) for operand in instr.operands[1:])
    return pair_of(select(Expr(e, instr.operands[0]), a, b))


def _clamp(scope: Scope, instr: Instr) -> Value:
    if wide_dtype(instr).is_complex:
        raise refuse(instr, "complex numbers have no order")
    e = Emitter.at(instr)
    spread = (broadcast(e, scope.pair(o), instr.array.dims) for o in instr.operands)
    low, value, high = (int64_of(e, pair) for pair in spread)
    return pair_of(value.maximum(low).minimum(high))


def broadcast(e: Emitter, a: Pair, dims: tuple[int, ...]) -> Pair:
    """A scalar pair repeated; an array stays."""
    first, second = (Expr(e, part).spread(dims).instr for part in a.parts)
    return Pair(first, second, a.dtype)


def _complex(scope: Scope, instr: Instr) -> Value:
    return Pair(instr.operands[0], instr.operands[1], C64)


def _convert(scope: Scope, instr: Instr) -> Value:
    """Between pairs, and between pairs and what a lane holds."""
    e = Emitter.at(instr)
    target = instr.array.dtype
    value = scope.value(instr.operands[0])
    if isinstance(value, Pair) and value.dtype.is_complex:
        return value if target.is_complex else converted(Expr(e, value.first), target)
    if not isinstance(value, Pair):
        assert isinstance(value, HloInstruction)
        return converted(Expr(e, value), target)
    if target.is_complex:
        return converted(from_int64(int64_of(e, value), F32), target)
    if is_wide(instr.shape):
        return value.retyped(target)
    return from_int64(int64_of(e, value), target).instr


def converted(x: Expr, target: DType) -> Value:
    """Real numbers of a type that a lane holds, in any type."""
    if target.is_complex:
        real = x.convert(F32)
        return pair_of(Complex(real, real.like(0.0)))
    return x.convert(target).instr if part_dtype(target) is None else pair_of(to_int64(x, target))


def _iota(scope: Scope, instr: Instr) -> Value:
    e = Emitter.at(instr)
    target = instr.array.dtype
    part = F32 if target.is_complex else U32
    first = e.iota(part, instr.array.dims, instr.iota_dimension)
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
