"""Whether the two sides computed the same: their outputs compared, one at a time and in pieces.

The sides round differently (one bf16 pass on the MXU here, f32 there), and a discrete choice that
hangs on a rounding, such as the nearest centre of kmeans, moves single elements far. The measure is
therefore one of the whole output: for floats the norm of the difference over the norm of XLA:CPU's,
for integers and truth values the share of elements that differ.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.performance.inputs import Array

TOLERANCE = 0.02
_PIECE = 1 << 22


def stored(array: Array) -> Array:
    """The array in a type that ``.npy`` files know: narrow floats as f32."""
    is_known = array.dtype.kind in "biufc" and array.dtype.isbuiltin == 1
    return array if is_known else array.astype(np.float32)


def file_difference(ours: Path, theirs: Path) -> float:
    """`difference` of two ``.npy`` files."""
    return difference(np.load(ours, mmap_mode="r"), np.load(theirs, mmap_mode="r"))


def difference(ours: Array, theirs: Array) -> float:
    """How far `ours` is from `theirs`; 0 if equal, infinite if they differ in kind or dimensions.

    Equal infinities and NaNs on both sides are equal; on one side alone they are infinitely far.
    """
    if ours.shape != theirs.shape or ours.dtype.kind != theirs.dtype.kind:
        return math.inf
    a, b = ours.reshape(-1), theirs.reshape(-1)
    pieces = [slice(start, start + _PIECE) for start in range(0, a.size, _PIECE)]
    if ours.dtype.kind in "biu":
        return sum(int((a[p] != b[p]).sum()) for p in pieces) / max(a.size, 1)
    sums = np.array([_squares(a[p], b[p]) for p in pieces]).reshape(-1, 2).sum(axis=0)
    apart, size = math.sqrt(sums[0]), math.sqrt(sums[1])
    return apart / size if size else apart


def _squares(a: npt.NDArray[np.generic], b: npt.NDArray[np.generic]) -> tuple[float, float]:
    """Sums of the squares of a - b and of b."""
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    x, y = a.astype(wide), b.astype(wide)
    with np.errstate(all="ignore"):
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        apart = np.where(same, 0, np.abs(x - y))
        size = np.where(np.isfinite(y), np.abs(y), 0)
    apart = np.where(np.isnan(apart), np.inf, apart)
    return float((apart**2).sum()), float((size**2).sum())
