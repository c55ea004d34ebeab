"""NumPy's ufuncs as HLO, and the primitives that all rules are made of.

A rule takes the `Trace` and the operands NumPy was called with: tracers, arrays, Python scalars.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.ir import HloInstruction
from runtime.array import Rule, Trace, Tracer
from runtime.promotion import (
    NumpyDType,
    OperandType,
    device_dtype,
    float_dtype,
    is_floating,
    promote,
)

_BOOL = np.dtype(np.bool_)


def as_tracer(trace: Trace, value: object) -> Tracer:
    """Make a constant of an array or a Python scalar (a weak one); tracers pass through."""
    if isinstance(value, Tracer):
        if value.trace is not trace:
            raise CompileError(f"{value!r} belongs to another trace: pass it as an argument")
        return value
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        weak = promote([OperandType(np.asarray(value).dtype, is_weak=True)]).dtype
        return _constant(trace, _fitted(value, weak), is_weak=True)
    if isinstance(value, tuple | list) and any(isinstance(v, Tracer) for v in value):
        parts = [expand(as_tracer(trace, v), 0) for v in value]
        return concatenate(trace, parts, 0)
    array = np.asarray(value)
    return _constant(trace, array.astype(device_dtype(array.dtype, warns=True)))


def _fitted(value: complex, dtype: NumpyDType) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value, dtype)
    except OverflowError:
        raise CompileError(f"Python integer {value} does not fit {dtype}") from None


def _constant(trace: Trace, array: np.ndarray[Any, Any], *, is_weak: bool = False) -> Tracer:
    return Tracer(trace, trace.builder.literal(array), is_weak=is_weak)


def wrap(like: Tracer, instr: HloInstruction, *, is_weak: bool = False) -> Tracer:
    """A tracer of the same trace."""
    return Tracer(like.trace, instr, is_weak=is_weak)


def convert(x: Tracer, dtype: object) -> Tracer:
    """The values in another element type; float to integer truncates towards zero."""
    target = device_dtype(dtype)
    if x.dtype == target:
        return wrap(x, x.instr) if x.is_weak else x
    if x.instr.opcode == "constant" and x.is_weak:
        literal = np.asarray(x.instr.attrs["literal"])
        return _constant(x.trace, _fitted(literal.item(), target))
    if target == _BOOL:
        return compare(x, constant_like(x, 0), "NE")
    return wrap(x, x.trace.builder.convert(x.instr, from_numpy(target)))


def constant_like(x: Tracer, value: complex) -> Tracer:
    """A Python number in the type and dimensions of `x`."""
    scalar = _constant(x.trace, _fitted(value, x.dtype), is_weak=x.is_weak)
    return broadcast_to(scalar, x.shape)


def full(trace: Trace, shape: Sequence[int], value: object, dtype: object) -> Tracer:
    """One value everywhere."""
    scalar = convert(as_tracer(trace, value), dtype)
    return broadcast_to(scalar, tuple(shape))


def broadcast_to(x: Tracer, shape: Sequence[int]) -> Tracer:
    """NumPy's broadcasting: sizes of 1 stretch, missing leading axes appear."""
    target = tuple(int(n) for n in shape)
    if x.shape == target:
        return x
    if np.broadcast_shapes(x.shape, target) != target:
        raise CompileError(f"{x!r} cannot be broadcast to {list(target)}")
    offset = len(target) - x.ndim
    kept = [axis for axis, n in enumerate(x.shape) if n == target[offset + axis]]
    instr = x.instr
    if len(kept) < x.ndim:
        instr = x.trace.builder.reshape(instr, [x.shape[axis] for axis in kept])
    dimensions = [offset + axis for axis in kept]
    return wrap(x, x.trace.builder.broadcast(instr, target, dimensions), is_weak=x.is_weak)


def reshape(x: Tracer, shape: Sequence[int]) -> Tracer:
    """The same elements under other dimensions."""
    target = tuple(int(n) for n in shape)
    if x.shape == target:
        return x
    return wrap(x, x.trace.builder.reshape(x.instr, target), is_weak=x.is_weak)


def transpose(x: Tracer, order: Sequence[int]) -> Tracer:
    """Permute axes."""
    if list(order) == list(range(x.ndim)):
        return x
    return wrap(x, x.trace.builder.transpose(x.instr, order), is_weak=x.is_weak)


def expand(x: Tracer, axis: int) -> Tracer:
    """Insert an axis of size 1."""
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def concatenate(trace: Trace, parts: Sequence[Tracer], axis: int) -> Tracer:
    """Join along an axis, promoting element types."""
    if not parts:
        raise CompileError("np.concatenate: need at least one array")
    common = common_type(parts)
    instrs = [convert(part, common.dtype).instr for part in parts]
    return wrap(parts[0], trace.builder.concatenate(instrs, axis) if len(instrs) > 1 else instrs[0])


def common_type(values: Sequence[Tracer]) -> OperandType:
    """The promoted type of tracers."""
    return promote([OperandType(value.dtype, value.is_weak) for value in values])


def promoted(trace: Trace, values: Sequence[object]) -> list[Tracer]:
    """Operands in their common type, broadcast against each other."""
    tracers = [as_tracer(trace, value) for value in values]
    common = common_type(tracers)
    return broadcast([_in_type(t, common) for t in tracers])


def _in_type(x: Tracer, common: OperandType) -> Tracer:
    converted = convert(x, common.dtype)
    return wrap(converted, converted.instr, is_weak=common.is_weak)


def broadcast(tracers: Sequence[Tracer]) -> list[Tracer]:
    """Bring arrays to one shape."""
    try:
        shape = np.broadcast_shapes(*(t.shape for t in tracers))
    except ValueError:
        shapes = " and ".join(str(list(t.shape)) for t in tracers)
        raise CompileError(f"shapes {shapes} cannot be broadcast together") from None
    return [broadcast_to(t, shape) for t in tracers]


def compare(x: Tracer, y: Tracer, direction: str) -> Tracer:
    """A boolean array; `direction` as in HLO."""
    return wrap(x, x.trace.builder.compare(x.instr, y.instr, direction))


def select(condition: Tracer, on_true: Tracer, on_false: Tracer) -> Tracer:
    """Elements of one or the other, all three of one shape."""
    instr = on_true.trace.builder.select(condition.instr, on_true.instr, on_false.instr)
    return wrap(on_true, instr, is_weak=on_true.is_weak and on_false.is_weak)


def unary(opcode: str, x: Tracer) -> Tracer:
    """One elementwise instruction."""
    return wrap(x, x.trace.builder.unary(opcode, x.instr), is_weak=x.is_weak)


def binary(opcode: str, x: Tracer, y: Tracer) -> Tracer:
    """One elementwise instruction of two operands of equal type and shape."""
    instr = x.trace.builder.binary(opcode, x.instr, y.instr)
    return wrap(x, instr, is_weak=x.is_weak and y.is_weak)


def iota(trace: Trace, shape: Sequence[int], axis: int, dtype: object = np.int32) -> Tracer:
    """Positions along an axis."""
    hlo = from_numpy(device_dtype(dtype))
    return Tracer(trace, trace.builder.iota(hlo, tuple(shape), axis))


def _float_rule(opcode: str) -> Rule:
    """Functions whose result is floating point: integers convert to f32 first."""

    def rule(trace: Trace, value: object) -> Tracer:
        x = as_tracer(trace, value)
        return unary(opcode, convert_keeping_weak(x, float_dtype(x.dtype)))

    return rule


def convert_keeping_weak(x: Tracer, dtype: NumpyDType) -> Tracer:
    """Convert, and stay weak when `x` is."""
    converted = convert(x, dtype)
    return wrap(converted, converted.instr, is_weak=x.is_weak)


def _scaled_rule(opcode: str, before: float = 1.0, after: float = 1.0) -> Rule:
    """``after * opcode(before * x)``, e.g. log2 as log over ln 2."""
    inner = _float_rule(opcode) if opcode else None

    def rule(trace: Trace, value: object) -> Tracer:
        x = as_tracer(trace, value)
        x = convert_keeping_weak(x, float_dtype(x.dtype))
        if before != 1.0:
            x = binary("multiply", x, constant_like(x, before))
        result: Tracer = inner(trace, x) if inner else x
        return result if after == 1.0 else binary("multiply", result, constant_like(result, after))

    return rule


def _same_type_rule(opcode: str, *, rounds: bool = False) -> Rule:
    """Functions that keep the type; rounding ones leave integers as they are."""

    def rule(trace: Trace, value: object) -> Tracer:
        x = as_tracer(trace, value)
        if rounds and not is_floating(x.dtype):
            return x
        return unary(opcode, x)

    return rule


# Of booleans, + is or, * is and, as in NumPy.
_ON_BOOLEANS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}


def _binary_rule(opcode: str) -> Rule:
    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = promoted(trace, (a, b))
        if x.dtype == _BOOL:
            if opcode not in _ON_BOOLEANS:
                raise UnsupportedError(f"np.{opcode} of booleans; convert them with .astype first")
            return binary(_ON_BOOLEANS[opcode], x, y)
        return binary(opcode, x, y)

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
            raise CompileError(f"bitwise {opcode} of {x.dtype}; want integers or booleans")
        return binary(opcode, x, y)

    return rule


def _shift_right(trace: Trace, a: object, b: object) -> Tracer:
    x, y = promoted(trace, (a, b))
    kind = "logical" if from_numpy(x.dtype).kind == "unsigned" else "arithmetic"
    return binary(f"shift-right-{kind}", x, y)


add = _binary_rule("add")
multiply = _binary_rule("multiply")


def divide(trace: Trace, a: object, b: object) -> Tracer:
    """True division: integers give f32."""
    x, y = promoted(trace, (a, b))
    dtype = float_dtype(x.dtype)
    return binary("divide", convert_keeping_weak(x, dtype), convert_keeping_weak(y, dtype))


def _remainder(trace: Trace, a: object, b: object) -> Tracer:
    """Python's %: the sign of the divisor."""
    x, y = promoted(trace, (a, b))
    rest = binary("remainder", x, y)
    zero = constant_like(x, 0)
    differs = binary("xor", compare(rest, zero, "LT"), compare(y, zero, "LT"))
    off = binary("and", compare(rest, zero, "NE"), differs)
    return select(off, binary("add", rest, y), rest)


def _floor_divide(trace: Trace, a: object, b: object) -> Tracer:
    """Python's //: rounded down, exact for integers."""
    x, y = promoted(trace, (a, b))
    rest = _remainder(trace, x, y)
    quotient = binary("divide", binary("subtract", x, rest), y)
    return unary("round-nearest-even", quotient) if is_floating(x.dtype) else quotient


def _power(trace: Trace, a: object, b: object) -> Tracer:
    if isinstance(b, int) and not isinstance(b, bool) and 0 < b <= 4:
        return _small_power(as_tracer(trace, a), b)
    x, y = promoted(trace, (a, b))
    return binary("power", x, y)


def _small_power(x: Tracer, exponent: int) -> Tracer:
    """A static power of 1 to 4 as multiplications."""
    square = x if exponent == 1 else binary("multiply", x, x)
    if exponent <= 2:
        return square
    return binary("multiply", square, x if exponent == 3 else square)


def _square(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    return binary("multiply", x, x)


def _reciprocal(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    return divide(trace, constant_like(x, 1), x)


def _truncate(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    if not is_floating(x.dtype):
        return x
    negative = compare(x, constant_like(x, 0), "LT")
    return select(negative, unary("ceil", x), unary("floor", x))


def _is_nan(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    return compare(x, x, "NE")


def _is_finite(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    return unary("is-finite", x) if is_floating(x.dtype) else compare(x, x, "EQ")


def _is_infinite(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    if not is_floating(x.dtype):
        return compare(x, x, "NE")
    size = unary("abs", x)
    return compare(size, constant_like(size, math.inf), "EQ")


def _absolute(trace: Trace, value: object) -> Tracer:
    x = as_tracer(trace, value)
    return x if from_numpy(x.dtype).kind in ("pred", "unsigned") else unary("abs", x)


def _identity(trace: Trace, value: object) -> Tracer:
    return as_tracer(trace, value)


def _ignoring_nan(opcode: str) -> Rule:
    """fmax and fmin: the other operand where one is NaN."""

    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = promoted(trace, (a, b))
        result = binary(opcode, x, y)
        result = select(compare(x, x, "NE"), y, result)
        return select(compare(y, y, "NE"), x, result)

    return rule


def _float_binary_rule(opcode: str) -> Rule:
    def rule(trace: Trace, a: object, b: object) -> Tracer:
        x, y = promoted(trace, (a, b))
        dtype = float_dtype(x.dtype)
        return binary(opcode, convert_keeping_weak(x, dtype), convert_keeping_weak(y, dtype))

    return rule


def _hypot(trace: Trace, a: object, b: object) -> Tracer:
    x, y = promoted(trace, (a, b))
    return unary("sqrt", binary("add", binary("multiply", x, x), binary("multiply", y, y)))


def _logaddexp(trace: Trace, a: object, b: object) -> Tracer:
    """``max + log1p(exp(-|x - y|))``, which does not overflow."""
    x, y = promoted(trace, (a, b))
    distance = unary("negate", unary("abs", binary("subtract", x, y)))
    tail = unary("log-plus-one", unary("exponential", distance))
    return binary("add", binary("maximum", x, y), tail)


def _divmod(trace: Trace, a: object, b: object) -> tuple[Tracer, Tracer]:
    return _floor_divide(trace, a, b), _remainder(trace, a, b)


_UNARY_FLOAT: dict[np.ufunc, str] = {
    np.arccos: "acos",
    np.arccosh: "acosh",
    np.arcsin: "asin",
    np.arcsinh: "asinh",
    np.arctan: "atan",
    np.arctanh: "atanh",
    np.cbrt: "cbrt",
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

UFUNCS: dict[np.ufunc, Rule] = {
    **{ufunc: _float_rule(opcode) for ufunc, opcode in _UNARY_FLOAT.items()},
    **{ufunc: _compare_rule(direction) for ufunc, direction in _COMPARISONS.items()},
    np.absolute: _absolute,
    np.add: add,
    np.arctan2: _float_binary_rule("atan2"),
    np.bitwise_and: _bitwise_rule("and"),
    np.bitwise_or: _bitwise_rule("or"),
    np.bitwise_xor: _bitwise_rule("xor"),
    np.ceil: _same_type_rule("ceil", rounds=True),
    np.conjugate: _identity,
    np.deg2rad: _scaled_rule("", math.pi / 180),
    np.divide: divide,
    np.divmod: _divmod,
    np.exp2: _scaled_rule("exponential", before=math.log(2)),
    np.fabs: _absolute,
    np.float_power: _float_binary_rule("power"),
    np.floor: _same_type_rule("floor", rounds=True),
    np.floor_divide: _floor_divide,
    np.fmax: _ignoring_nan("maximum"),
    np.fmin: _ignoring_nan("minimum"),
    np.fmod: _binary_rule("remainder"),
    np.hypot: _hypot,
    np.invert: _same_type_rule("not"),
    np.isfinite: _is_finite,
    np.isinf: _is_infinite,
    np.isnan: _is_nan,
    np.left_shift: _bitwise_rule("shift-left"),
    np.log10: _scaled_rule("log", after=1 / math.log(10)),
    np.log2: _scaled_rule("log", after=1 / math.log(2)),
    np.logaddexp: _logaddexp,
    np.logical_and: _logical_rule("and"),
    np.logical_not: _logical_rule("not"),
    np.logical_or: _logical_rule("or"),
    np.logical_xor: _logical_rule("xor"),
    np.maximum: _binary_rule("maximum"),
    np.minimum: _binary_rule("minimum"),
    np.multiply: multiply,
    np.negative: _same_type_rule("negate"),
    np.positive: _identity,
    np.power: _power,
    np.rad2deg: _scaled_rule("", 180 / math.pi),
    np.reciprocal: _reciprocal,
    np.remainder: _remainder,
    np.right_shift: _shift_right,
    np.rint: _same_type_rule("round-nearest-even", rounds=True),
    np.sign: _same_type_rule("sign"),
    np.square: _square,
    np.subtract: _binary_rule("subtract"),
    np.trunc: _truncate,
}
