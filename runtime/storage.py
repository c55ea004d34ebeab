"""How arrays of any element type lie in device memory: in planes (`compiler.hlo.device_types`).

A plane is an array of the same dimensions in the layout of its own type; planes of an array placed
by `device_put` follow each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from compiler.analysis.port_order import port_order
from compiler.analysis.tiled_layout import default_tiles
from compiler.hlo.device_types import device_type, plane_type
from compiler.hlo.dtypes import DType
from compiler.hlo.shape import ArrayShape, Layout
from runtime.transfer import Bytes, device_bytes, read_device, write_device

HostArray = npt.NDArray[np.generic]


@lru_cache(maxsize=4096)
def with_default_layout(shape: ArrayShape) -> ArrayShape:
    """`shape` with the layout that its planes have by default."""
    dtype = plane_type(shape.dtype)[0]
    order = port_order(dtype, shape.dims)
    tiles = default_tiles(dtype, tuple(shape.dims[d] for d in order))
    return shape.with_layout(Layout(tuple(reversed(order)), tiles))


@lru_cache(maxsize=4096)
def plane_shape(shape: ArrayShape) -> ArrayShape:
    """The shape of one plane; the layout of `shape` is that of its planes."""
    return replace(shape, dtype=plane_type(shape.dtype)[0])


@lru_cache(maxsize=4096)
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


def read_planes(
    planes: Sequence[Bytes],
    shape: ArrayShape,
    out: HostArray | None = None,
    *,
    use_cache: bool = True,
) -> HostArray:
    """The host array that lies in device memory as those planes; it fills `out`, if that is given and of
    the type that lies there."""
    plane = plane_shape(shape)
    if len(planes) == 1:
        out = out if out is not None and out.dtype == plane.dtype.numpy else None
        host = read_device(planes[0], plane, out, use_cache=use_cache)
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
