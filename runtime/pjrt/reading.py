"""The native function that copies a small array to the host: what `np.asarray` of a result asks for.

A small array with a place of its own has a row of words (`ReaderWord`) that says how: which loops.
All others, and whoever wants another order of dimensions, go to Python (`runtime.pjrt.buffers.to_host`).
"""

from __future__ import annotations

import ctypes
from enum import IntEnum
from functools import cache
from math import prod

from compiler.hlo.device_types import plane_type
from compiler.hlo.shape import ArrayShape
from runtime.pjrt.blocks import SLOTS
from runtime.pjrt.layouts import structure
from runtime.transfer_native import read_addresses
from tpu_sim.jit.kernel_builtins import Words, call_at, words_at
from tpu_sim.jit.kernel_language import kernel

READ = "read_quickly"
TILED = 0
"""The one kind of layout on the host that has an order of dimensions."""
_HOST_WORD_BYTES = 8

_ARGUMENTS, _HOST_LAYOUT = structure("Buffer_ToHostBuffer"), structure("Layout")
_SOURCE = _ARGUMENTS.src.offset // _HOST_WORD_BYTES
_LAYOUT = _ARGUMENTS.host_layout.offset // _HOST_WORD_BYTES
_TARGET = _ARGUMENTS.dst.offset // _HOST_WORD_BYTES
_SIZE = _ARGUMENTS.dst_size.offset // _HOST_WORD_BYTES
_EVENT = _ARGUMENTS.event.offset // _HOST_WORD_BYTES
_TILES = _HOST_LAYOUT.tiled.offset
_ORDER = (_TILES + structure("Tiled").minor_to_major.offset) // _HOST_WORD_BYTES
_RANK = (_TILES + structure("Tiled").minor_to_major_size.offset) // _HOST_WORD_BYTES
_KIND = _HOST_LAYOUT.type.offset // _HOST_WORD_BYTES
_ADDRESS, _READER = SLOTS["buffer"]["address"], SLOTS["buffer"]["reader"]
_IS_DELETED, _BUFFER_RANK = SLOTS["buffer"]["is_deleted"], SLOTS["buffer"]["rank"]


class ReaderWord(IntEnum):
    """Words of the row: addresses of the native loops and of their arguments, bytes on the host."""

    LOOPS = 0
    ARGUMENTS = 1
    BYTES = 2


@cache
def reader_row(shape: ArrayShape) -> int:
    """The address of the row for arrays that lie like that, and on the host have the type that they have
    there; 0 where native loops do not know the layout. It stays as long as the process."""
    is_plain = plane_type(shape.dtype) == (shape.dtype, 1)
    found = read_addresses(shape) if is_plain else None
    if found is None:
        return 0
    row = (ctypes.c_int64 * len(ReaderWord))(*found, prod(shape.dims) * shape.dtype.numpy.itemsize)
    _rows.append(row)
    return ctypes.addressof(row)


_rows: list[object] = []


@kernel(READ)
def read_quickly(a: Words, ready: int) -> int:
    """Do what `Buffer_ToHostBuffer` is asked for; 0 if Python is to do it."""
    block = words_at(a[_SOURCE])
    if block[_READER] == 0 or block[_ADDRESS] == 0 or block[_IS_DELETED] != 0:
        return 0
    row = words_at(block[_READER])
    if a[_TARGET] == 0:
        a[_SIZE] = row[ReaderWord.BYTES]
        return 1
    if a[_SIZE] < row[ReaderWord.BYTES]:
        return 0
    if a[_LAYOUT] != 0:
        layout = words_at(a[_LAYOUT])
        rank = block[_BUFFER_RANK]
        if (layout[_KIND] & 0xFFFFFFFF) != TILED or layout[_RANK] != rank:
            return 0
        order = layout
        if rank != 0:
            order = words_at(layout[_ORDER])
        for number in range(rank):
            if order[number] != rank - 1 - number:
                return 0
    call_at(row[ReaderWord.LOOPS], a[_TARGET], block[_ADDRESS], row[ReaderWord.ARGUMENTS])
    a[_EVENT] = ready
    return 1
