"""`Array`: a value that lies in emulated HBM, in device layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import from_numpy
from compiler.hlo.shape import ArrayShape
from runtime.client import Device
from runtime.storage import (
    from_planes,
    plane_type,
    stored_bytes,
    to_planes,
    with_default_layout,
)


class Array:
    """An array on a device. `numpy()` or `np.asarray` copies it to the host.

    Attributes: `shape` and `dtype` as in NumPy, `device_shape` with the tiled layout,
    `offset_bytes` its place in HBM, where its planes (`runtime.storage`) follow each other. The block is freed when the object dies.
    """

    def __init__(self, device: Device, device_shape: ArrayShape) -> None:
        self.device = device
        self.device_shape = device_shape
        self.size_bytes = stored_bytes(device_shape)
        self.offset_bytes = device.allocator.allocate(self.size_bytes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Logical dimensions."""
        return self.device_shape.dims

    @property
    def dtype(self) -> np.dtype[np.generic]:
        """NumPy element type."""
        return self.device_shape.dtype.numpy

    def numpy(self) -> npt.NDArray[np.generic]:
        """Copy to the host."""
        return from_planes(self.planes(), self.device_shape)

    def planes(self) -> list[npt.NDArray[np.generic]]:
        """Views of the bytes of each plane in device memory."""
        count = plane_type(self.device_shape.dtype)[1]
        size = self.size_bytes // count
        return [self.device.hbm.view(self.offset_bytes + k * size, size) for k in range(count)]

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[np.generic]:
        if copy is False:
            message = "a tpuc.Array lies in device memory: a host array is always a copy"
            raise ValueError(message)
        host = self.numpy()
        return host if dtype is None else host.astype(dtype)

    def __repr__(self) -> str:
        return f"tpuc.Array({self.device_shape.dtype}{list(self.shape)}, {self.device.chip.name})"

    def __del__(self) -> None:
        if hasattr(self, "offset_bytes"):
            self.device.allocator.release(self.offset_bytes)


def device_put(value: npt.ArrayLike, device: Device) -> Array:
    """Copy a host array to `device` in its default tiled layout.

    Host f64 and s64 become f32 and s32, as in JAX by default.
    """
    host = canonical_host_array(np.asarray(value))
    bare = ArrayShape(from_numpy(host.dtype), host.shape)
    array = Array(device, with_default_layout(bare))
    planes = to_planes(host, array.device_shape)
    for number, data in enumerate(planes):
        device.hbm.write(array.offset_bytes + number * (array.size_bytes // len(planes)), data.data)
    return array


_NARROWED = {"f8": np.float32, "i8": np.int32, "u8": np.uint32, "c16": np.complex64}


def canonical_host_array(host: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Narrow 64-bit host types to 32 bits."""
    narrow = _NARROWED.get(f"{host.dtype.kind}{host.dtype.itemsize}")
    return host if narrow is None else host.astype(narrow)
