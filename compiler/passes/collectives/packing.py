"""The plane in which the bytes of an array are exchanged: with as little padding as can be.

What is sent is what lies in memory, and there rows are filled up to 128 lanes: f32[152,152,16] takes eight
times its elements' bytes, f32[512,16,1] 128 times. Other planes of the same elements are full:

    f32[152,152,16] -> [2888,128]        f32[150,150,16] -> [150,2400]        s32[512,16,1] -> [64,128]

Where they are no multiple of 128, rows are added until they are: f32[125001,8] as [125008,8] -> [7813,128].
Bringing an array into another plane reads and writes it once, in HBM, which is many times as fast as a link.
"""

from __future__ import annotations

import math

from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.iota_order import Ints
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.geometry import LANES

Plane = tuple[int, int]

_LEAST_SAVED = 1 << 16
"""Bytes that a link takes in about the time of a kernel's launch."""
_FILLED = 0.75
"""What a plane with rows behind may take at most of one without, since they are added and taken off."""
_READ = 0.25
"""Bytes sent in the time in which one is read or written as it lies, there and back."""
_REPACKED = 4.0
"""Bytes sent in the time in which one of an element is put into another lane, there and back (fitted: gathers
and all-to-alls of 16 to 64 lanes of f32 and bf16 on v5e, within a factor of two)."""


def plane_of(shape: ArrayShape, copies: int) -> Plane:
    """Two dimensions with the same elements in the same order, and perhaps more rows of them behind, for
    what a device sends `copies` of."""
    dims = shape.dims
    if not dims:
        return 1, 1
    own = (math.prod(dims[:-1]), dims[-1])
    size = shape.element_count
    ends = [math.prod(dims[k:]) for k in range(1, len(dims) - 1)]
    columns = [LANES] * (size % LANES == 0) + ends[::-1]
    best = min(
        ((size // c, c) for c in columns if c), key=lambda plane: _bytes(shape, plane), default=own
    )
    unit = math.lcm(LANES, dims[-1]) // dims[-1] if dims[-1] else 1
    filled = ((own[0] + -own[0] % unit) * dims[-1] // LANES, LANES)
    if _bytes(shape, filled) < _FILLED * _bytes(shape, best):
        best = filled
    have, least = _bytes(shape, own), _bytes(shape, best)
    saved = have - least
    is_better = saved >= _LEAST_SAVED and saved * copies > _REPACKED * least + _READ * have
    return best if is_better else own


def packed(e: Emitter, array: HloInstruction, leading: int, plane: Plane) -> HloInstruction:
    """``[*leading, *dims] -> [*leading, *plane]``: filled up with rows of zeros if the plane has more."""
    before, dims = array.array.dims[:leading], array.array.dims[leading:]
    if (more := math.prod(plane) - math.prod(dims)) > 0:
        rows = e.shaped(array, (*before, math.prod(dims[:-1]), dims[-1]))
        array = e.pad_dim(rows, leading, 0, more // dims[-1])
    return e.shaped(array, (*before, *plane))


def unpacked(e: Emitter, array: HloInstruction, leading: int, dims: Ints) -> HloInstruction:
    """``[*leading, *plane] -> [*leading, *dims]``: what `packed` was given."""
    before, plane = array.array.dims[:leading], array.array.dims[leading:]
    if math.prod(plane) > math.prod(dims):
        rows = math.prod(plane) // dims[-1]
        array = e.part(e.shaped(array, (*before, rows, dims[-1])), leading, 0, math.prod(dims[:-1]))
    return e.shaped(array, (*before, *dims))


def _bytes(shape: ArrayShape, plane: Plane) -> int:
    return byte_size(ArrayShape(shape.dtype, plane))
