"""Random element types, dimensions and arrays of edge values."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import BY_NAME, DType, integer_limits

Array = npt.NDArray[np.generic]
Dims = tuple[int, ...]
Random = np.random.Generator

SIZES = (1, 1, 2, 2, 3, 7, 8, 128, 129)
MAX_ELEMENTS = 2500

PREDS = ("pred",)
INTEGERS = ("s4", "s8", "s16", "s32", "s64", "u4", "u8", "u16", "u32", "u64")
FLOATS = ("f32", "bf16", "f16", "f8e5m2", "f8e4m3fn", "f8e4m3", "f8e4m3fnuz", "f8e3m4")
COMPLEX = ("c64",)
REALS = (*INTEGERS, *FLOATS)
NUMBERS = (*REALS, *COMPLEX)
ALL = (*PREDS, *NUMBERS)
COMMON = ("f32", "s32", "bf16", "u8", "s8", "pred")


def pick_dtype(rng: Random, names: tuple[str, ...]) -> DType:
    """One of the types; the common ones come up twice as often."""
    common = [n for n in names if n in COMMON]
    return BY_NAME[str(rng.choice([*names, *common]))]


def pick_dims(rng: Random, least: int = 0, most: int = 4, limit: int = MAX_ELEMENTS) -> Dims:
    """Random dimensions, sometimes none of elements."""
    rank = int(rng.integers(least, most + 1))
    dims: list[int] = []
    for _ in range(rank):
        room = limit // max(1, math.prod(dims))
        dims.append(int(rng.choice([n for n in SIZES if n <= room] or [1])))
    rng.shuffle(dims)
    if dims and rng.random() < 0.03:
        dims[int(rng.integers(rank))] = 0
    return tuple(dims)


def edge_values(dtype: DType) -> Array:
    """What rewrites go wrong with, in the type."""
    if dtype.kind == "pred":
        return np.array([False, True])
    if dtype.is_integer:
        low, high = integer_limits(dtype)
        found = {0, 1, 2, 3, low, low + 1, high, high - 1, high // 2, 1 << (dtype.bits // 2 - 1)}
        found |= {-1, -2, -3} if dtype.is_signed else set()
        return np.array(sorted(v for v in found if low <= v <= high), np.object_).astype(
            dtype.numpy
        )
    if dtype.is_complex:
        parts = edge_values(BY_NAME["f32"])
        pairs = np.array(np.meshgrid(parts, parts[::3])).reshape(2, -1).T
        return np.ascontiguousarray(pairs.astype(np.float32)).view(np.complex64)[:, 0]
    return _float_edges(dtype)


def _float_edges(dtype: DType) -> Array:
    if dtype.bits == 8:
        return np.arange(256, dtype=np.uint8).view(dtype.numpy)
    info = {"f32": (-126, 127, 23), "bf16": (-126, 127, 7), "f16": (-14, 15, 10)}[dtype.name]
    least, most, digits = info
    found = [0.0, 1.0, 2.0, 0.5, 3.0, 0.1, 1e-3, 7.0, 100.0, math.inf]
    found += [2.0**least, 2.0 ** (least - 1), 2.0 ** (least - digits), 2.0**most]
    found += [2.0**most * (2 - 2.0**-digits), 1 + 2.0**-digits, 2.0**digits + 1]
    return np.array([*found, *(-v for v in found), math.nan]).astype(dtype.numpy)


def ordinary_values(rng: Random, dtype: DType, count: int) -> Array:
    """Small numbers; halves for floats."""
    if dtype.kind == "pred":
        return rng.integers(0, 2, count).astype(np.bool_)
    if dtype.is_integer:
        low = -3 if dtype.is_signed else 0
        return rng.integers(low, 8, count).astype(dtype.numpy)
    if dtype.is_complex:
        both = rng.integers(-8, 9, (2, count)) / 2
        return np.asarray(both[0] + 1j * both[1]).astype(np.complex64)
    return np.asarray(rng.integers(-8, 9, count) / 2).astype(dtype.numpy)


def random_array(rng: Random, dtype: DType, dims: Dims, edges: float = 0.5) -> Array:
    """An array of which about a share `edges` of the elements are edge values."""
    count = math.prod(dims)
    values = ordinary_values(rng, dtype, count)
    special = edge_values(dtype)
    chosen = special[rng.integers(0, len(special), count)]
    return np.asarray(np.where(rng.random(count) < edges, chosen, values)).reshape(dims)
