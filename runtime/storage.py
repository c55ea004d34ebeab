"""How element types that a lane cannot hold lie in device memory.

    s64 u64          two u32 planes: low words, then high words
    c64              two f32 planes: real parts, then imaginary parts
    s4 u4 s2 u2      one element per byte, sign- or zero-extended
    f4.. f6..        as f8e4m3fn, which holds their values; f8e8m0fnu as bf16
    f64 c128         as f32 and c64, with rounding

A plane is an array of the same dimensions in the layout of its own type; planes of an array placed
by `device_put` follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from compiler.analysis.tiled_layout import default_layout
from compiler.hlo.dtypes import BY_NAME, DType
from compiler.hlo.shape import ArrayShape
from runtime.transfer import Bytes, device_bytes, read_device, write_device

HostArray = npt.NDArray[np.generic]

_PLANES: dict[str, tuple[str, int]] = {
    "s64": ("u32", 2), "u64": ("u32", 2), "c64": ("f32", 2), "c128": ("f32", 2), "f64": ("f32", 1),
    "s4": ("s8", 1), "s2": ("s8", 1), "u4": ("u8", 1), "u2": ("u8", 1),
    "f4e2m1fn": ("f8e4m3fn", 1), "f6e2m3fn": ("f8e4m3fn", 1), "f6e3m2fn": ("f8e4m3fn", 1),
    "f8e8m0fnu": ("bf16", 1),
}  # fmt: skip
_DEVICE_TYPE = {"f64": "f32", "c128": "c64"}


def plane_type(dtype: DType) -> tuple[DType, int]:
    """The element type of an array's planes in device memory, and how many there are."""
    name, count = _PLANES.get(dtype.name, (dtype.name, 1))
    return BY_NAME[name], count


def device_type(dtype: DType) -> DType:
    """The type an array of `dtype` has while it is on the device: f64 has none there."""
    return BY_NAME[_DEVICE_TYPE.get(dtype.name, dtype.name)]


def with_default_layout(shape: ArrayShape) -> ArrayShape:
    """`shape` with the default layout of its planes."""
    plane = ArrayShape(plane_type(shape.dtype)[0], shape.dims)
    return shape.with_layout(default_layout(plane))


@lru_cache(maxsize=4096)
def plane_shape(shape: ArrayShape) -> ArrayShape:
    """The shape of one plane; the layout of `shape` is that of its planes."""
    return replace(shape, dtype=plane_type(shape.dtype)[0])


def stored_bytes(shape: ArrayShape) -> int:
    """Bytes of all planes, padding included."""
    return device_bytes(plane_shape(shape)) * plane_type(shape.dtype)[1]


def write_planes(
    host: HostArray, shape: ArrayShape, targets: Sequence[Bytes], *, use_cache: bool = True
) -> None:
    """Lay a host array of the dtype of `shape` out in device memory, a target for each plane."""
    plane = plane_shape(shape)
    for part, target in zip(_split(host, plane.dtype, shape.dtype), targets, strict=True):
        write_device(part, plane, target, use_cache=use_cache)


def read_planes(planes: Sequence[Bytes], shape: ArrayShape, *, use_cache: bool = True) -> HostArray:
    """The host array that lies in device memory as those planes."""
    plane = plane_shape(shape)
    if len(planes) == 1:
        host = read_device(planes[0], plane, use_cache=use_cache)
        return host.astype(shape.dtype.numpy, copy=False)
    host = np.empty(shape.dims, device_type(shape.dtype).numpy)
    words = host.reshape(-1).view(plane.dtype.numpy).reshape(*shape.dims, len(planes))
    for number, data in enumerate(planes):
        read_device(data, plane, words[..., number], use_cache=use_cache)
    return host.astype(shape.dtype.numpy, copy=False)


def _split(host: HostArray, plane: DType, dtype: DType) -> list[HostArray]:
    if plane_type(dtype)[1] == 1:
        return [host if plane == dtype else host.astype(plane.numpy)]
    if dtype.is_complex:
        host = host.astype(np.complex64, copy=False)
    words = np.ascontiguousarray(host).reshape(-1).view(plane.numpy).reshape(*host.shape, 2)
    return [words[..., k] for k in range(2)]
