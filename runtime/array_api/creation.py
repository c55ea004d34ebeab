"""Arrays made of nothing or of values of the host: parts of the program being traced, else on a device.

Outside of a trace the host makes the values and copies them to the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.frontends.numpy import creation as rules
from compiler.frontends.numpy.methods import ArrayMethods
from compiler.frontends.numpy.tracer import Trace, Tracer, open_trace
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.host_types import NumpyDType, fitted
from runtime.api import DEFAULT_TARGET
from runtime.array_api.types import DEFAULTS, default_dtype, known_dtype
from runtime.buffer import place
from runtime.client import Device, device_for

Dims = int | Sequence[int]
Where = Device | str | None


def asarray(
    obj: Any, /, dtype: Any = None, *, device: Where = None, copy: bool | None = None
) -> Any:
    """An array of values: an array of any kind, a number, nested sequences of them.

    Integers become int32, floats float32 unless a type is stated. Raises `OverflowError` for integers that
    the stated type does not hold, `CompileError` for those that int32 does not, ValueError for
    ``copy=False`` of what must be copied.
    """
    want = known_dtype(dtype)
    if isinstance(obj, ArrayMethods):
        return _converted(obj, want, device, copy)
    if isinstance(obj, list | tuple) and _holds_device_arrays(obj):
        parts = [asarray(item, dtype=want, device=device) for item in obj]
        return np.stack(parts)
    if copy is False:
        raise ValueError("asarray: values of the host are always copied; want copy=None or True")
    return put(_host_array(obj, want), want, device)


def _converted(x: Any, want: NumpyDType | None, device: Where, copy: bool | None) -> Any:
    is_same = want is None or x.dtype == want
    home = None if device is None or isinstance(x, Tracer) else device_for(device)
    is_here = home is None or home is x.device
    if copy is False and not (is_same and is_here):
        raise ValueError("asarray: another type or device needs a copy; want copy=None or True")
    moved = x if is_here else x.to_device(home)
    made = moved if is_same else moved.astype(want)
    return made.copy() if copy and made is x else made


def _holds_device_arrays(tree: Any) -> bool:
    if isinstance(tree, list | tuple):
        return any(_holds_device_arrays(item) for item in tree)
    return isinstance(tree, ArrayMethods)


def _host_array(obj: Any, want: NumpyDType | None) -> np.ndarray[Any, Any]:
    if isinstance(obj, np.ndarray | np.generic) or want is None or want.kind == "V":
        return np.asarray(obj)
    return np.asarray(obj, want)


def put(host: np.ndarray[Any, Any], want: NumpyDType | None, device: Where = None) -> Any:
    """A host array as an array of a type, or of the type that stands for its own."""
    dtype = default_dtype(host.dtype) if want is None else want
    values = fitted(host, dtype) if want is None else host.astype(dtype)
    trace = open_trace()
    if trace is not None:
        return Tracer(trace, trace.builder.literal(values))
    return place(values, from_numpy(dtype), device_for(device or DEFAULT_TARGET))


def astype(x: Any, dtype: Any, /, *, copy: bool = True, device: Where = None) -> Any:
    """The values in another type, perhaps on another device."""
    return asarray(x, dtype=dtype, device=device, copy=True if copy else None)


def array(object: Any, dtype: Any = None, *, copy: bool | None = True, device: Where = None) -> Any:
    """As `asarray`, called as NumPy's."""
    return asarray(object, dtype=dtype, device=device, copy=copy)


def from_dlpack(x: Any, /, *, device: Where = None, copy: bool | None = None) -> Any:
    """An array of another library, copied through host memory; of tpuc's own, itself."""
    if isinstance(x, ArrayMethods):
        return _converted(x, None, device, copy)
    if copy is False:
        raise BufferError("from_dlpack: what comes to the device is always a copy")
    host = np.from_dlpack(x)
    dtype = host.dtype if host.dtype.kind in "iu" else default_dtype(host.dtype)
    return put(host, dtype, device)


def dims_of(shape: Dims) -> tuple[int, ...]:
    """A size alone is one dimension."""
    return (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)


def full(shape: Dims, fill_value: Any, dtype: Any = None, *, device: Where = None) -> Any:
    """One value everywhere, by default in its own type."""
    want, dims = known_dtype(dtype), dims_of(shape)
    trace = open_trace()
    if isinstance(fill_value, ArrayMethods):
        return np.broadcast_to(asarray(fill_value, dtype=want, device=device), dims)
    host = _host_array(fill_value, want)
    dtype = default_dtype(host.dtype) if want is None else want
    value = fitted(host, dtype) if want is None else host.astype(dtype)
    if trace is not None:
        return trace.run("full", rules.filled, (dims, value, dtype), {})
    return put(np.full(dims, value), dtype, device)


def zeros(shape: Dims, dtype: Any = None, *, device: Where = None) -> Any:
    """Zeros, by default float32."""
    return full(shape, 0, dtype=dtype or DEFAULTS["real floating"], device=device)


def ones(shape: Dims, dtype: Any = None, *, device: Where = None) -> Any:
    """Ones, by default float32."""
    return full(shape, 1, dtype=dtype or DEFAULTS["real floating"], device=device)


empty = zeros
"""Nothing on the chip is uninitialised."""


def _like(x: Any, dtype: Any, device: Where) -> tuple[NumpyDType | None, Where]:
    source: Any = x if isinstance(x, ArrayMethods) else asarray(x)
    return known_dtype(dtype or source.dtype), device or source.device


def full_like(
    x: Any, /, fill_value: Any, dtype: Any = None, *, device: Where = None, shape: Any = None
) -> Any:
    """One value in the dimensions, the type and on the device of `x`, unless others are stated."""
    want, where = _like(x, dtype, device)
    dims = np.shape(x) if shape is None else shape
    return full(dims, fill_value, dtype=want, device=where)


def zeros_like(x: Any, /, dtype: Any = None, *, device: Where = None, shape: Any = None) -> Any:
    """Zeros in the dimensions and the type of `x`."""
    return full_like(x, 0, dtype=dtype, device=device, shape=shape)


def ones_like(x: Any, /, dtype: Any = None, *, device: Where = None, shape: Any = None) -> Any:
    """Ones in the dimensions and the type of `x`."""
    return full_like(x, 1, dtype=dtype, device=device, shape=shape)


empty_like = zeros_like


def arange(
    start: float, /, stop: float | None = None, step: float = 1, dtype: Any = None, *,
    device: Where = None,
) -> Any:  # fmt: skip
    """Evenly spaced values in ``[start, stop)``, or from 0 to `start` when that is given alone.

    Raises OverflowError for integers that the element type does not hold.
    """
    first, last = (0, start) if stop is None else (start, stop)
    is_whole = all(isinstance(n, int | np.integer) for n in (first, last, step))
    want = known_dtype(dtype) or DEFAULTS["integral" if is_whole else "real floating"]
    trace = open_trace()
    if is_whole and want.kind in "iuf":
        values = range(int(first), int(last), int(step))
        rules.require_fit(values, want)
        if trace is not None:
            return trace.run("arange", rules.counted, (values, want), {})
    host = np.arange(first, last, step)
    if not is_whole and want.kind in "iu":  # NumPy would take whole steps
        host = np.trunc(host)
    return put(host, want, device)


def linspace(
    start: Any, stop: Any, /, num: int = 50, endpoint: bool = True, retstep: bool = False,
    dtype: Any = None, axis: int = 0, *, device: Where = None,
) -> Any:  # fmt: skip
    """`num` evenly spaced values from `start` to `stop`, that one left out without `endpoint`; with `retstep`
    and what lies between two."""
    if retstep:
        spread = linspace(start, stop, num, endpoint, False, dtype, axis, device=device)
        return spread, (stop - start) / max(num - endpoint, 1)
    kind = "complex floating" if isinstance(start + stop, complex) else "real floating"
    want = known_dtype(dtype) or DEFAULTS[kind]
    if isinstance(start, ArrayMethods) or isinstance(stop, ArrayMethods):
        made: Any = np.linspace(start, stop, num, endpoint, axis=axis)
        return made.astype(want)
    return put(np.linspace(start, stop, num, endpoint, axis=axis), want, device)


def logspace(
    start: float, stop: float, num: int = 50, endpoint: bool = True, base: float = 10.0,
    dtype: Any = None, *, device: Where = None,
) -> Any:  # fmt: skip
    """`num` values from ``base**start`` to ``base**stop``, evenly spaced in their logarithm."""
    want = known_dtype(dtype) or DEFAULTS["real floating"]
    return put(np.logspace(start, stop, num, endpoint, base), want, device)


def geomspace(
    start: float, stop: float, num: int = 50, endpoint: bool = True, dtype: Any = None, *,
    device: Where = None,
) -> Any:  # fmt: skip
    """`num` values from `start` to `stop`, evenly spaced in their logarithm."""
    want = known_dtype(dtype) or DEFAULTS["real floating"]
    return put(np.geomspace(start, stop, num, endpoint), want, device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    k: int = 0,
    dtype: Any = None,
    *,
    device: Where = None,
) -> Any:
    """Ones on the `k`-th diagonal, zeros elsewhere."""
    return _diagonal_mask(n_rows, n_cols, k, "EQ", dtype, device)


def identity(n: int, dtype: Any = None, *, device: Where = None) -> Any:
    """The square matrix with ones on its diagonal."""
    return eye(n, dtype=dtype, device=device)


def tri(
    N: int, M: int | None = None, k: int = 0, dtype: Any = None, *, device: Where = None
) -> Any:
    """Ones at and below the `k`-th diagonal, zeros above."""
    return _diagonal_mask(N, M, k, "LE", dtype, device)


def _diagonal_mask(
    rows: int, columns: int | None, k: int, direction: str, dtype: Any, device: Where
) -> Any:
    """Where ``column - row`` compares to k."""
    shape = (int(rows), int(rows if columns is None else columns))
    want = known_dtype(dtype) or DEFAULTS["real floating"]
    trace: Trace | None = open_trace()
    if trace is not None:
        return trace.run("eye", rules.diagonal_mask, (shape, k, direction, want), {})
    host = np.eye(*shape, k) if direction == "EQ" else np.tri(*shape, k)
    return put(host, want, device)


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Where = None) -> Any:
    """The frequencies of a Fourier transform of n values `d` apart."""
    return put(np.fft.fftfreq(n, d), known_dtype(dtype) or DEFAULTS["real floating"], device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Where = None) -> Any:
    """The frequencies of the Fourier transform of n real values `d` apart."""
    return put(np.fft.rfftfreq(n, d), known_dtype(dtype) or DEFAULTS["real floating"], device)


def _window(function: Any) -> Any:
    def window(M: int, *args: float, dtype: Any = None, device: Where = None) -> Any:
        return put(function(M, *args), known_dtype(dtype) or DEFAULTS["real floating"], device)

    window.__name__, window.__doc__ = function.__name__, f"As np.{function.__name__}, in float32."
    return window


bartlett, blackman, hamming, hanning, kaiser = map(
    _window, (np.bartlett, np.blackman, np.hamming, np.hanning, np.kaiser)
)
