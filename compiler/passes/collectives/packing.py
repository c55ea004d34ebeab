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
"""Bytes that a link takes in about the time of the kernels that bring an array there and back."""
_LEAST_FACTOR = 1.25
"""How many times the bytes are sent at least where another plane is taken (assumed)."""


def plane_of(shape: ArrayShape) -> Plane:
    """Two dimensions with the same elements in the same order."""
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
    is_better = have - least >= _LEAST_SAVED and have >= _LEAST_FACTOR * least
    return best if is_better else own


def _bytes(shape: ArrayShape, plane: Plane) -> int:
    return byte_size(ArrayShape(shape.dtype, plane))
