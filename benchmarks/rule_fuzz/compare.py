"""Whether two results are the same: bit for bit but for NaN, or within a declared freedom."""

from __future__ import annotations

import numpy as np

from benchmarks.rule_fuzz.values import Array
from compiler.rewrite.rewriter import Freedom


def difference(want: Array, got: Array, freedom: Freedom) -> str:
    """What is wrong with `got`, or nothing."""
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype}{list(got.shape)}, wanted {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "biu" or str(want.dtype) in ("int4", "uint4", "int2", "uint2"):
        wrong = np.asarray(want != got)
    else:
        wrong = (
            _wrong_complex(want, got, freedom)
            if want.dtype.kind == "c"
            else _wrong_floats(want, got, freedom)
        )
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} differ; at {at}: {got[at]}, wanted {want[at]}"


def _wrong_complex(want: Array, got: Array, freedom: Freedom) -> Array:
    if Freedom.COMPLEX_PARTS in freedom:
        freedom |= Freedom.SIGN_OF_ZERO
    scale = np.abs(want.astype(np.complex128))
    if Freedom.BRANCH_SIDE in freedom:
        want, got = (np.abs(v.real) + 1j * np.abs(v.imag) for v in (want, got))
        want, got = want.astype(np.complex64), got.astype(np.complex64)
    wrong = _wrong_floats(want.real, got.real, freedom, scale)
    wrong = wrong | _wrong_floats(want.imag, got.imag, freedom, scale)
    if Freedom.BRANCH_SIDE in freedom:
        wrong &= ~np.isnan(want)  # NumPy has no direction of some infinities
    if Freedom.COMPLEX_PARTS in freedom:
        wrong = wrong & (np.isfinite(want) | np.isfinite(got))
    return np.asarray(wrong)


def _wrong_floats(want: Array, got: Array, freedom: Freedom, scale: Array | None = None) -> Array:
    a, b = want.astype(np.float64), got.astype(np.float64)
    same = (a == b) & (np.signbit(a) == np.signbit(b)) | np.isnan(a) & np.isnan(b)
    if Freedom.SIGN_OF_ZERO in freedom:
        same |= a == b
    step = 2.0 ** -_digits(want)
    if Freedom.ROUNDING in freedom:
        size = np.abs(a) if scale is None else scale
        same |= np.isfinite(a) & (np.abs(a - b) <= np.maximum(32 * step * size, 2.0**-148))
    if Freedom.OVERFLOW in freedom:
        same |= ~(np.isfinite(a) & np.isfinite(b))
    if Freedom.ORDER in freedom:
        if want.dtype.itemsize == 1:
            return np.zeros(want.shape, np.bool_)  # a sum in 8 bits is anything
        largest = np.max(np.abs(a), initial=1.0, where=np.isfinite(a))
        same |= ~(np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) > 32 * step * largest))
    return np.asarray(~same)


def _digits(array: Array) -> int:
    """Binary digits of a float type."""
    return {"float16": 11, "bfloat16": 8}.get(str(array.dtype), 24)
