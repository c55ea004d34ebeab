"""Bytes of arrays as kernels see them: whole tiles.

A cut of the last dimension into pieces of fewer than 128 elements makes no array smaller where it lies:
each piece's rows are filled up to 128 lanes, and that is what is read, computed and written.
"""

from __future__ import annotations

import functools
import math

from compiler.analysis.tiled_layout import next_power_of_two
from compiler.partitioner.grid import Dims
from tpu_sim.isa.geometry import LANES, SUBLANES

_UNSEEN_PADDING = 64 * 1024
"""Bytes of padding of an array that take no time beside a kernel's launch (assumed)."""


@functools.lru_cache(maxsize=1 << 16)
def padding(dims: Dims, width: int) -> int:
    """Bytes that an array of `dims` of `width` bytes each has beyond its elements', in default tiles."""
    rows = dims[-2] if len(dims) > 1 else 1
    tile = min(SUBLANES * max(1, 4 // width) if width == 1 else SUBLANES, next_power_of_two(rows))
    columns = dims[-1] if dims else 1
    plane = -(-rows // tile) * tile * -(-columns // LANES) * LANES
    return width * math.prod(dims[:-2]) * (plane - rows * columns)


def seen_padding(dims: Dims, width: int) -> int:
    """The padding of an array, where it takes time."""
    found = padding(dims, width)
    return found if found > _UNSEEN_PADDING else 0
