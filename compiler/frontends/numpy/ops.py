"""The primitives that all rules of tracing are made of: constants, conversion, broadcasting, one instruction.

A rule takes the `Trace` and the operands NumPy was called with: tracers, arrays, Python scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.errors import BadNumberError, BadTypeError, BadValueError
from compiler.frontends.numpy.promotion import OperandType, float_dtype, promote
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.host_types import NumpyDType, device_dtype, fitted, stated_dtype
from compiler.hlo.ir import HloInstruction

_BOOL = np.dtype(np.bool_)
ON_BOOLEANS = {"add": "or", "multiply": "and", "maximum": "or", "minimum": "and"}
"""What arithmetic opcodes are of booleans, as in NumPy."""


def as_tracer(trace: Trace, value: object) -> Tracer:
    """Make a constant of an array or a Python scalar (a weak one); tracers pass through."""
    if isinstance(value, Tracer):
        return value if value.owner is trace else trace.lift(value)
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        weak = promote([OperandType(np.asarray(value).dtype, is_weak=True)]).dtype
        if isinstance(value, int) and not -(2**31) <= value < 2**31:  # for a 64-bit array
            weak = np.dtype(np.int64 if value < 2**63 else np.uint64)
        return _constant(trace, _scalar_in(value, weak), is_weak=True)
    if isinstance(value, tuple | list) and _holds_tracers(value):
        parts = [expand(as_tracer(trace, v), 0) for v in value]
        return concatenate(trace, parts, 0)
    array = np.asarray(value)
    try:
        dtype = device_dtype(array.dtype, warns=isinstance(value, np.ndarray))
    except CompileError as error:
        raise BadTypeError(error.message) from None
    return _constant(trace, fitted(array, dtype))


def _holds_tracers(tree: object) -> bool:
    if isinstance(tree, tuple | list):
        return any(_holds_tracers(item) for item in tree)
    return isinstance(tree, Tracer)


def traced(trace: Trace, value: Any) -> Any:
    """As `as_tracer`, to be passed to NumPy's functions, whose types do not know traced arrays."""
    return as_tracer(trace, value)


def _scalar_in(value: complex, dtype: NumpyDType) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value, dtype)
    except OverflowError:
        raise BadNumberError(f"Python integer {value} does not fit {dtype}") from None


def _constant(trace: Trace, array: np.ndarray[Any, Any], *, is_weak: bool = False) -> Tracer:
    return Tracer(trace, trace.builder.literal(array), is_weak=is_weak)


def wrap(like: Tracer, instr: HloInstruction, *, is_weak: bool = False) -> Tracer:
    """A tracer of the same trace."""
    return Tracer(like.owner, instr, is_weak=is_weak)


def convert(x: Tracer, dtype: object) -> Tracer:
    """The values in another element type; float to integer truncates towards zero."""
    target = stated_dtype(dtype)
    if x.dtype == target:
        return wrap(x, x.instr) if x.is_weak else x
    if x.instr.opcode == "constant" and x.is_weak:
        literal = np.asarray(x.instr.literal)
        return _constant(x.owner, _scalar_in(literal.item(), target))
    if target == _BOOL:
        return compare(x, constant_like(x, 0), "NE")
    return wrap(x, x.owner.builder.convert(x.instr, from_numpy(target)))


def constant_like(x: Tracer, value: complex) -> Tracer:
    """A Python number in the type and dimensions of `x`."""
    scalar = _constant(x.owner, _scalar_in(value, x.dtype), is_weak=x.is_weak)
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
    if common_shape(x.shape, target) != target:
        raise BadValueError(f"{x!r} cannot be broadcast to {list(target)}")
    offset = len(target) - x.ndim
    kept = [axis for axis, n in enumerate(x.shape) if n == target[offset + axis]]
    instr = x.instr
    if len(kept) < x.ndim:
        instr = x.owner.builder.reshape(instr, [x.shape[axis] for axis in kept])
    dimensions = [offset + axis for axis in kept]
    return wrap(x, x.owner.builder.broadcast(instr, target, dimensions), is_weak=x.is_weak)


def reshape(x: Tracer, shape: Sequence[int]) -> Tracer:
    """The same elements under other dimensions."""
    target = tuple(int(n) for n in shape)
    if x.shape == target:
        return x
    return wrap(x, x.owner.builder.reshape(x.instr, target), is_weak=x.is_weak)


def transpose(x: Tracer, order: Sequence[int]) -> Tracer:
    """Permute axes."""
    if list(order) == list(range(x.ndim)):
        return x
    return wrap(x, x.owner.builder.transpose(x.instr, order), is_weak=x.is_weak)


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


def common_shape(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that arrays are broadcast to."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        text = " and ".join(str(list(shape)) for shape in shapes)
        raise BadValueError(f"shapes {text} cannot be broadcast together") from None


def broadcast(tracers: Sequence[Tracer]) -> list[Tracer]:
    """Bring arrays to one shape."""
    shape = common_shape(*(t.shape for t in tracers))
    return [broadcast_to(t, shape) for t in tracers]


def compare(x: Tracer, y: Tracer, direction: str) -> Tracer:
    """A boolean array; `direction` as in HLO."""
    return wrap(x, x.owner.builder.compare(x.instr, y.instr, direction))


def select(condition: Tracer, on_true: Tracer, on_false: Tracer) -> Tracer:
    """Elements of one or the other, all three of one shape."""
    instr = on_true.owner.builder.select(condition.instr, on_true.instr, on_false.instr)
    return wrap(on_true, instr, is_weak=on_true.is_weak and on_false.is_weak)


def unary(opcode: str, x: Tracer) -> Tracer:
    """One elementwise instruction."""
    return wrap(x, x.owner.builder.unary(opcode, x.instr), is_weak=x.is_weak)


def binary(opcode: str, x: Tracer, y: Tracer) -> Tracer:
    """One elementwise instruction of two operands of equal type and shape."""
    instr = x.owner.builder.binary(opcode, x.instr, y.instr)
    return wrap(x, instr, is_weak=x.is_weak and y.is_weak)


def iota(trace: Trace, shape: Sequence[int], axis: int, dtype: object = np.int32) -> Tracer:
    """Positions along an axis."""
    hlo = from_numpy(stated_dtype(dtype))
    return Tracer(trace, trace.builder.iota(hlo, tuple(shape), axis))


def convert_keeping_weak(x: Tracer, dtype: NumpyDType) -> Tracer:
    """Convert, and stay weak when `x` is."""
    converted = convert(x, dtype)
    return wrap(converted, converted.instr, is_weak=x.is_weak)


def as_float(x: Tracer) -> Tracer:
    """Integers and booleans as f32; floats and complex numbers as they are."""
    return convert_keeping_weak(x, float_dtype(x.dtype))


def as_number(x: Tracer) -> Tracer:
    """Booleans as int8, which NumPy does most of their arithmetic in."""
    return convert_keeping_weak(x, np.dtype(np.int8)) if x.dtype == _BOOL else x


def is_complex(x: Tracer) -> bool:
    """Whether the elements are complex."""
    return x.dtype.kind == "c"


def needs_real(name: str, x: Tracer) -> Tracer:
    """`x`; CompileError for complex numbers, which the function `name` is not defined for."""
    if is_complex(x):
        raise BadTypeError(f"{name} of {x.dtype}: not defined for complex numbers")
    return x


def parts(x: Tracer) -> tuple[Tracer, Tracer]:
    """Real and imaginary part of complex numbers."""
    return unary("real", x), unary("imag", x)


def complex_of(real: Tracer, imaginary: Tracer) -> Tracer:
    """Complex numbers of two real arrays of one shape."""
    return binary("complex", real, imaginary)
