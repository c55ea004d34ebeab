"""NumPy functions that are made of others: each rule is NumPy code on traced arrays.

NumPy's types do not know traced arrays: hence `Any`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.ops import as_tracer, iota
from compiler.frontends.numpy.tracer import Rule, Trace

Axes = int | tuple[int, ...] | None


def _array(trace: Trace, value: Any) -> Any:
    return as_tracer(trace, value)


# --- Truth ---------------------------------------------------------------------------------------


def _allclose(
    trace: Trace, a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    close: Any = np.isclose(_array(trace, a), b, rtol, atol)
    if not equal_nan:
        return np.all(close)
    return np.all(close | (np.isnan(_array(trace, a)) & np.isnan(_array(trace, b))))


def _array_equal(trace: Trace, a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = _array(trace, a1), _array(trace, a2)
    if x.shape != y.shape:
        return _array(trace, np.bool_(False))
    same: Any = x == y
    return np.all(same | (np.isnan(x) & np.isnan(y)) if equal_nan else same)


def _isin(
    trace: Trace,
    element: Any,
    test_elements: Any,
    assume_unique: bool = False,
    invert: bool = False,
) -> Any:
    found = np.any(_array(trace, element)[..., None] == np.ravel(_array(trace, test_elements)), -1)
    return np.logical_not(found) if invert else found


def _isneginf(trace: Trace, x: Any) -> Any:
    return _array(trace, x) == -np.inf


def _isposinf(trace: Trace, x: Any) -> Any:
    return _array(trace, x) == np.inf


def _iscomplex(trace: Trace, x: Any) -> Any:
    return np.imag(_array(trace, x)) != 0


def _isreal(trace: Trace, x: Any) -> Any:
    return np.imag(_array(trace, x)) == 0


def _iscomplexobj(trace: Trace, x: Any) -> bool:
    return bool(_array(trace, x).dtype.kind == "c")


def _isrealobj(trace: Trace, x: Any) -> bool:
    return not _iscomplexobj(trace, x)


# --- Elements ------------------------------------------------------------------------------------


def _angle(trace: Trace, z: Any, deg: bool = False) -> Any:
    x = _array(trace, z)
    found = np.arctan2(np.imag(x), np.real(x))
    return np.degrees(found) if deg else found


def _fix(trace: Trace, x: Any) -> Any:
    return np.trunc(_array(trace, x))


def _sinc(trace: Trace, x: Any) -> Any:
    y: Any = np.pi * _array(trace, x)
    safe: Any = np.where(y == 0, 1, y)
    return np.where(y == 0, 1, np.sin(safe) / safe)


def _polyval(trace: Trace, p: Any, x: Any) -> Any:
    coefficients, at = _array(trace, p), _array(trace, x)
    result: Any = np.zeros_like(at)
    for i in range(len(coefficients)):
        result = result * at + coefficients[i]
    return result


def _select(
    trace: Trace, condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0
) -> Any:
    result: Any = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = np.where(_array(trace, condition), choice, result)
    return result


# --- Shapes --------------------------------------------------------------------------------------


def _append(trace: Trace, arr: Any, values: Any, axis: int | None = None) -> Any:
    x, y = _array(trace, arr), _array(trace, values)
    if axis is None:
        return np.concatenate([np.ravel(x), np.ravel(y)])
    return np.concatenate([x, y], axis=axis)


def _array_split(trace: Trace, ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    x = _array(trace, ary)
    if not isinstance(indices_or_sections, int):
        return np.split(x, indices_or_sections, axis=axis)
    size, rest = divmod(x.shape[axis], indices_or_sections)
    ends = np.cumsum([size + (i < rest) for i in range(indices_or_sections)])
    return np.split(x, [int(end) for end in ends[:-1]], axis=axis)


def _atleast_3d(trace: Trace, *arys: Any) -> Any:
    made: list[Any] = []
    for ary in arys:
        x = _array(trace, ary)
        shapes = {0: (1, 1, 1), 1: (1, *x.shape, 1), 2: (*x.shape, 1)}
        made.append(np.reshape(x, shapes.get(x.ndim, x.shape)))
    return made[0] if len(made) == 1 else tuple(made)


def _column_stack(trace: Trace, tup: Sequence[Any]) -> Any:
    columns = [_array(trace, x) for x in tup]
    return np.concatenate([np.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in columns], axis=1)


def _dstack(trace: Trace, tup: Sequence[Any]) -> Any:
    parts = []
    for item in tup:
        x: Any = np.atleast_2d(_array(trace, item))
        parts.append(x[..., None] if x.ndim == 2 else x)
    return np.concatenate(parts, axis=2)


def _unstack(trace: Trace, x: Any, *, axis: int = 0) -> Any:
    moved: Any = np.moveaxis(_array(trace, x), axis, 0)
    return tuple(moved[i] for i in range(len(moved)))


def _splitting(axis_of: Callable[[int], int]) -> Rule:
    def rule(trace: Trace, ary: Any, indices_or_sections: Any) -> Any:
        x = _array(trace, ary)
        return np.split(x, indices_or_sections, axis=axis_of(x.ndim))

    return rule


def _fliplr(trace: Trace, m: Any) -> Any:
    return np.flip(_array(trace, m), 1)


def _flipud(trace: Trace, m: Any) -> Any:
    return np.flip(_array(trace, m), 0)


def _rot90(trace: Trace, m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    x, (first, second) = _array(trace, m), axes
    match k % 4:
        case 0:
            return x
        case 1:
            return np.swapaxes(np.flip(x, second), first, second)
        case 2:
            return np.flip(np.flip(x, first), second)
    return np.flip(np.swapaxes(x, first, second), second)


def _rollaxis(trace: Trace, a: Any, axis: int, start: int = 0) -> Any:
    x = _array(trace, a)
    axis, start = axis % x.ndim, start + x.ndim if start < 0 else start
    return np.moveaxis(x, axis, start - (axis < start))


def _matrix_transpose(trace: Trace, x: Any) -> Any:
    return np.swapaxes(_array(trace, x), -1, -2)


def _meshgrid(
    trace: Trace, *xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy"
) -> Any:
    arrays = [np.ravel(_array(trace, x)) for x in xi]
    count = len(arrays)
    places = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else list(range(count))
    shaped = [
        np.reshape(x, tuple(-1 if i == place else 1 for i in range(count)))
        for x, place in zip(arrays, places, strict=True)
    ]
    return tuple(shaped) if sparse else tuple(np.broadcast_arrays(*shaped))


# --- Diagonals -----------------------------------------------------------------------------------


def _diagonal(trace: Trace, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    x: Any = np.moveaxis(_array(trace, a), (axis1, axis2), (-2, -1))
    rows, columns = x.shape[-2:]
    count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    first = max(-offset, 0) * columns + max(offset, 0)
    flat = np.reshape(x, (*x.shape[:-2], rows * columns))
    return flat[..., first : first + count * (columns + 1) : columns + 1][..., :count]


def _diag(trace: Trace, v: Any, k: int = 0) -> Any:
    x = _array(trace, v)
    if x.ndim == 2:
        return _diagonal(trace, x, k)
    if x.ndim != 1:
        raise CompileError(f"np.diag: {x!r}, want one or two dimensions")
    size = len(x) + abs(k)
    column: Any = np.pad(x, (max(-k, 0), max(k, 0)))[:, None]
    rows, columns = (iota(trace, (size, size), axis) for axis in (0, 1))
    return np.where(columns - rows == k, column, np.zeros((), x.dtype))


def _diagflat(trace: Trace, v: Any, k: int = 0) -> Any:
    return _diag(trace, np.ravel(_array(trace, v)), k)


def _trace(
    trace: Trace, a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None
) -> Any:
    return np.sum(_diagonal(trace, a, offset, axis1, axis2), axis=-1, dtype=dtype)


def _vander(trace: Trace, x: Any, N: int | None = None, increasing: bool = False) -> Any:
    points = _array(trace, x)
    count = len(points) if N is None else N
    powers: list[Any] = [np.ones_like(points)]
    for _ in range(count - 1):
        powers.append(powers[-1] * points)
    return np.stack(powers if increasing else powers[::-1], axis=1)


# --- Products ------------------------------------------------------------------------------------


def _cross(
    trace: Trace,
    a: Any,
    b: Any,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: Any = None,
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    x: Any = np.moveaxis(_array(trace, a), axisa, -1)
    y: Any = np.moveaxis(_array(trace, b), axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise UnsupportedError("np.cross: want vectors of three elements")
    turned = (((i + 1) % 3, (i + 2) % 3) for i in range(3))
    parts = [x[..., j] * y[..., k] - x[..., k] * y[..., j] for j, k in turned]
    return np.stack(parts, axis=axisc)


def _kron(trace: Trace, a: Any, b: Any) -> Any:
    x, y = _array(trace, a), _array(trace, b)
    rank = max(x.ndim, y.ndim)
    left = (1,) * (rank - x.ndim) + x.shape
    right = (1,) * (rank - y.ndim) + y.shape
    spread: Any = np.reshape(x, [n for size in left for n in (size, 1)])
    repeated: Any = np.reshape(y, [n for size in right for n in (1, size)])
    return np.reshape(spread * repeated, [m * n for m, n in zip(left, right, strict=True)])


def _convolve(trace: Trace, a: Any, v: Any, mode: str = "full") -> Any:
    x, w = _array(trace, a), _array(trace, v)
    if len(w) > len(x):
        x, w = w, x
    size, taps = len(x), len(w)
    padded: Any = np.pad(x, (taps - 1, taps - 1))
    places = np.arange(size + taps - 1)[:, None] + np.arange(taps)[None, ::-1]
    whole: Any = np.sum(padded[places] * w, axis=1).astype(np.result_type(x.dtype, w.dtype))
    starts = {
        "full": (0, size + taps - 1),
        "same": ((taps - 1) // 2, size),
        "valid": (taps - 1, size - taps + 1),
    }
    if mode not in starts:
        raise UnsupportedError(f"np.convolve: mode={mode!r}")
    first, count = starts[mode]
    return whole[first : first + count]


def _correlate(trace: Trace, a: Any, v: Any, mode: str = "valid") -> Any:
    w = _array(trace, v)
    x = _array(trace, a)
    if len(w) > len(x):
        raise UnsupportedError("np.correlate: the second array is longer than the first")
    return _convolve(trace, x, np.conj(w)[::-1], mode)


def _cov(
    trace: Trace,
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
) -> Any:
    if y is not None:
        raise UnsupportedError("np.cov: argument 'y' cannot be traced; stack the arrays")
    x: Any = np.atleast_2d(_array(trace, m))
    x = x if rowvar or x.shape[0] == 1 else x.T
    taken = (0 if bias else 1) if ddof is None else ddof
    centred: Any = x - np.mean(x, axis=1, keepdims=True)
    found: Any = centred @ np.conj(centred).T / (x.shape[1] - taken)
    return found[0, 0] if found.shape == (1, 1) else found


def _corrcoef(trace: Trace, x: Any, y: Any = None, rowvar: bool = True) -> Any:
    covariance: Any = _cov(trace, x, y, rowvar)
    if not covariance.shape:
        return covariance / covariance
    deviation: Any = np.sqrt(np.real(_diagonal(trace, covariance)))
    return covariance / deviation[:, None] / deviation[None, :]


def _trapezoid(trace: Trace, y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    values: Any = np.moveaxis(_array(trace, y), axis, -1)
    steps: Any = dx
    if x is not None:
        points = _array(trace, x)
        steps = np.diff(points if points.ndim == 1 else np.moveaxis(points, axis, -1))
    return np.sum(steps * (values[..., 1:] + values[..., :-1]) / 2, axis=-1)


# --- Order ---------------------------------------------------------------------------------------


def _searchsorted(trace: Trace, a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    bins, values = _array(trace, a), _array(trace, v)
    ordered: Any = bins if sorter is None else np.take(bins, sorter)
    below: Any = ordered < values[..., None] if side == "left" else ordered <= values[..., None]
    return np.sum(below, axis=-1, dtype=np.int32)


def _digitize(trace: Trace, x: Any, bins: Any, right: bool = False) -> Any:
    edges = np.asarray(bins) if isinstance(bins, Sequence) else bins
    if not isinstance(edges, np.ndarray):
        raise UnsupportedError("np.digitize: want bins whose values are known while tracing")
    side = "left" if right else "right"
    if len(edges) > 1 and edges[0] > edges[-1]:
        return len(edges) - _searchsorted(trace, edges[::-1], x, side)
    return _searchsorted(trace, edges, x, side)


def _interp(
    trace: Trace, x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None
) -> Any:
    if period is not None:
        raise UnsupportedError("np.interp: argument 'period' cannot be traced")
    at, points, values = (_array(trace, value) for value in (x, xp, fp))
    place: Any = np.clip(_searchsorted(trace, points, at, "right") - 1, 0, len(points) - 2)
    low: Any = np.take(points, place)
    share: Any = (at - low) / (np.take(points, place + 1) - low)
    start: Any = np.take(values, place)
    inside: Any = start + share * (np.take(values, place + 1) - start)
    first, last = values[0], values[-1]
    inside = np.where(at <= points[0], first, inside)
    inside = np.where(at >= points[-1], last, inside)
    inside = inside if left is None else np.where(at < points[0], left, inside)
    return inside if right is None else np.where(at > points[-1], right, inside)


def _quantile(
    trace: Trace,
    a: Any,
    q: Any,
    axis: int | None = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
) -> Any:
    if method != "linear":
        raise UnsupportedError(f"np.quantile: method={method!r}, only 'linear'")
    x: Any = _array(trace, a)
    original = x.ndim
    x = np.ravel(x) if axis is None else np.moveaxis(x, axis, -1)
    ordered: Any = np.sort(x, axis=-1)
    share: Any = _array(trace, q)
    share = share if share.dtype.kind == "f" else share.astype(np.float32)
    place: Any = share * (x.shape[-1] - 1)
    low: Any = np.floor(place)
    first: Any = np.take(ordered, low.astype(np.int32), axis=-1)
    second: Any = np.take(ordered, np.ceil(place).astype(np.int32), axis=-1)
    found: Any = first + (second - first) * (place - low)
    bad: Any = np.any(np.isnan(x), axis=-1)
    found = np.where(np.reshape(bad, bad.shape + (1,) * share.ndim), np.nan, found)
    found = np.moveaxis(found, -1, 0) if share.ndim else found
    if not keepdims:
        return found
    if axis is None:
        return np.reshape(found, share.shape + (1,) * original)
    return np.expand_dims(found, share.ndim + axis % original)


def _percentile(trace: Trace, a: Any, q: Any, axis: int | None = None, **options: Any) -> Any:
    share: Any = _array(trace, q)
    return _quantile(trace, a, share / 100, axis, **options)


def _median(trace: Trace, a: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
    return _quantile(trace, a, 0.5, axis, keepdims=keepdims)


# --- Without NaN ---------------------------------------------------------------------------------


def _filled(trace: Trace, a: Any, value: float) -> Any:
    x = _array(trace, a)
    return np.where(np.isnan(x), np.array(value, x.dtype), x) if x.dtype.kind in "fcV" else x


def _ignoring(function: Callable[..., Any], neutral: float) -> Rule:
    """A reduction in which NaN counts as `neutral`."""

    def rule(trace: Trace, a: Any, axis: Any = None, **options: Any) -> Any:
        return function(_filled(trace, a, neutral), axis=axis, **options)

    return rule


def _extreme(function: Callable[..., Any], neutral: float) -> Rule:
    """An extremum of what is no NaN; NaN where there is nothing else."""

    def rule(trace: Trace, a: Any, axis: Any = None, keepdims: bool = False) -> Any:
        x = _array(trace, a)
        if x.dtype.kind not in "fV":
            return function(x, axis=axis, keepdims=keepdims)
        found = function(_filled(trace, x, neutral), axis=axis, keepdims=keepdims)
        return np.where(
            np.all(np.isnan(x), axis=axis, keepdims=keepdims), np.array(np.nan, x.dtype), found
        )

    return rule


def _nanmean(trace: Trace, a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    x: Any = _array(trace, a)
    count: Any = np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)
    return np.sum(_filled(trace, x, 0), axis=axis, keepdims=keepdims) / count


def _nanvar(
    trace: Trace, a: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False
) -> Any:
    x: Any = _array(trace, a)
    count: Any = np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)
    centred: Any = _filled(trace, x - _nanmean(trace, x, axis, keepdims=True), 0)
    return np.sum(np.abs(centred) ** 2, axis=axis, keepdims=keepdims) / (count - ddof)


def _nanstd(
    trace: Trace, a: Any, axis: Any = None, *, ddof: int = 0, keepdims: bool = False
) -> Any:
    return np.sqrt(_nanvar(trace, a, axis, ddof=ddof, keepdims=keepdims))


# --- np.linalg -----------------------------------------------------------------------------------


def _vector_norm(
    trace: Trace, x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2
) -> Any:
    size: Any = np.abs(_array(trace, x))
    if ord in (np.inf, -np.inf):
        return (np.max if ord > 0 else np.min)(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return np.sum(size != 0, axis=axis, keepdims=keepdims).astype(size.dtype)
    if ord == 1:
        return np.sum(size, axis=axis, keepdims=keepdims)
    if ord == 2:
        return np.sqrt(np.sum(size * size, axis=axis, keepdims=keepdims))
    return np.sum(size**ord, axis=axis, keepdims=keepdims) ** (1.0 / ord)


def _norm(trace: Trace, x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Any:
    value: Any = _array(trace, x)
    axes = tuple(range(value.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    if ord is None or ord == "fro" or len(axes) == 1:
        order = 2 if ord in (None, "fro") else ord
        return _vector_norm(trace, value, axis=axes, keepdims=keepdims, ord=order)
    if len(axes) != 2 or ord not in (1, -1, np.inf, -np.inf):
        raise UnsupportedError(f"np.linalg.norm: ord={ord!r} of axes {axes}")
    rows, columns = axes
    inner, outer = (rows, columns) if ord in (1, -1) else (columns, rows)
    sums: Any = np.sum(np.abs(value), axis=inner, keepdims=True)
    found = (np.max if ord > 0 else np.min)(sums, axis=outer, keepdims=True)
    return found if keepdims else np.squeeze(found, axes)


def _cholesky(trace: Trace, a: Any, *, upper: bool = False) -> Any:
    x: Any = _array(trace, a)
    x = x if x.dtype.kind in "fc" else x.astype(np.float32)
    made = trace.builder.instruction("cholesky", (x.instr,), {"lower": True})
    lower = np.tril(type(x)(trace, made))
    return np.conj(np.swapaxes(lower, -1, -2)) if upper else lower


def _matrix_power(trace: Trace, a: Any, n: int) -> Any:
    x: Any = _array(trace, a)
    if n < 0:
        raise UnsupportedError("np.linalg.matrix_power: want a power that is not negative")
    if n == 0:
        return np.broadcast_to(_array(trace, np.eye(x.shape[-1], dtype=x.dtype)), x.shape)
    result, square = None, x
    while n:
        if n & 1:
            result = square if result is None else result @ square
        n >>= 1
        square = square @ square if n else square
    return result


def _multi_dot(trace: Trace, arrays: Sequence[Any]) -> Any:
    return functools.reduce(np.dot, [_array(trace, x) for x in arrays])


def _vecdot(trace: Trace, x1: Any, x2: Any, *, axis: int = -1) -> Any:
    return np.sum(np.conj(_array(trace, x1)) * _array(trace, x2), axis=axis)


def _matvec(trace: Trace, x1: Any, x2: Any) -> Any:
    product: Any = np.matmul(_array(trace, x1), _array(trace, x2)[..., None])
    return product[..., 0]


def _vecmat(trace: Trace, x1: Any, x2: Any) -> Any:
    product: Any = np.matmul(np.conj(_array(trace, x1))[..., None, :], _array(trace, x2))
    return product[..., 0, :]


def _last_two(function: Rule) -> Rule:
    """The form of `np.linalg`, which works on the last two axes."""

    def rule(trace: Trace, x: Any, *, offset: int = 0, **options: Any) -> Any:
        return function(trace, x, offset, -2, -1, **options)

    return rule


COMPOSED_UFUNCS: dict[np.ufunc, Rule] = {np.vecdot: _vecdot}
for _name, _rule in (("matvec", _matvec), ("vecmat", _vecmat)):  # since NumPy 2.2
    if hasattr(np, _name):
        COMPOSED_UFUNCS[getattr(np, _name)] = _rule

COMPOSED_FUNCTIONS: dict[object, Rule] = {
    np.allclose: _allclose,
    np.angle: _angle,
    np.append: _append,
    np.array_equal: _array_equal,
    np.array_split: _array_split,
    np.atleast_3d: _atleast_3d,
    np.column_stack: _column_stack,
    np.convolve: _convolve,
    np.corrcoef: _corrcoef,
    np.correlate: _correlate,
    np.cov: _cov,
    np.cross: _cross,
    np.diag: _diag,
    np.diagflat: _diagflat,
    np.diagonal: _diagonal,
    np.digitize: _digitize,
    np.dsplit: _splitting(lambda rank: 2),
    np.dstack: _dstack,
    np.fix: _fix,
    np.fliplr: _fliplr,
    np.flipud: _flipud,
    np.hsplit: _splitting(lambda rank: min(1, rank - 1)),
    np.interp: _interp,
    np.iscomplex: _iscomplex,
    np.iscomplexobj: _iscomplexobj,
    np.isin: _isin,
    np.isneginf: _isneginf,
    np.isposinf: _isposinf,
    np.isreal: _isreal,
    np.isrealobj: _isrealobj,
    np.kron: _kron,
    np.linalg.cholesky: _cholesky,
    np.linalg.cross: lambda trace, x1, x2, *, axis=-1: _cross(trace, x1, x2, axis=axis),
    np.linalg.diagonal: _last_two(_diagonal),
    np.linalg.matmul: lambda trace, x1, x2: np.matmul(_array(trace, x1), x2),
    np.linalg.matrix_norm: lambda trace, x, *, keepdims=False, ord="fro": _norm(
        trace, x, ord, (-2, -1), keepdims
    ),
    np.linalg.matrix_power: _matrix_power,
    np.linalg.matrix_transpose: _matrix_transpose,
    np.linalg.multi_dot: _multi_dot,
    np.linalg.norm: _norm,
    np.linalg.outer: lambda trace, x1, x2: np.outer(_array(trace, x1), x2),
    np.linalg.tensordot: lambda trace, x1, x2, *, axes=2: np.tensordot(_array(trace, x1), x2, axes),
    np.linalg.trace: _last_two(_trace),
    np.linalg.vecdot: _vecdot,
    np.linalg.vector_norm: _vector_norm,
    np.matrix_transpose: _matrix_transpose,
    np.median: _median,
    np.meshgrid: _meshgrid,
    np.nanargmax: _ignoring(np.argmax, -np.inf),
    np.nanargmin: _ignoring(np.argmin, np.inf),
    np.nancumprod: _ignoring(np.cumprod, 1),
    np.nancumsum: _ignoring(np.cumsum, 0),
    np.nanmax: _extreme(np.max, -np.inf),
    np.nanmean: _nanmean,
    np.nanmin: _extreme(np.min, np.inf),
    np.nanprod: _ignoring(np.prod, 1),
    np.nanstd: _nanstd,
    np.nansum: _ignoring(np.sum, 0),
    np.nanvar: _nanvar,
    np.percentile: _percentile,
    np.polyval: _polyval,
    np.quantile: _quantile,
    np.rollaxis: _rollaxis,
    np.rot90: _rot90,
    np.searchsorted: _searchsorted,
    np.select: _select,
    np.sinc: _sinc,
    np.trace: _trace,
    np.trapezoid: _trapezoid,
    np.vander: _vander,
    np.vsplit: _splitting(lambda rank: 0),
}
if hasattr(np, "unstack"):  # since NumPy 2.1
    COMPOSED_FUNCTIONS[np.unstack] = _unstack
