"""The table of windows that are read in place, and what keeps it (`tpu_sim.jit.hbm_windows`).

A window has two slots (of its double buffer), each a range of rows that is a reference to HBM, if any.
The number of rows of a slot goes to 0 once its data is in VMEM, so it is read before the others.
"""

from __future__ import annotations

from tpu_sim.isa.geometry import ROW_BYTES
from tpu_sim.jit.context import Word
from tpu_sim.jit.kernel_builtins import (
    Words,
    address_of,
    compare_and_swap,
    copy_bytes,
    load_acquire,
    store_release,
    words_at,
)
from tpu_sim.jit.kernel_language import kernel

_PREFIX = "tpuc_kernel_v1_window_"
SETTLE = _PREFIX + "settle"
RESOLVE = _PREFIX + "resolve"
REFER = _PREFIX + "refer"
PROTECT = _PREFIX + "protect"
MAX_WINDOWS = 16
ENTRY_BYTES = 128
"""Per window two slots of four words: first row, rows (0: none), bytes from VMEM to HBM, and in the
first slot the window's pointer, in the second whether references do not pay. Behind them rows and
gap of `Pieces`."""
_FIRST, _SECOND = 0, 4  # the slots
_ROWS, _DELTA = 1, 2
_POINTER, _REFUSED, _PIECE_ROWS, _GAP = 3, 7, 8, 9
POINTER_OFFSET = 8 * _POINTER
PIECE_ROWS_OFFSET, GAP_OFFSET = 8 * _PIECE_ROWS, 8 * _GAP


def entry_offset(entry: int) -> int:
    """Bytes from the context to an entry."""
    return int(Word.WINDOWS) * 8 + entry * ENTRY_BYTES


def _pieces(slots: Words, rows: int) -> tuple[int, int]:
    """The number of pieces of a slot in use, and their size in bytes."""
    piece_rows = slots[_PIECE_ROWS]
    return max(rows // piece_rows, 1), min(rows, piece_rows) * ROW_BYTES


@kernel(SETTLE)
def settle(ctx: Words, slots: Words) -> None:
    """Copy what a window refers to into VMEM; one thread at a time."""
    while not compare_and_swap(ctx, Word.WINDOWS_LOCK, 0, 1):
        pass
    for slot in (_FIRST, _SECOND):
        rows = load_acquire(slots, slot + _ROWS)
        if rows > 0:
            target = slots[_POINTER] + slots[slot] * ROW_BYTES
            source = target + slots[slot + _DELTA]
            count, size = _pieces(slots, rows)
            stride = size + slots[_GAP]
            for number in range(count):
                copy_bytes(target + number * size, source + number * stride, size)
            store_release(slots, slot + _ROWS, 0)
    store_release(ctx, Word.WINDOWS_LOCK, 0)


@kernel(RESOLVE)
def resolve(ctx: Words, slots: Words, first: int, span: int) -> int:
    """Bytes from VMEM to where row `first` of a window lies, or 0 if it lies in VMEM.

    Up to row ``first + span`` everything lies likewise; in pieces of which one starts at `first`.
    """
    for slot in (_FIRST, _SECOND):
        rows = load_acquire(slots, slot + _ROWS)
        start = first - slots[slot]
        last = start + span
        if start < rows and last >= 0:
            if start >= 0 and last < rows:
                gap, piece_rows = slots[_GAP], slots[_PIECE_ROWS]
                if gap == 0:
                    return slots[slot + _DELTA]
                piece = start // piece_rows
                if piece * piece_rows == start:
                    return slots[slot + _DELTA] + piece * gap
            _refuse(ctx, slots)
            return 0
    return 0


def _refuse(ctx: Words, slots: Words) -> None:
    """References to this window do not pay: from here on it is copied."""
    settle(ctx, slots)
    slots[_REFUSED] = 1


@kernel(REFER)
def refer(ctx: Words, slots: Words, first: int, rows: int, delta: int) -> bool:
    """Keep a transfer as a reference: false if it must be copied."""
    if slots[_REFUSED] != 0:
        settle(ctx, slots)
        return False
    end = first + rows
    for slot in (_FIRST, _SECOND):
        start = slots[slot]
        slot_end = start + load_acquire(slots, slot + _ROWS)
        if start < end and slot_end > first:
            if start < first or slot_end > end:
                settle(ctx, slots)
            store_release(slots, slot + _ROWS, 0)
    if slots[_FIRST + _ROWS] != 0 and slots[_SECOND + _ROWS] != 0:
        settle(ctx, slots)
    free = _FIRST if slots[_FIRST + _ROWS] == 0 else _SECOND
    slots[free] = first
    slots[free + _DELTA] = delta
    store_release(slots, free + _ROWS, rows)
    return True


@kernel(PROTECT)
def protect(ctx: Words, low: int, high: int, size: int, stride: int) -> None:
    """HBM from `low` to `high` is about to be written: settle what refers to it.

    Of that range only pieces of `size` bytes every `stride` are written; 0 stands for one piece,
    a negative stride for anywhere in it.
    """
    for number in range(ctx[Word.WINDOW_COUNT]):
        slots = words_at(address_of(ctx) + entry_offset(number))
        gap = slots[_GAP]
        for slot in (_FIRST, _SECOND):
            rows = load_acquire(slots, slot + _ROWS)
            start = slots[_POINTER] + slots[slot] * ROW_BYTES + slots[slot + _DELTA]
            count, own_size = _pieces(slots, rows)
            end = start + rows * ROW_BYTES + (count - 1) * gap
            if rows > 0 and start < high and end > low:
                own_stride = 0 if gap == 0 else own_size + gap
                if not _is_interleaved(low - start, size, stride, own_size, own_stride):
                    _refuse(ctx, slots)


def _is_interleaved(distance: int, size: int, stride: int, own_size: int, own_stride: int) -> bool:
    """Whether pieces lie between those that are written, which start `distance` behind them: a stride
    is common to both, or one side is a single piece, and modulo that stride they do not meet.
    """
    common = stride if own_stride == 0 else own_stride
    is_possible = stride == common or stride == 0
    offset = distance % (common if common > 0 else 1)
    return is_possible and offset >= own_size and common - offset >= size and common > 0


KERNELS = (settle, resolve, refer, protect)
