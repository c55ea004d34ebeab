"""Which element type stands for a host array's on the device.

Host arrays of f64, s64, u64 and c128 become their 32-bit (64-bit) kin, as in JAX by default. A program
that names s64 or u64 has them: the chip computes them as pairs of words. No chip has f64.
"""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError, users_frame
from compiler.hlo.dtypes import BY_NUMPY

NumpyDType = np.dtype[np.generic]

_ON_DEVICE: dict[NumpyDType, NumpyDType] = {
    np.dtype(np.float64): np.dtype(np.float32),
    np.dtype(np.int64): np.dtype(np.int32),
    np.dtype(np.uint64): np.dtype(np.uint32),
    np.dtype(np.complex128): np.dtype(np.complex64),
}
_WIDE_INTEGERS = (np.dtype(np.int64), np.dtype(np.uint64))


class PrecisionWarning(UserWarning):
    """Host values of 64-bit floats are computed in 32 bits."""


@cache
def _warn_about_f64_once() -> None:
    message = "float64 arrays become float32 on the device; pass float32 to silence this warning"
    warnings.warn(message, PrecisionWarning, stacklevel=1 + users_frame()[1])


def device_dtype(dtype: object, *, warns: bool = False) -> NumpyDType:
    """The type that holds host values of `dtype` on the device; CompileError when HLO has none."""
    host = np.dtype(dtype)  # type: ignore[call-overload]  # whatever the user hands to NumPy
    if warns and host == np.float64:
        _warn_about_f64_once()
    found: NumpyDType = _ON_DEVICE.get(host, host)
    if found not in BY_NUMPY:
        raise CompileError(f"dtype {host} has no element type on the device")
    return found


def stated_dtype(dtype: object) -> NumpyDType:
    """The type that a program means by naming `dtype`: Python's own types are of 32 bits, 64-bit integers
    stay what they are, f64 and c128 become f32 and c64. CompileError for types that HLO does not have."""
    if dtype is int:
        return np.dtype(np.int32)
    host = np.dtype(dtype)  # type: ignore[call-overload]  # whatever the user hands to NumPy
    return host if host in _WIDE_INTEGERS else device_dtype(host)


def fitted(host: npt.NDArray[np.generic], dtype: NumpyDType) -> npt.NDArray[np.generic]:
    """`host` in the type that stands for its own; CompileError for integers that do not fit."""
    if host.dtype == dtype:
        return host
    if host.dtype.kind in "iu" and dtype.kind in "iu" and host.size:
        limits = np.iinfo(dtype.name)
        low, high = int(host.min()), int(host.max())
        if low < limits.min or high > limits.max:
            found = low if low < limits.min else high
            raise CompileError(f"integer {found} of an array of {host.dtype} does not fit {dtype}")
    return host.astype(dtype)
