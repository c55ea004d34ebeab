"""Host arrays to tiled device layout and back.

    write_device(host, shape, target)      target = bytes of device memory
    read_device(source, shape) -> host

The layouts of `compiler.analysis.tiled_layout`, in any dimension order, go through native loops
(`runtime.transfer_native`), others through NumPy's transposes.

A tiled layout is XLA's: the dimensions are put into major-to-minor order, the first tile splits the
last dimensions into (number of tiles, tile) with padding, and each further tile splits the dimensions
of the tile before it. Padding bytes are zero when written and ignored when read.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import DType
from compiler.hlo.shape import ArrayShape, Tile
from runtime.transfer_native import read_native, write_native

Array = npt.NDArray[np.generic]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Plan:
    """How to view a padded array so that one transpose gives memory order."""

    order: tuple[int, ...]  # logical dimension of each physical dimension, major first
    physical: tuple[int, ...]
    padded: tuple[int, ...]
    split: tuple[int, ...]  # shape after splitting each dimension by its tiles
    permutation: tuple[int, ...]  # of the split axes


@dataclass(eq=False)
class _Factor:
    """A part of an axis once tiles have split it."""

    extent: int


def _plan(shape: ArrayShape) -> _Plan:
    order = tuple(reversed(shape.minor_to_major))
    physical = tuple(shape.dims[d] for d in order)
    if not physical:
        physical = (1,)
    tiles = shape.layout.tiles if shape.layout is not None else ()
    padded = _padded(physical, tiles)
    factors = [[_Factor(extent)] for extent in padded]
    memory = [group[0] for group in factors]
    for tile in tiles:
        memory = _apply_tile(tile, factors, memory)
    flat = [f for group in factors for f in group]
    split = tuple(f.extent for f in flat)
    position = {id(f): number for number, f in enumerate(flat)}
    return _Plan(order, physical, padded, split, tuple(position[id(f)] for f in memory))


def _padded(physical: tuple[int, ...], tiles: tuple[Tile, ...]) -> tuple[int, ...]:
    if not tiles:
        return physical
    first = tiles[0].dims
    if len(first) > len(physical):
        message = f"tile {first} has more dimensions than the array's {physical}"
        raise ValueError(message)
    lead = physical[: len(physical) - len(first)]
    tail = physical[len(physical) - len(first) :]
    return lead + tuple(-(-d // t) * t for d, t in zip(tail, first, strict=True))


def _apply_tile(tile: Tile, factors: list[list[_Factor]], memory: list[_Factor]) -> list[_Factor]:
    """Split the last factors of the memory order by `tile`; return the new memory order.

    A tile after the first splits the tile before it, which may be factors of one axis
    (``T(1024)(128)(2,1)``).
    """
    count = len(tile.dims)
    outer: list[_Factor] = []
    inner: list[_Factor] = []
    for factor, size in zip(memory[len(memory) - count :], tile.dims, strict=True):
        if factor.extent % size:
            message = f"tile dimension {size} does not divide {factor.extent}"
            raise ValueError(message)
        group = next(g for g in factors if any(f is factor for f in g))
        place = next(i for i, f in enumerate(group) if f is factor)
        pair = [_Factor(factor.extent // size), _Factor(size)]
        group[place : place + 1] = pair
        outer.append(pair[0])
        inner.append(pair[1])
    return memory[: len(memory) - count] + outer + inner


@lru_cache(maxsize=4096)
def device_bytes(shape: ArrayShape) -> int:
    """Bytes of an array in device layout, padding included."""
    tiles = shape.layout.tiles if shape.layout is not None else ()
    order = tuple(reversed(shape.minor_to_major))
    physical = tuple(shape.dims[d] for d in order) or (1,)
    return (math.prod(_padded(physical, tiles)) * max(shape.dtype.bits, 8)) // 8


def write_device(host: Array, shape: ArrayShape, target: Bytes, *, use_cache: bool = True) -> None:
    """Lay `host` out in `target`, which has `device_bytes(shape)` contiguous bytes or more.

    `host` has the dimensions and the element width of `shape`, with any strides. `use_cache`
    says whether code may be kept on disk.
    """
    target = target[: device_bytes(shape)]
    _check_target(host, shape, target)
    if not write_native(host, shape, target, use_cache=use_cache):
        target[:] = to_device(host, shape)


def read_device(
    source: Bytes, shape: ArrayShape, out: Array | None = None, *, use_cache: bool = True
) -> Array:
    """Return the host array that lies in `source` (contiguous bytes); it fills `out`, if given."""
    source = source[: device_bytes(shape)]
    host = np.empty(shape.dims, shape.dtype.numpy) if out is None else out
    _check_target(host, shape, source)
    if not read_native(source, shape, host, use_cache=use_cache):
        host[...] = from_device(source, shape)
    return host


def _check_target(host: Array, shape: ArrayShape, device: Bytes) -> None:
    """Native code trusts sizes: hold them here."""
    if host.shape != shape.dims or host.itemsize != shape.dtype.numpy.itemsize:
        message = f"{host.dtype}{list(host.shape)} is no {shape.dtype}{list(shape.dims)}"
        raise ValueError(message)
    if device.nbytes != device_bytes(shape) or not device.flags.c_contiguous:
        message = f"{device.nbytes} bytes of device memory for {device_bytes(shape)}"
        raise ValueError(message)


def to_device(array: Array, shape: ArrayShape) -> Array:
    """Return `array` (of `shape`'s dtype and dimensions) as flat bytes in device layout: NumPy."""
    plan = _plan(shape)
    carrier = _carrier(shape.dtype)
    values = np.asarray(array).reshape(shape.dims).view(carrier)
    values = values.transpose(plan.order) if plan.order else values.reshape(1)
    if plan.padded != plan.physical:
        padded = np.zeros(plan.padded, carrier)
        padded[tuple(slice(0, d) for d in plan.physical)] = values
        values = padded
    tiled = values.reshape(plan.split).transpose(plan.permutation)
    return np.ascontiguousarray(tiled).reshape(-1).view(np.uint8)


def from_device(data: Array, shape: ArrayShape) -> Array:
    """Return the host array that lies as `data` (flat bytes) in device layout: NumPy."""
    plan = _plan(shape)
    carrier = _carrier(shape.dtype)
    inverse = np.argsort(plan.permutation)
    memory_shape = tuple(plan.split[axis] for axis in plan.permutation)
    tiled = data.view(carrier).reshape(memory_shape)
    values = tiled.transpose(inverse).reshape(plan.padded)
    values = values[tuple(slice(0, d) for d in plan.physical)]
    values = values.transpose(np.argsort(plan.order)) if plan.order else values.reshape(())
    return np.array(values, order="C").reshape(shape.dims).view(shape.dtype.numpy)


def _carrier(dtype: DType) -> np.dtype[np.generic]:
    """An integer dtype of the same width: NumPy moves those faster than extension types."""
    width = dtype.numpy.itemsize
    if width > 8:
        return dtype.numpy
    return np.dtype(f"u{width}")
