"""The plane in which the bytes of an array are exchanged: with as little padding as can be.

What is sent is what lies in memory, and there rows are filled up to 128 lanes: f32[152,152,16] takes eight
times its elements' bytes, f32[512,16,1] 128 times. Other planes of the same elements are full:

    f32[152,152,16] -> [2888,128]        f32[150,150,16] -> [150,2400]        s32[512,16,1] -> [64,128]

Bringing an array into another plane reads and writes it once, in HBM, which is many times as fast as a link.
"""

from __future__ import annotations

import math

from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import LANES

Plane = tuple[int, int]

_LEAST_SAVED = 1 << 16
"""Bytes that a link takes in about the time of a kernel's launch."""
_READ = 0.25
"""Bytes sent in the time in which one is read or written as it lies, there and back."""
_REPACKED = 4.0
"""Bytes sent in the time in which one of an element is put into another lane, there and back (fitted: gathers
and all-to-alls of 16 to 64 lanes of f32 and bf16 on v5e, within a factor of two)."""


def plane_of(shape: ArrayShape, copies: int) -> Plane:
    """Two dimensions with the same elements in the same order, for what a device sends `copies` of."""
    dims = shape.dims
    if not dims:
        return 1, 1
    own = (math.prod(dims[:-1]), dims[-1])
    size = shape.element_count
    ends = [math.prod(dims[k:]) for k in range(1, len(dims) - 1)]
    columns = [LANES] * (size % LANES == 0) + ends[::-1]
    planes = [(size // c, c) for c in columns if c]
    best = min(planes, key=lambda plane: _bytes(shape, plane), default=own)
    have, least = _bytes(shape, own), _bytes(shape, best)
    saved = have - least
    is_better = saved >= _LEAST_SAVED and saved * copies > _REPACKED * least + _READ * have
    return best if is_better else own


def _bytes(shape: ArrayShape, plane: Plane) -> int:
    return byte_size(ArrayShape(shape.dtype, plane))
