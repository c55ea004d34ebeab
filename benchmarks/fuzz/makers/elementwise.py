"""Elementwise opcodes over every element type that XLA's typing gives them."""

from __future__ import annotations

import math

from benchmarks.coverage_cases import types_of
from benchmarks.fuzz import kinds
from benchmarks.fuzz.makers.registry import maker
from benchmarks.fuzz.scope import Scope, Value
from compiler.hlo.opcodes import ELEMENTWISE_BINARY, ELEMENTWISE_UNARY

_SPECIAL = frozenset(
    {"complex", "compare", "convert", "reduce-precision", "stochastic-convert", "real", "imag",
     "is-finite"}
)  # fmt: skip
UNARY = tuple(sorted(ELEMENTWISE_UNARY - _SPECIAL))
BINARY = tuple(sorted(ELEMENTWISE_BINARY - _SPECIAL))
_BOUNDED_BY_ONE = frozenset({"tanh", "sine", "cosine", "erf", "logistic", "sign"})
_BOUNDED_BY_FOUR = frozenset({"atan", "acos", "asin", "atan2"})
_KEEPS_BOUND = frozenset({"abs", "negate", "sqrt", "cbrt", "asinh", "reduce-precision"})
_ROUNDS = frozenset({"ceil", "floor", "round-nearest-afz", "round-nearest-even"})
_CHEAP = ("add", "subtract", "multiply", "maximum", "minimum", "negate", "abs", "divide", "xor")


def _bound(opcode: str, operands: list[Value]) -> float:
    most = [v.most for v in operands]
    if opcode in _BOUNDED_BY_ONE and not kinds.is_complex(operands[0].dtype):
        return 1.0
    if opcode in _BOUNDED_BY_FOUR and not kinds.is_complex(operands[0].dtype):
        return 4.0
    if opcode in _KEEPS_BOUND:
        return max(most[0], 1.0)
    if opcode in _ROUNDS:
        return most[0] + 1
    if opcode in ("add", "subtract"):
        return sum(most)
    if opcode == "multiply":
        return math.prod(most)
    return max(most) if opcode in ("maximum", "minimum", "remainder") else math.inf


def _cheap(scope: Scope, options: tuple[str, ...]) -> str:
    some = [op for op in options if op in _CHEAP]
    return scope.rng.choice(some if some and scope.rng.random() < 0.35 else options)


@maker(*UNARY, weight=5)
def unary(scope: Scope) -> Value:
    """One operand."""
    opcode = _cheap(scope, UNARY)
    x = scope.pick(types_of(opcode, kinds.ALL))
    if opcode in ("exponential", "sinh", "cosh", "exponential-minus-one", "tan"):
        x = scope.tamed(x) if scope.rng.random() < 0.6 else x
    dtype = {"c64": "f32"}.get(x.dtype, x.dtype) if opcode == "abs" else x.dtype
    return scope.add(f"{opcode}({x.name})", dtype, x.dims, _bound(opcode, [x]))


@maker(*BINARY, weight=7)
def binary(scope: Scope) -> Value:
    """Two operands of one shape."""
    opcode = _cheap(scope, BINARY)
    x = scope.pick(types_of(opcode, kinds.ALL))
    y = scope.like(x.dtype, x.dims)
    if opcode.startswith("shift") and scope.rng.random() < 0.5 and scope.parent is None:
        y = scope.new(x.dtype, x.dims, "index")
    operands = [x, y] if scope.rng.random() < 0.6 else [y, x]
    names = ", ".join(v.name for v in operands)
    return scope.add(f"{opcode}({names})", x.dtype, x.dims, _bound(opcode, operands))


@maker("compare", weight=1.5)
def compare(scope: Scope) -> Value:
    """In every direction and order."""
    x = scope.pick()
    y = scope.like(x.dtype, x.dims)
    few = ("EQ", "NE")
    direction = scope.rng.choice(
        few if kinds.is_complex(x.dtype) else (*few, "LT", "LE", "GT", "GE")
    )
    order = ""
    if kinds.is_float(x.dtype) and scope.rng.random() < 0.25:
        order = ", type=" + scope.rng.choice(("TOTALORDER", "FLOAT"))
    if kinds.is_integer(x.dtype) and scope.rng.random() < 0.2:
        order = ", type=" + ("SIGNED" if x.dtype[0] == "s" else "UNSIGNED")
    call = f"compare({x.name}, {y.name}), direction={direction}{order}"
    return scope.add(call, "pred", x.dims, 1.0)


@maker("select", weight=1.5)
def select(scope: Scope) -> Value:
    """By an array of choices, or one choice for all."""
    x = scope.pick()
    y = scope.like(x.dtype, x.dims)
    dims = () if scope.rng.random() < 0.2 else x.dims
    chosen = scope.like("pred", dims)
    call = f"select({chosen.name}, {x.name}, {y.name})"
    return scope.add(call, x.dtype, x.dims, max(x.most, y.most))


@maker("clamp")
def clamp(scope: Scope) -> Value:
    """Bounds are arrays or scalars, and not always in order."""
    x = scope.pick(types_of("clamp", kinds.ALL))
    low, high = (scope.like(x.dtype, () if scope.rng.random() < 0.6 else x.dims) for _ in range(2))
    call = f"clamp({low.name}, {x.name}, {high.name})"
    return scope.add(call, x.dtype, x.dims, max(low.most, x.most, high.most))


@maker("convert", weight=3)
def convert(scope: Scope) -> Value:
    """From any type to any other (not from complex to real)."""
    x = scope.pick()
    wanted = kinds.COMPLEX if kinds.is_complex(x.dtype) else kinds.ALL
    dtype = kinds.dtype(scope.rng, wanted)
    most = x.most if kinds.is_float(x.dtype) else float(2 ** min(kinds.bits(x.dtype), 64))
    if x.dtype == "pred":
        most = 1.0
    return scope.add(f"convert({x.name})", dtype, x.dims, most)


@maker("complex", "real", "imag", weight=0.7)
def parts(scope: Scope) -> Value:
    """Complex numbers made of parts and taken apart."""
    opcode = scope.rng.choice(("complex", "real", "imag"))
    if opcode == "complex":
        x = scope.pick(("f32",))
        y = scope.like("f32", x.dims)
        return scope.add(f"complex({x.name}, {y.name})", "c64", x.dims, x.most + y.most)
    x = scope.pick(("c64", *kinds.FLOATS) if scope.rng.random() < 0.2 else ("c64",))
    dtype = "f32" if x.dtype == "c64" else x.dtype
    return scope.add(f"{opcode}({x.name})", dtype, x.dims, x.most)


@maker("is-finite", weight=0.4)
def is_finite(scope: Scope) -> Value:
    """A mask."""
    x = scope.pick(kinds.FLOATS)
    return scope.add(f"is-finite({x.name})", "pred", x.dims, 1.0)


@maker("reduce-precision", weight=0.5)
def reduce_precision(scope: Scope) -> Value:
    """To other exponent and mantissa widths."""
    x = scope.pick(kinds.FLOATS)
    exponent, mantissa = scope.rng.choice(
        ((8, 7), (5, 10), (5, 2), (4, 3), (8, 23), (3, 1), (2, 0), (11, 52), (6, 12))
    )
    call = f"reduce-precision({x.name}), exponent_bits={exponent}, mantissa_bits={mantissa}"
    return scope.add(call, x.dtype, x.dims, 2 * x.most)


@maker("stochastic-convert", weight=0.2)
def stochastic_convert(scope: Scope) -> Value:
    """To signed integers, with noise of the operand's width."""
    x = scope.pick(tuple(t for t in kinds.FLOATS if t[:2] != "f6"))
    noise = scope.like(f"u{kinds.bits(x.dtype)}", x.dims)
    dtype = scope.rng.choice(("s8", "s16", "s32"))
    return scope.add(f"stochastic-convert({x.name}, {noise.name})", dtype, x.dims)
