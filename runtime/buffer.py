"""`Array`: a value that lies in emulated HBM, in device layout."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import from_numpy
from compiler.hlo.shape import ArrayShape
from runtime.client import Device
from runtime.promotion import device_dtype
from runtime.storage import (
    plane_type,
    read_planes,
    stored_bytes,
    with_default_layout,
    write_planes,
)
from runtime.transfer import Bytes


class Array:
    """An array on a device, never changed. `numpy()` or `np.asarray` copies it to the host.

    Attributes: `shape` and `dtype` as in NumPy, `device_shape` with the tiled layout,
    `offset_bytes` its place in HBM, where its planes (`runtime.storage`) follow each other. The
    block is freed when the object dies.
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
        return read_planes(self.planes(), self.device_shape)

    def planes(self) -> list[Bytes]:
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

    Host f64 and s64 become f32 and s32, as in JAX by default. Raises `CompileError` for a dtype
    that HLO does not have, `ResourceExhaustedError` when HBM is full.
    """
    host = np.asarray(value)
    dtype = device_dtype(host.dtype, warns=isinstance(value, np.ndarray))
    array = Array(device, with_default_layout(ArrayShape(from_numpy(dtype), host.shape)))
    write_planes(host.astype(dtype, copy=False), array.device_shape, array.planes())
    return array
