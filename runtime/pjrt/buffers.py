"""Buffers: arrays in the HBM of a device, or in the host's memory beside it, as PJRT holds them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import UnsupportedError
from compiler.hlo.device_types import DOUBLES
from compiler.hlo.dtypes import DType
from compiler.hlo.shape import ArrayShape
from runtime.buffer import SMALL_BYTES, Array, place
from runtime.pjrt.blocks import HOME
from runtime.pjrt.devices import PjrtDevice, PjrtMemory
from runtime.pjrt.events import event_of
from runtime.pjrt.failures import PjrtError
from runtime.pjrt.layouts import NUMBER_OF_TYPE, TYPE_OF_NUMBER, ErrorCode, structure
from runtime.pjrt.native import SlotBlock, drain, leaves, objects
from runtime.pjrt.options import narrows_f64
from runtime.pjrt.reading import TILED, reader_row
from runtime.queue import Task

HostArray = npt.NDArray[np.generic]


class PjrtBuffer:
    """An array in a device's memory: in its HBM, or as a NumPy array in the host's. `dtype` is what the
    host calls its type: an f64 lies in HBM as f32."""

    __slots__ = ("array", "block", "dtype", "memory")

    def __init__(self, array: Array | HostArray, dtype: DType, memory: PjrtMemory) -> None:
        # None once nobody wants it (`runtime.pjrt.native.drain`)
        self.array: Array | HostArray | None = array
        self.dtype, self.memory = dtype, memory
        self.block = block = SlotBlock("buffer", self)
        block.set(
            type=NUMBER_OF_TYPE[dtype],
            device=memory.device.block.address,
            memory=memory.block.address,
        )
        if isinstance(array, Array):
            shape = array.device_shape
            layout = layout_number(shape)
            block.set(bytes=array.size_bytes, layout=layout, address=array.buffer().address)
            if shape.dtype == dtype and array.size_bytes <= SMALL_BYTES:
                block.set(reader=reader_row(shape))
        else:
            block.set(bytes=array.nbytes)  # no layout, no address: no quick call takes it
        block.set_row("dims", ctypes.c_int64, array.shape, "rank")

    @property
    def device(self) -> PjrtDevice:
        """The device whose memory it lies in."""
        return self.memory.device

    def value(self) -> Array:
        """The array in HBM, which the caller may hold on to, a new one if it lies in the host's memory;
        raises `PjrtError` if it was deleted."""
        self.block.words[HOME] = 0  # from now on it is not used again for other values
        array = self._value()
        if isinstance(array, Array):
            return array
        return place(array, self.dtype, self.device.device)

    def _value(self) -> Array | HostArray:
        array = self.array
        if array is None or self.block.get("is_deleted"):
            raise PjrtError("the buffer was deleted or donated", ErrorCode.FAILED_PRECONDITION)
        return array

    def task(self) -> Task | None:
        """What is still to end before the value is there."""
        array = self.array
        if not isinstance(array, Array) or array.is_deleted():
            return None
        return array.buffer().task

    def settle(self) -> bool:
        """Let a small array lie in a block of its own, where it stays; whether it does."""
        array = self._value()
        if not isinstance(array, Array):
            return False
        buffer = array.buffer()
        buffer.wait()
        if buffer.size_bytes <= SMALL_BYTES:
            with buffer.memory.lock.here:
                buffer.leave_arena()
            self.block.set(address=buffer.address)
        return buffer.address != 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions; raises `PjrtError` if it was deleted."""
        return self._value().shape

    @property
    def host_bytes(self) -> int:
        """Bytes of the value on the host; raises `PjrtError` if it was deleted."""
        return prod(self._value().shape) * self.dtype.numpy.itemsize

    def host(self, out: HostArray | None = None) -> HostArray:
        """The value on the host, in C order: a copy, unless it lies in the host's memory. The copy may be
        `out`, if that is given."""
        array = self._value()
        return array_on_host(array, self.dtype, out) if isinstance(array, Array) else array


def array_on_host(array: Array, dtype: DType, out: HostArray | None = None) -> HostArray:
    """The value of an array in HBM, copied to the host, in C order; to `out`, if that can be."""
    found = array.numpy(out)
    return found if found is out else np.ascontiguousarray(found, dtype.numpy).reshape(array.shape)


def layout_number(shape: ArrayShape) -> int:
    """What stands for an array's type, dimensions and layout on the device, from 1 on."""
    return _layouts.setdefault(shape, len(_layouts) + 1)


_layouts: dict[ArrayShape, int] = {}


def ints_at(address: int | None, count: int) -> tuple[int, ...]:
    """So many 64-bit integers of a C array."""
    return tuple((ctypes.c_int64 * count).from_address(address)) if address and count else ()


def handles_at(lists: int | None, device: int, count: int) -> Sequence[int]:
    """The buffers in a device's row of a call's lists."""
    if not count or lists is None:
        return ()
    row = (ctypes.c_void_p * (device + 1)).from_address(lists)[device]
    assert row is not None
    return list((ctypes.c_uint64 * count).from_address(row))


def from_host(a: Any) -> None:
    """`Client_BufferFromHostBuffer`: the host's bytes are read before this returns."""
    drain()
    dtype = TYPE_OF_NUMBER.get(a.type)
    if dtype is None:
        raise UnsupportedError(
            f"an array of PJRT's element type {a.type} has no place on the device"
        )
    refuse_doubles(dtype)
    strides = ints_at(a.byte_strides, a.num_byte_strides)
    host = _host_view(a.data, dtype, ints_at(a.dims, a.num_dims), strides)
    memory = objects[a.memory] if a.memory else objects[a.device].memory
    a.buffer = put(host, dtype, memory).block.address
    a.done_with_host_buffer = leaves().ready


def refuse_doubles(dtype: DType) -> None:
    """No chip computes in f64 or c128: they are refused unless the user says otherwise."""
    if dtype.name in DOUBLES and not narrows_f64():
        raise UnsupportedError(
            f"{dtype} arrays: a TPU has no {dtype}. Use {DOUBLES[dtype.name]}, or set TPUC_F64=narrow to "
            f"keep {dtype} on the host and compute in {DOUBLES[dtype.name]}"
        )


def put(host: HostArray, dtype: DType, memory: PjrtMemory) -> PjrtBuffer:
    """A host array, copied to a device's memory."""
    if memory.is_host:
        return PjrtBuffer(np.array(host, order="C"), dtype, memory)
    return PjrtBuffer(place(host, dtype, memory.device.device), dtype, memory)


def _host_view(
    data: int | None, dtype: DType, dims: tuple[int, ...], strides: tuple[int, ...]
) -> HostArray:
    kind = dtype.numpy
    if not data or 0 in dims:
        return np.empty(dims, kind)
    if not strides:
        size = prod(dims) * kind.itemsize
        return np.ndarray(dims, kind, _bytes_at(data, size))
    reach = [(size - 1) * stride for size, stride in zip(dims, strides, strict=True)]
    low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
    room = _bytes_at(data + low, high - low + kind.itemsize)
    return np.ndarray(dims, kind, room, -low, strides)


def _bytes_at(address: int, size: int) -> memoryview:
    return memoryview((ctypes.c_char * size).from_address(address))


def to_host(a: Any) -> None:
    """`Buffer_ToHostBuffer`: without a destination, say how many bytes it takes."""
    buffer: PjrtBuffer = objects[a.src]
    count = buffer.host_bytes
    if not a.dst:
        a.dst_size = count
        return
    if a.dst_size < count:
        raise PjrtError(f"room for {a.dst_size} bytes, the array has {count}")
    wanted = _order(a.host_layout)
    shape = buffer.shape
    place = np.ndarray(shape, buffer.dtype.numpy, _bytes_at(a.dst, count)) if count else None
    host = buffer.host(place if wanted in ((), tuple(range(len(shape) - 1, -1, -1))) else None)
    if host is not place:
        ctypes.memmove(a.dst, _in_order(host, wanted).ctypes.data, count)
    a.event = leaves().ready


def _order(layout: int | None) -> tuple[int, ...]:
    """The dimensions in the order of a layout, minor first; none where it does not say."""
    if not layout:
        return ()
    wanted = structure("Layout").from_address(layout)
    if wanted.type != TILED:
        return ()
    return ints_at(wanted.tiled.minor_to_major, wanted.tiled.minor_to_major_size)


def _in_order(host: HostArray, order: tuple[int, ...]) -> HostArray:
    """The array with its dimensions in the wanted order in memory, minor first."""
    if len(order) != host.ndim or not host.ndim:
        return host
    return np.ascontiguousarray(host.transpose(order[::-1]))


def memory_layout(a: Any) -> None:
    """`Buffer_GetMemoryLayout`: the host's order; tiles are the device's own matter."""
    block = objects[a.buffer].block
    rank = block.get("rank")
    row = (ctypes.c_int64 * max(1, rank))(*range(rank - 1, -1, -1))
    block.kept.append(row)
    a.layout.struct_size = ctypes.sizeof(structure("Layout"))
    a.layout.type = TILED
    a.layout.tiled.struct_size = ctypes.sizeof(structure("Tiled"))
    a.layout.tiled.minor_to_major = ctypes.addressof(row)
    a.layout.tiled.minor_to_major_size = rank
    a.layout.tiled.num_tiles = 0


def copied(buffer: PjrtBuffer, memory: PjrtMemory) -> PjrtBuffer:
    """The value in some memory, apart from what it was."""
    return put(buffer.host(), buffer.dtype, memory)


def copy_to_device(a: Any) -> None:
    """`Buffer_CopyToDevice`."""
    a.dst_buffer = copied(objects[a.buffer], objects[a.dst_device].memory).block.address


def copy_to_memory(a: Any) -> None:
    """`Buffer_CopyToMemory`."""
    a.dst_buffer = copied(objects[a.buffer], objects[a.dst_memory]).block.address


def copy_raw(a: Any) -> None:
    """`Buffer_CopyRawToHost`: some of the bytes of the host's form."""
    host = objects[a.buffer].host().reshape(-1).view(np.uint8)
    part = host[a.offset : a.offset + a.transfer_size]
    ctypes.memmove(a.dst, part.ctypes.data, part.nbytes)
    a.event = leaves().ready


def device_pointer(_: Any) -> None:
    """`Buffer_OpaqueDeviceMemoryDataPointer`, which DLPack asks for: whoever takes the array would read
    tiles at an address of the chip as rows of the host."""
    raise UnsupportedError(
        "DLPack and raw pointers to an array on the emulated chip; first copy it to the host: "
        'jax.device_put(x, jax.devices("cpu")[0]), or np.asarray(x)'
    )


def ready_event(a: Any) -> None:
    """`Buffer_ReadyEvent`: the end of the call that makes the value."""
    buffer: PjrtBuffer = objects[a.buffer]
    a.event = event_of(buffer.task())


FUNCTIONS = {
    "Client_BufferFromHostBuffer": from_host,
    "Buffer_ToHostBuffer": to_host,
    "Buffer_GetMemoryLayout": memory_layout,
    "Buffer_CopyToDevice": copy_to_device,
    "Buffer_CopyToMemory": copy_to_memory,
    "Buffer_CopyRawToHost": copy_raw,
    "Buffer_OpaqueDeviceMemoryDataPointer": device_pointer,
    "Buffer_ReadyEvent": ready_event,
}
