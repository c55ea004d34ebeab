"""Rows of 512 bytes that boxes of arrays take in VMEM. Which boxes a kernel holds: `compiler.kernels`."""

from __future__ import annotations

import math

from compiler.analysis.windows import OperandWindow, WindowPlan
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import LANES, SUBLANES

VREG_TILE_BYTES = 4 * SUBLANES * LANES
GUARD_ROWS = 8
"""Rows after every buffer that unaligned loads may touch."""


def held_rows(shape: ArrayShape, extent: tuple[int, ...], *, replicated: bool = False) -> int:
    """Rows of a box in VMEM, the guard rows after it included."""
    if replicated:
        unit = SUBLANES * shape.dtype.packing
        return math.prod(extent[:-1]) * -(-extent[-1] // unit) * SUBLANES + GUARD_ROWS
    return box_vreg_tiles(shape, extent) * SUBLANES + GUARD_ROWS


def box_vreg_tiles(shape: ArrayShape, extent: tuple[int, ...]) -> int:
    """Vreg tiles of a box."""
    unit = SUBLANES * shape.dtype.packing
    if shape.rank == 0:
        return 1
    if shape.rank == 1:
        return -(-extent[0] // (unit * LANES))
    return math.prod(extent[:-2]) * -(-extent[-2] // unit) * -(-extent[-1] // LANES)


def arrangement(shape: ArrayShape) -> tuple[object, ...]:
    """What the order of an array's elements in VMEM depends on.

    A vector lies there as rows of 128 elements do; matrices of whole tiles lie as one matrix.
    """
    unit = SUBLANES * shape.dtype.packing
    if shape.rank == 1 and shape.dims[0] % (unit * LANES) == 0:
        return (shape.dtype.name, 1, shape.dims[0] // LANES, LANES)
    if shape.rank < 2:
        return (shape.dtype.name, shape.dims)
    *majors, rows, columns = shape.dims
    if rows % unit == 0:
        return (shape.dtype.name, 1, math.prod(majors) * rows, columns)
    return (shape.dtype.name, math.prod(majors), rows, columns)


def stream_rows(plan: WindowPlan, window: OperandWindow) -> int:
    """Rows of a window: two buffers where the grid moves it."""
    slots = 2 if plan.moving_dims(window.origin) else 1
    return slots * box_vreg_tiles(window.shape, window.extent) * SUBLANES + GUARD_ROWS
