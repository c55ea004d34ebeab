"""Literals as the bytes that lie in HBM: tiles, padding (zero) and packing included."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.backend.transfer import hbm_tiling
from compiler.diagnostics import UnsupportedError
from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_text import print_shape
from tpu_sim.isa.geometry import LANES


def device_bytes(literal: npt.NDArray[np.generic], shape: ArrayShape) -> bytes:
    """The bytes of `literal` in the layout of `shape` (descending order)."""
    if shape.dtype.bits < 8:
        raise UnsupportedError(
            f"{print_shape(shape)}: a constant of elements narrower than a byte; use s8"
        )
    tiling = hbm_tiling(shape)
    p = tiling.packing
    values = np.asarray(literal, dtype=shape.dtype.numpy)
    carrier = values.view(np.dtype(f"u{shape.dtype.bits // 8}"))
    if shape.rank < 2:
        flat = np.zeros(tiling.row_tiles * LANES * p, carrier.dtype)
        flat[: carrier.size] = carrier.reshape(-1)
        words = flat.reshape(tiling.row_tiles, p, LANES).transpose(0, 2, 1)
        return np.ascontiguousarray(words).tobytes()
    rows = tiling.granules * p
    padded = np.zeros(
        (*tiling.majors, tiling.row_tiles * rows, tiling.col_tiles * LANES), carrier.dtype
    )
    padded[(..., slice(shape.dims[-2]), slice(shape.dims[-1]))] = carrier
    split = padded.reshape(
        -1, tiling.row_tiles, tiling.granules, p, tiling.col_tiles, LANES
    ).transpose(0, 1, 4, 2, 5, 3)
    return np.ascontiguousarray(split).tobytes()
