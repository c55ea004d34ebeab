"""Bytes of arrays as kernels see them: whole tiles.

A cut of the last dimension into pieces of fewer than 128 elements makes no array smaller where it lies:
each piece's rows are filled up to 128 lanes, and that is what is read, computed and written.
"""

from __future__ import annotations

import functools

from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.shape import ArrayShape
from compiler.partitioner.grid import Dims

_UNSEEN_PADDING = 64 * 1024
"""Bytes of padding of an array that take no time beside a kernel's launch (assumed)."""


_BY_WIDTH = {1: (BY_NAME["s8"], 1), 2: (BY_NAME["bf16"], 1), 4: (BY_NAME["f32"], 1)}
"""By bytes of an element a type of that width, and how many arrays of it there are."""
_TWO_PLANES = (BY_NAME["f32"], 2)


@functools.lru_cache(maxsize=1 << 16)
def padding(dims: Dims, width: int) -> int:
    """Bytes that an array of `dims` of `width` bytes each has beyond its elements', in default tiles."""
    dtype, planes = _BY_WIDTH.get(width, _TWO_PLANES)
    shape = ArrayShape(dtype, dims)
    return planes * byte_size(shape) - width * shape.element_count


def seen_padding(dims: Dims, width: int) -> int:
    """The padding of an array, where it takes time."""
    found = padding(dims, width)
    return found if found > _UNSEEN_PADDING else 0
