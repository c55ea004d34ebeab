"""What an `HloSharding` means: which part of an array a device holds, and of what shape.

A dimension of size s cut over t tiles has tiles of ceil(s/t) elements, so that the last ones may
be short or empty: 10 over 4 are 3, 3, 3, 1. A device's array always has the full tile's shape;
what lies past the end of the global array has no meaning.

>>> rows = parse_sharding("{devices=[4]<=[4]}")
>>> local_dims(rows, (10,)), [tile_of(rows, (10,), device) for device in range(4)]
((3,), [((0, 3),), ((3, 6),), ((6, 9),), ((9, 10),)])
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Sequence

import numpy as np

from compiler.hlo.iota_order import Ints
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.hlo.sharding import HloSharding, leaf_count
from compiler.hlo.sharding_text import parse_sharding

__all__ = [
    "in_tiles",
    "is_equal_placement",
    "local_dims",
    "local_shape",
    "parse_sharding",
    "tile_counts",
    "tile_index",
    "tile_of",
]


@functools.lru_cache(maxsize=1024)
def in_tiles(sharding: HloSharding) -> HloSharding:
    """An array's sharding, what is said by a mesh's axes turned into tiles."""
    if sharding.is_tuple:
        raise ValueError(f"{sharding} is a tuple's sharding; take it leaf by leaf")
    if not sharding.named:
        return sharding
    shardy = importlib.import_module("compiler.sharding.shardy_text")  # its parser is heavy
    found: HloSharding = shardy.hlo_sharding_of_named(sharding.named)
    return found


def tile_counts(sharding: HloSharding, rank: int) -> Ints:
    """Into how many tiles each of the array's `rank` dimensions is cut; ValueError for a tuple."""
    sharding = in_tiles(sharding)
    if sharding.tiles is None:
        return (1,) * rank
    counts = sharding.tiles.dims[: len(sharding.tiles.dims) - len(sharding.subgroups)]
    if len(counts) != rank:
        raise ValueError(f"sharding {sharding} cuts {len(counts)} dimensions, the array has {rank}")
    return counts


@functools.lru_cache(maxsize=4096)
def _indices(sharding: HloSharding) -> dict[int, Ints]:
    """Each device's position in the tile assignment, subgroup dimensions included."""
    assert sharding.tiles is not None
    return {int(device): index for index, device in np.ndenumerate(sharding.tiles.array())}


def tile_index(sharding: HloSharding, rank: int, device: int) -> Ints:
    """Which tile of each dimension the device holds; ValueError when it holds none."""
    sharding = in_tiles(sharding)
    if sharding.kind == "maximal" and device != sharding.device:
        raise ValueError(f"device {device} is not in sharding {sharding}")
    if sharding.tiles is None:
        return (0,) * rank
    index = _indices(sharding).get(device)
    if index is None:
        raise ValueError(f"device {device} is not in sharding {sharding}")
    return index[:rank]


def addend_index(sharding: HloSharding, rank: int, device: int) -> int:
    """Of an array of partial sums, which addend the device holds; 0 of any other."""
    sharding = in_tiles(sharding)
    if sharding.kind == "unreduced":
        return device
    if sharding.tiles is None or "unreduced" not in sharding.subgroups:
        return 0
    return _indices(sharding)[device][rank + sharding.subgroups.index("unreduced")]


def tile_of(sharding: HloSharding, dims: Sequence[int], device: int) -> tuple[tuple[int, int], ...]:
    """(start, limit) of the device's part of each dimension; short or empty past the end."""
    sizes = local_dims(sharding, dims)
    index = tile_index(sharding, len(dims), device)
    return tuple(
        (min(i * size, s), min((i + 1) * size, s))
        for i, size, s in zip(index, sizes, dims, strict=True)
    )


def local_dims(sharding: HloSharding, dims: Sequence[int]) -> Ints:
    """The dimensions of a device's part of an array of dimensions `dims`."""
    counts = tile_counts(sharding, len(dims))
    return tuple(-(-size // count) for size, count in zip(dims, counts, strict=True))


def local_shape(sharding: HloSharding, shape: Shape) -> Shape:
    """The shape of a device's part, of a tuple leaf by leaf; layouts keep their order only."""
    return _local(shape, iter(sharding.for_leaves(leaf_count(shape)).elements or ()))


def _local(shape: Shape, leaves: Iterator[HloSharding]) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(_local(element, leaves) for element in shape.elements))
    sharding = next(leaves)
    if not isinstance(shape, ArrayShape):
        return shape
    return ArrayShape(shape.dtype, local_dims(sharding, shape.dims), shape.layout)


def is_equal_placement(a: HloSharding, b: HloSharding, rank: int, device_count: int) -> bool:
    """Whether two arrays' shardings put the same tile on every device, however they are written.

    Manual and unreduced devices must be told apart alike, too.
    """
    a, b = in_tiles(a), in_tiles(b)
    if a == b:
        return True
    kinds = {"maximal", "unknown"}
    if a.kind in kinds or b.kind in kinds:
        return False
    return tile_counts(a, rank) == tile_counts(b, rank) and all(
        _place(a, rank, device) == _place(b, rank, device) for device in range(device_count)
    )


def _place(sharding: HloSharding, rank: int, device: int) -> tuple[object, ...]:
    """The tile and the manual and unreduced groups in which a device stands."""
    index = tile_index(sharding, rank, device)
    if sharding.tiles is None:
        return (index, [(sharding.kind, device)] if sharding.kind != "replicated" else [])
    whole = _indices(sharding)[device]
    rest = zip(sharding.subgroups, whole[rank:], sharding.tiles.dims[rank:], strict=True)
    return (index, [(kind, i) for kind, i, size in rest if kind != "replicated" and size > 1])
