"""Whether two results are the same: bit for bit but for NaN, or within a declared freedom."""

from __future__ import annotations

import numpy as np

from benchmarks.rule_fuzz.values import Array
from compiler.rewrite.rewriter import Freedom

_DIGITS = {4: 24, 2: 8, 1: 3, 8: 24}


def difference(want: Array, got: Array, freedom: Freedom) -> str:
    """What is wrong with `got`, or nothing."""
    want, got = np.asarray(want), np.asarray(got)
    if want.shape != got.shape or want.dtype != got.dtype:
        return f"{got.dtype}{list(got.shape)}, wanted {want.dtype}{list(want.shape)}"
    if want.dtype.kind in "biu" or str(want.dtype) in ("int4", "uint4", "int2", "uint2"):
        wrong = np.asarray(want != got)
    elif want.dtype.kind == "c":
        wrong = _wrong_floats(want.real, got.real, freedom) | _wrong_floats(
            want.imag, got.imag, freedom
        )
    else:
        wrong = _wrong_floats(want, got, freedom)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.ndim else ()
    return f"{int(wrong.sum())} of {wrong.size} differ; at {at}: {got[at]}, wanted {want[at]}"


def _wrong_floats(want: Array, got: Array, freedom: Freedom) -> Array:
    with np.errstate(all="ignore"):
        a, b = want.astype(np.float64), got.astype(np.float64)
        both_nan = np.isnan(a) & np.isnan(b)
        same = (a == b) & (np.signbit(a) == np.signbit(b))
        if Freedom.SIGN_OF_ZERO in freedom:
            same |= a == b
        if Freedom.ROUNDING in freedom:
            step = 2.0 ** -_digits(want)
            scale = np.maximum(np.abs(a), np.max(np.abs(a), initial=0.0, where=np.isfinite(a)) * step)
            same |= np.abs(a - b) <= 32 * step * scale
        return np.asarray(~(same | both_nan))


def _digits(array: Array) -> int:
    name = str(array.dtype)
    return 10 if name == "float16" else _DIGITS[array.dtype.itemsize]
