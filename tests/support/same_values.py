"""Comparison of arrays to the bit, in tests that need no JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def assert_same(got: Array, want: Array, name: str) -> None:
    """Bit for bit, but any NaN equals any NaN."""
    assert got.dtype == want.dtype and got.shape == want.shape, name
    if "int" in want.dtype.name or want.dtype == bool:
        same = got.astype(object) == want.astype(object)
    else:
        a, b = got.astype(np.float32), want.astype(np.float32)
        same = ((a == b) & (np.signbit(a) == np.signbit(b))) | (np.isnan(a) & np.isnan(b))
    where = np.argwhere(np.logical_not(same))[:3].tolist()
    assert np.all(same), (name, where, got[~same][:3], want[~same][:3])
