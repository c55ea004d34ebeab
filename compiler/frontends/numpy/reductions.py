"""NumPy's reductions, scans and sorts as HLO.

16-bit floats are summed in f32 and rounded once; integers narrower than 32 bits sum in 32.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.errors import BadAxisError, BadTypeError, BadValueError
from compiler.frontends.numpy.ops import (
    ON_BOOLEANS,
    as_tracer,
    binary,
    broadcast_to,
    compare,
    concatenate,
    constant_like,
    convert,
    full,
    iota,
    is_complex,
    parts,
    reshape,
    select,
    unary,
    wrap,
)
from compiler.frontends.numpy.promotion import float_dtype, is_floating, sum_dtype
from compiler.frontends.numpy.tracer import Rule, Trace, Tracer
from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import PRED, from_numpy
from compiler.hlo.host_types import NumpyDType, stated_dtype
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.scalar_computations import position_reducer
from compiler.hlo.shape import ArrayShape

Axis = int | Sequence[int] | None

_BOOL = np.dtype(np.bool_)


def normal_axis(axis: int, rank: int) -> int:
    """A non-negative axis; CompileError when out of range or an array."""
    if np.ndim(axis):
        raise BadTypeError(
            f"axis must be an integer, not {axis!r}; several arrays are one argument, a list: "
            "np.concatenate([x, y])"
        )
    position = operator.index(axis)
    if not -rank <= position < rank:
        raise BadAxisError(position, rank)
    return position % rank


def normal_axes(axis: Axis, rank: int) -> tuple[int, ...]:
    """The axes meant by NumPy's `axis`: all for None."""
    if axis is None:
        return tuple(range(rank))
    axes = axis if isinstance(axis, Sequence) else (axis,)
    found = sorted(normal_axis(a, rank) for a in axes)
    if len(set(found)) < len(found):
        raise BadValueError(f"axes {list(axes)} name one twice")
    return tuple(found)


def _opcode_for(opcode: str, dtype: NumpyDType) -> str:
    """Of booleans, sums are or and products are and; complex numbers have no extremes."""
    if dtype.kind == "c" and opcode in ("maximum", "minimum"):
        raise UnsupportedError(f"the {opcode} of complex numbers; reduce np.abs of them")
    return ON_BOOLEANS.get(opcode, opcode) if dtype == _BOOL else opcode


def _identity_value(opcode: str, dtype: NumpyDType) -> Any:
    """What NumPy starts a reduction with: a sum of floats with 0.0, not -0.0."""
    return 0 if opcode == "add" else identity(opcode, from_numpy(dtype))


def fold(opcode: str, x: Tracer, axes: Sequence[int], *, keepdims: bool = False) -> Tracer:
    """Reduce axes with one commutative opcode, from its neutral element."""
    opcode = _opcode_for(opcode, x.dtype)
    if not axes:
        return x
    b = x.owner.builder
    start = b.constant(from_numpy(x.dtype), _identity_value(opcode, x.dtype))
    body = b.scalar(opcode, from_numpy(x.dtype))
    result = wrap(x, b.reduce(x.instr, start, tuple(axes), body))
    return _keep(result, x, axes) if keepdims else result


def _keep(result: Tracer, x: Tracer, axes: Sequence[int]) -> Tracer:
    return reshape(result, [1 if axis in axes else n for axis, n in enumerate(x.shape)])


def _masked(opcode: str, x: Tracer, where: object) -> Tracer:
    """The neutral element of a reduction in place of what does not take part."""
    if where is True:
        return x
    opcode = _opcode_for(opcode, x.dtype)
    neutral = constant_like(x, _identity_value(opcode, x.dtype))
    return select(_mask(x, where), x, neutral)


def _mask(x: Tracer, where: object) -> Tracer:
    return broadcast_to(convert(as_tracer(x.owner, where), _BOOL), x.shape)


def _count_where(x: Tracer, where: object, axes: Sequence[int], *, keepdims: bool) -> Tracer | int:
    """How many elements take part."""
    if where is True:
        return _element_count(x, axes)
    return fold("add", convert(_mask(x, where), np.float32), axes, keepdims=keepdims)


def _over(total: Tracer, count: Tracer | int, less: float = 0) -> Tracer:
    """`total` over the count, which is made less by so many, but not less than none."""
    if isinstance(count, int):
        return binary("divide", total, constant_like(total, max(count - less, 0)))
    divisor = binary("subtract", count, constant_like(count, less))
    divisor = binary("maximum", divisor, constant_like(count, 0))
    return binary("divide", total, convert(divisor, total.dtype))


def _finish(result: Tracer, opcode: str, initial: object, dtype: NumpyDType) -> Tracer:
    result = convert(result, dtype)
    if initial is None:
        return result
    start = broadcast_to(convert(as_tracer(result.owner, initial), dtype), result.shape)
    return binary(_opcode_for(opcode, dtype), result, start)


def _sum_rule(opcode: str) -> Rule:
    def rule(
        trace: Trace,
        a: object,
        axis: Axis = None,
        dtype: object = None,
        keepdims: bool = False,
        initial: object = None,
        where: object = True,
    ) -> Tracer:
        x = as_tracer(trace, a)
        if dtype is not None:
            x = convert(x, dtype)
        want = x.dtype if dtype is not None else sum_dtype(x.dtype)
        wide = np.float32 if is_floating(want) and want.itemsize < 4 else want
        axes = normal_axes(axis, x.ndim)
        wide_x = _masked(opcode, convert(x, wide), where)
        result = fold(opcode, wide_x, axes, keepdims=bool(keepdims))
        return _finish(result, opcode, initial, want)

    return rule


def _extreme_rule(opcode: str) -> Rule:
    def rule(
        trace: Trace,
        a: object,
        axis: Axis = None,
        keepdims: bool = False,
        initial: object = None,
        where: object = True,
    ) -> Tracer:
        x = as_tracer(trace, a)
        axes = normal_axes(axis, x.ndim)
        if initial is None and any(x.shape[i] == 0 for i in axes):
            raise CompileError(f"{opcode} of an empty axis has no value; give `initial`")
        if initial is None and where is not True:
            raise CompileError(f"{opcode} where a mask says has no value for none; give `initial`")
        result = fold(opcode, _masked(opcode, x, where), axes, keepdims=bool(keepdims))
        return _finish(result, opcode, initial, x.dtype)

    return rule


def logic_rule(opcode: str, *, of_truth: bool) -> Rule:
    """A reduction by and, or, xor: of truth values, or of the bits of integers."""

    def rule(
        trace: Trace,
        a: object,
        axis: Axis = None,
        keepdims: bool = False,
        initial: object = None,
        where: object = True,
    ) -> Tracer:
        x = as_tracer(trace, a)
        x = _masked(opcode, convert(x, _BOOL) if of_truth else x, where)
        result = fold(opcode, x, normal_axes(axis, x.ndim), keepdims=bool(keepdims))
        return _finish(result, opcode, initial, x.dtype)

    return rule


def _element_count(x: Tracer, axes: Sequence[int]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def mean(
    trace: Trace,
    a: object,
    axis: Axis = None,
    dtype: object = None,
    keepdims: bool = False,
    where: object = True,
) -> Tracer:
    """np.mean: in f32 for anything narrower, the result in the operand's type."""
    x = as_tracer(trace, a)
    want = float_dtype(x.dtype) if dtype is None else stated_dtype(dtype)
    axes = normal_axes(axis, x.ndim)
    wide = convert(x, np.float32) if want.itemsize < 4 else convert(x, want)
    total = fold("add", _masked("add", wide, where), axes, keepdims=bool(keepdims))
    average = _over(total, _count_where(x, where, axes, keepdims=bool(keepdims)))
    return _finish(average, "add", None, want)


def var(
    trace: Trace,
    a: object,
    axis: Axis = None,
    dtype: object = None,
    ddof: float = 0,
    keepdims: bool = False,
    where: object = True,
    correction: float = 0,
) -> Tracer:
    """np.var: the mean squared distance from the mean; `ddof` and `correction` are one thing."""
    ddof = ddof or correction
    x = as_tracer(trace, a)
    want = float_dtype(x.dtype) if dtype is None else stated_dtype(dtype)
    axes = normal_axes(axis, x.ndim)
    wide = convert(x, np.float32) if want.itemsize < 4 else convert(x, want)
    centre = mean(trace, wide, axes, keepdims=True, where=where)
    distance = binary("subtract", wide, broadcast_to(centre, wide.shape))
    squares = _masked("add", _squared_size(distance), where)
    total = fold("add", squares, axes, keepdims=bool(keepdims))
    result = _over(total, _count_where(x, where, axes, keepdims=bool(keepdims)), ddof)
    return _finish(result, "add", None, total.dtype if is_complex(x) else want)


def _squared_size(x: Tracer) -> Tracer:
    """The square, of complex numbers the squared modulus: a real number."""
    if is_complex(x):
        real, imaginary = (binary("multiply", part, part) for part in parts(x))
        return binary("add", real, imaginary)
    return binary("multiply", x, x)


def std(trace: Trace, a: object, *args: Any, **kwargs: Any) -> Tracer:
    """np.std: the root of np.var."""
    return unary("sqrt", var(trace, a, *args, **kwargs))


def _position_rule(direction: str) -> Rule:
    """argmax and argmin: the first of equals; NaN wins, as in NumPy."""

    def rule(trace: Trace, a: object, axis: int | None = None, keepdims: bool = False) -> Tracer:
        x = as_tracer(trace, a)
        source = x
        if axis is None:
            x, axis = reshape(x, (x.size,)), 0
        axis = normal_axis(axis, x.ndim)
        if not x.shape[axis]:
            raise BadValueError("np.argmax or np.argmin of an empty axis: there is no position")
        if x.dtype == _BOOL:
            x = convert(x, np.int32)
        b = trace.builder
        opcode = "maximum" if direction == "GT" else "minimum"
        value, place = from_numpy(x.dtype), from_numpy(np.dtype(np.int32))
        start = b.constant(value, _identity_value(opcode, x.dtype))
        zero = b.constant(place, 0)
        positions = iota(trace, x.shape, axis)
        name = f"arg_{direction.lower()}_{value}"
        body = position_reducer(b.module, name, value, place, direction)
        pair = b.reduce((x.instr, positions.instr), (start, zero), (axis,), body)
        result = wrap(positions, b.get_tuple_element(pair, 1))
        if not keepdims:
            return result
        kept = range(source.ndim) if source is not x and source.ndim != x.ndim else (axis,)
        return reshape(result, [1 if i in kept else n for i, n in enumerate(source.shape)])

    return rule


def cumulative_rule(opcode: str) -> Rule:
    """np.cumsum and its like, and ``accumulate`` of extremes: flat unless an axis is given."""

    def rule(trace: Trace, a: object, axis: int | None = None, dtype: object = None) -> Tracer:
        x = as_tracer(trace, a)
        if axis is None:
            x, axis = reshape(x, (x.size,)), 0
        axis = normal_axis(axis, x.ndim)
        want = sum_dtype(x.dtype) if dtype is None else stated_dtype(dtype)
        wide = convert(x, np.float32 if is_floating(want) and want.itemsize < 4 else want)
        length = x.shape[axis]
        if not x.size:
            return convert(wide, want)
        whole = WindowDim(size=length, pad_low=length - 1)
        dims = tuple(whole if i == axis else WindowDim(1) for i in range(x.ndim))
        b = trace.builder
        start = b.constant(from_numpy(wide.dtype), _identity_value(opcode, wide.dtype))
        body = b.scalar(opcode, from_numpy(wide.dtype))
        return convert(wrap(x, b.reduce_window(wide.instr, start, Window(dims), body)), want)

    return rule


def _cumulative_standard(opcode: str) -> Rule:
    """np.cumulative_sum and np.cumulative_prod: of one axis, perhaps beginning with the neutral element."""
    scan = cumulative_rule(opcode)

    def rule(
        trace: Trace,
        x: object,
        *,
        axis: int | None = None,
        dtype: object = None,
        include_initial: bool = False,
    ) -> Tracer:
        array = as_tracer(trace, x)
        if axis is None and array.ndim != 1:
            raise CompileError(f"a cumulative sum or product of {array!r}: state the axis")
        place = normal_axis(0 if axis is None else axis, array.ndim)
        result: Tracer = scan(trace, array, place, dtype)
        if not include_initial:
            return result
        shape = [1 if i == place else n for i, n in enumerate(array.shape)]
        start = _identity_value(opcode, result.dtype)
        head = full(trace, shape, np.asarray(start, result.dtype), result.dtype)
        return concatenate(trace, [head, result], place)

    return rule


def sort(
    trace: Trace,
    a: object,
    axis: int | None = -1,
    kind: object = None,
    order: object = None,
    *,
    stable: object = None,
    descending: bool = False,
) -> Tracer:
    """np.sort: ascending, NaN last; or descending, NaN first."""
    x = as_tracer(trace, a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normal_axis(axis, x.ndim)
    if not x.ndim:
        return x
    before = _before(trace, x, 1, descending=descending)
    return wrap(x, trace.builder.sort((x.instr,), axis, before, stable=True))


def argsort(
    trace: Trace,
    a: object,
    axis: int | None = -1,
    kind: object = None,
    order: object = None,
    *,
    stable: object = None,
    descending: bool = False,
) -> Tracer:
    """np.argsort, stable; or in descending order."""
    x = as_tracer(trace, a)
    if axis is None:
        x, axis = reshape(x, (x.size,)), 0
    axis = normal_axis(axis, x.ndim)
    positions = iota(trace, x.shape, axis)
    operands = (x.instr, positions.instr)
    b = trace.builder
    if not x.ndim:
        return positions
    before = _before(trace, x, 2, descending=descending)
    return wrap(x, b.get_tuple_element(b.sort(operands, axis, before, stable=True), 1))


def _before(
    trace: Trace, x: Tracer, operand_count: int, *, descending: bool = False
) -> HloComputation:
    """``a < b`` of the first operand, NaN after everything else; descending is the reverse of it."""
    name = f"{'greater' if descending else 'less'}_{from_numpy(x.dtype)}_{operand_count}"
    inner = HloBuilder(name, trace.builder.module)
    key = ArrayShape(from_numpy(x.dtype), ())
    a, c = inner.parameter(key, "a"), inner.parameter(key, "b")
    for _ in range(operand_count - 1):
        for name in ("i", "j"):
            inner.parameter(ArrayShape(from_numpy(np.dtype("i4")), ()), name)
    if descending:
        a, c = c, a
    result: HloInstruction = inner.compare(a, c, "LT")
    if is_floating(x.dtype):
        a_number, c_nan = inner.compare(a, a, "EQ"), inner.compare(c, c, "NE")
        result = inner.or_(result, inner.and_(a_number, c_nan))
    assert result.array.dtype == PRED
    return inner.build(result)


def count_nonzero(trace: Trace, a: object, axis: Axis = None, *, keepdims: bool = False) -> Tracer:
    """How many elements are not 0."""
    x = convert(convert(as_tracer(trace, a), _BOOL), np.int32)
    return fold("add", x, normal_axes(axis, x.ndim), keepdims=keepdims)


def ptp(trace: Trace, a: object, axis: Axis = None) -> Tracer:
    """The distance between maximum and minimum."""
    x = as_tracer(trace, a)
    axes = normal_axes(axis, x.ndim)
    return binary("subtract", fold("maximum", x, axes), fold("minimum", x, axes))


def nan_to_num(trace: Trace, x: object, copy: bool = True, nan: float = 0.0) -> Tracer:
    """NaN becomes `nan`; infinities become the largest finite values."""
    array = as_tracer(trace, x)
    if not is_floating(array.dtype):
        return array
    info = np.finfo(np.float32) if array.dtype.itemsize != 2 else None
    if info is None:
        raise UnsupportedError(f"np.nan_to_num of {array.dtype}; convert to float32 first")
    low, high = constant_like(array, float(info.min)), constant_like(array, float(info.max))
    limited = binary("minimum", binary("maximum", array, low), high)
    return select(compare(array, array, "NE"), constant_like(array, nan), limited)


REDUCTION_FUNCTIONS: dict[object, Rule] = {
    np.all: logic_rule("and", of_truth=True),
    np.amax: _extreme_rule("maximum"),
    np.amin: _extreme_rule("minimum"),
    np.any: logic_rule("or", of_truth=True),
    np.argmax: _position_rule("GT"),
    np.argmin: _position_rule("LT"),
    np.argsort: argsort,
    np.count_nonzero: count_nonzero,
    np.cumprod: cumulative_rule("multiply"),
    np.cumsum: cumulative_rule("add"),
    np.max: _extreme_rule("maximum"),
    np.mean: mean,
    np.min: _extreme_rule("minimum"),
    np.nan_to_num: nan_to_num,
    np.prod: _sum_rule("multiply"),
    np.ptp: ptp,
    np.sort: sort,
    np.std: std,
    np.sum: _sum_rule("add"),
    np.var: var,
}

if hasattr(np, "cumulative_sum"):  # since NumPy 2.1
    REDUCTION_FUNCTIONS[np.cumulative_prod] = _cumulative_standard("multiply")
    REDUCTION_FUNCTIONS[np.cumulative_sum] = _cumulative_standard("add")
