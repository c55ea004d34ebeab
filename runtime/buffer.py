"""`Array`: a value that lies in emulated HBM, in device layout."""

from __future__ import annotations

from weakref import ref

import numpy as np
import numpy.typing as npt

from compiler.hlo.device_types import plane_type
from compiler.hlo.dtypes import from_numpy
from compiler.hlo.host_types import device_dtype, fitted
from compiler.hlo.shape import ArrayShape
from runtime.client import Device
from runtime.storage import (
    read_planes,
    stored_bytes,
    with_default_layout,
    write_planes,
)
from runtime.transfer import Bytes

_DISCARDED_BYTES = 1 << 20
"""From this size on, the pages of a new array's block go back to the host when it is given up. Those
of an array that moves out and in again are wanted again."""


class Array:
    """An array on a device, never changed. `numpy()` or `np.asarray` copies it to the host.

    One that is passed for a donated parameter (``input_output_alias``) is given up: the result lies
    in its place. Like one after `delete`, it keeps shape and dtype, and any other use raises
    `RuntimeError`.

    Attributes: `shape` and `dtype` as in NumPy, `device_shape` with the tiled layout. Its planes
    (`runtime.storage`) follow each other in a block of HBM, which is freed when the object dies. A
    program's result stays where the program left it, at `places`, until the next program runs:
    by then most results are no longer wanted, and the others move to blocks of their own. An
    argument that a program leaves as it is lies in that program's arena, and only there, until
    another program runs.
    """

    def __init__(
        self, device: Device, device_shape: ArrayShape, places: tuple[int, ...] = ()
    ) -> None:
        self.device = device
        self.device_shape = device_shape
        self.size_bytes = stored_bytes(device_shape)
        self._places = places
        self._block: int | None = None
        self._is_new = not places
        self._why_deleted = ""
        if places:
            device.lent.append(ref(self))
        else:
            self._block = device.allocator.allocate(self.size_bytes)

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
        with self.device.lock:  # no program may run over it or move it meanwhile
            return read_planes(self.planes(), self.device_shape)

    def planes(self) -> list[Bytes]:
        """Views of the bytes of each plane in device memory, valid while `device.lock` is held."""
        self.expect_alive()
        count = plane_type(self.device_shape.dtype)[1]
        size = self.size_bytes // count
        places = self._places
        if self._block is not None:
            places = tuple(self._block + k * size for k in range(count))
        return [self.device.hbm.view(place, size) for place in places]

    def settle(self, places: tuple[int, ...]) -> None:
        """Lie at `places` in the arena, where a copy is already, and give up the own block."""
        if self._block is None:
            return
        self._places = places
        self.device.settled.add(self)
        self._give_up_block()

    def leave_arena(self) -> None:
        """Move to a block of its own; raises `ResourceExhaustedError` when none is free."""
        if self._block is not None or self._why_deleted:
            return
        sources = self.planes()
        self._block = self.device.allocator.allocate(self.size_bytes)
        self.device.copy(sources, self.planes())

    def lies_at(self, places: tuple[int, ...]) -> bool:
        """Whether it has no block of its own but lies in the arena, at exactly these `places`."""
        return self._block is None and self._places == places and not self._why_deleted

    def is_deleted(self) -> bool:
        """Whether its value is gone: by `delete`, or since a call that it was donated to."""
        return bool(self._why_deleted)

    def delete(self, why: str = "by delete()") -> None:
        """Give its memory back now. `why` completes the message of any later use."""
        with self.device.lock:
            self._why_deleted = self._why_deleted or f"was deleted {why}"
            self._give_up_block()

    def expect_alive(self) -> None:
        """Raise `RuntimeError`, with the reason, if it was deleted."""
        if self._why_deleted:
            kind = f"{self.device_shape.dtype}{list(self.shape)}"
            raise RuntimeError(f"the tpuc.Array of {kind} {self._why_deleted}")

    def _give_up_block(self) -> None:
        block, self._block = self._block, None
        if block is None:
            return
        if self._is_new and self.size_bytes >= _DISCARDED_BYTES:
            self.device.hbm.discard(block, self.size_bytes)
        self._is_new = False
        self.device.allocator.release(block)

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[np.generic]:
        if copy is False:
            message = "a tpuc.Array lies in device memory: a host array is always a copy"
            raise ValueError(message)
        host = self.numpy()
        return host if dtype is None else host.astype(dtype)

    def __repr__(self) -> str:
        end = ", deleted" if self._why_deleted else ""
        kind = f"{self.device_shape.dtype}{list(self.shape)}"
        return f"tpuc.Array({kind}, {self.device.chip.name}{end})"

    def __del__(self) -> None:
        block = getattr(self, "_block", None)
        if block is not None:
            self.device.allocator.release(block)


def device_put(value: npt.ArrayLike, device: Device) -> Array:
    """Copy a host array to `device` in its default tiled layout.

    Host f64 and s64 become f32 and s32, as in JAX by default. Raises `CompileError` for a dtype
    that HLO does not have and for integers that do not fit 32 bits, `ResourceExhaustedError` when HBM
    is full.
    """
    host = np.asarray(value)
    dtype = device_dtype(host.dtype, warns=isinstance(value, np.ndarray))
    array = Array(device, with_default_layout(ArrayShape(from_numpy(dtype), host.shape)))
    write_planes(fitted(host, dtype), array.device_shape, array.planes())
    return array
