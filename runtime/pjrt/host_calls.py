"""What a program tells the host while it runs, and what it is told: PJRT's send and recv callbacks.

JAX's callbacks (`debug.print`, `pure_callback`, `io_callback`) are a channel for each operand and each
result. The function runs when the last operand was sent; its results are then there to be received.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.hlo.shape import ArrayShape
from runtime.pjrt.failures import PjrtError
from runtime.pjrt.layouts import ErrorCode, structure
from runtime.pjrt.native import SlotBlock, leaves, objects

HostArray = npt.NDArray[np.generic]
_POINTER = ctypes.c_void_p
_SEND = ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER, ctypes.c_size_t, ctypes.c_bool, _POINTER)
_RECEIVE = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)
_LIBC = ctypes.CDLL(None)
_LIBC.malloc.restype, _LIBC.malloc.argtypes = _POINTER, [ctypes.c_size_t]
_FREE = ctypes.cast(_LIBC.free, _POINTER).value
_DELETE = ctypes.CFUNCTYPE(None, _POINTER, _POINTER)


class HostStream:
    """What the host writes a received value into; `filled` bytes of it are there."""

    def __init__(self, shape: ArrayShape) -> None:
        self.host = np.empty(shape.dims, shape.dtype.numpy)
        self.filled = 0
        self.block = SlotBlock("stream", self)
        self.block.set(total_bytes=self.host.nbytes, granule_bytes=1)

    def add(self, data: int, size: int) -> None:
        """Take in the next bytes; raises `PjrtError` for more than there is room."""
        if self.filled + size > self.host.nbytes:
            raise PjrtError(f"{self.filled + size} bytes for a value of {self.host.nbytes}")
        ctypes.memmove(self.host.ctypes.data + self.filled, data, size)
        self.filled += size
        self.block.set(current_bytes=self.filled)


class HostCalls:
    """The callbacks of one device for one call, from the execution's options."""

    def __init__(self, options: int | None, device: int) -> None:
        self._sends: dict[int, Any] = {}
        self._receives: dict[int, Any] = {}
        if options:
            found = structure("ExecuteOptions").from_address(options)
            self._sends = _by_channel(found.send_callbacks, found.num_send_ops, device)
            self._receives = _by_channel(found.recv_callbacks, found.num_recv_ops, device)
        self._make_error = _POINTER(leaves().addresses["callback_error"])

    def send(self, channel: int, value: HostArray) -> None:
        """Hand a value over; raises `PjrtError` with what the host's function raised."""
        info = self._info(self._sends, channel)
        data = _LIBC.malloc(
            max(1, value.nbytes)
        )  # it is the callback's from now on, which frees it
        ctypes.memmove(data, np.ascontiguousarray(value).ctypes.data, value.nbytes)
        chunk = structure("Chunk")(data, value.nbytes, _FREE, None)
        arguments = (ctypes.byref(chunk), ctypes.byref(self._make_error), value.nbytes, True)
        error = _SEND(info.callback)(*arguments, info.user_arg)
        if error:
            raise _error_at(error)

    def receive(self, channel: int, shape: ArrayShape) -> HostArray:
        """The value that the host has for a channel."""
        info = self._info(self._receives, channel)
        stream = HostStream(shape)
        _RECEIVE(info.callback)(stream.block.address, info.user_arg)
        if stream.filled != stream.host.nbytes:
            message = (
                f"the host gave {stream.filled} of {stream.host.nbytes} bytes on channel {channel}"
            )
            raise PjrtError(message, ErrorCode.INTERNAL)
        return stream.host

    def _info(self, infos: dict[int, Any], channel: int) -> Any:
        if channel not in infos:
            raise PjrtError(f"no callback of the host for channel {channel}", ErrorCode.INTERNAL)
        return infos[channel]


def _by_channel(lists: int | None, count: int, device: int) -> dict[int, Any]:
    if not lists or not count:
        return {}
    place = (_POINTER * (device + 1)).from_address(lists)[device]
    assert place is not None
    infos = (structure("Transfer") * count).from_address(place)
    return {info.channel_id: info for info in infos}


def _error_at(handle: int) -> PjrtError:
    """What an error says, which is then given up."""
    message = structure("Error_Message")()
    message.error = handle
    code = structure("Error_GetCode")()
    code.error = handle
    for name, arguments in (("Error_Message", message), ("Error_GetCode", code)):
        ctypes.CFUNCTYPE(_POINTER, _POINTER)(leaves().addresses[name])(ctypes.addressof(arguments))
    text = ctypes.string_at(message.message, message.message_size).decode(errors="replace")
    destroy = structure("Error_Destroy")()
    destroy.error = handle
    ctypes.CFUNCTYPE(_POINTER, _POINTER)(leaves().addresses["Error_Destroy"])(
        ctypes.addressof(destroy)
    )
    return PjrtError(text, code.code)


def _add_chunk(a: Any) -> None:
    chunk = structure("Chunk").from_address(a.chunk)
    objects[a.stream].add(chunk.data, chunk.size)
    if chunk.deleter:
        _DELETE(chunk.deleter)(chunk.data, chunk.deleter_arg)
    a.transfer_complete = leaves().ready


FUNCTIONS = {"CopyToDeviceStream_AddChunk": _add_chunk}
