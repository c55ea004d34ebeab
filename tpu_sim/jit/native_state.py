"""A core's large state between the order that native code keeps it in and the one that is stated.

Native code lays weights out as the host multiplies them, clears what no push wrote when they are
swapped in, goes round a ring of transposed blocks, keeps an MXU's results in a ring no larger than
the kernel needs, and leaves windows in HBM while nobody could tell (`tpu_sim.jit.hbm_windows`).
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, ROW_BYTES, SUBLANES, UNIT_DIM, VREG_BYTES
from tpu_sim.isa.program import Kernel
from tpu_sim.jit.context import TRANSPOSE_BYTES, WEIGHT_BYTES, ExecutionContext, Word
from tpu_sim.jit.engine import NativeModule, detect_host
from tpu_sim.jit.hbm_windows import windows_in_place
from tpu_sim.jit.weight_layout import COLUMNS, WEIGHT_ROWS, layout_of
from tpu_sim.jit.window_kernels import (
    ENTRY_BYTES,
    GAP_OFFSET,
    PIECE_ROWS_OFFSET,
    POINTER_OFFSET,
    SETTLE,
    entry_offset,
)
from tpu_sim.machine.state import ACTIVE, SHADOW, CoreState

_INDEX_BITS = 16
_ALL_PUSHES = 0xFFFF

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]


def settle_windows(context: ExecutionContext, library: NativeModule) -> None:
    """Copy what windows refer to into VMEM."""
    settle = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(library.address(SETTLE))
    for entry in range(int(context.words[Word.WINDOW_COUNT])):
        settle(context.address, context.address + entry_offset(entry))


def read_state(context: ExecutionContext, state: CoreState, ring: int) -> None:
    """Copy weights, transposed blocks and results; `ring` entries hold a unit's results."""
    words = context.words
    for unit in range(state.chip.mxu_units):
        active = int(words[Word.ACTIVE + unit])
        blocks = _weights(context, unit)
        for block, at in ((ACTIVE, active), (SHADOW, 1 - active)):
            state.weights[unit, block] = _from_native(blocks[at])
        state.weights[unit, SHADOW][~_pushed(int(words[Word.PUSHES + unit]))] = 0
        popped, waiting = int(state.mrf_popped[unit]), _waiting(state, unit)
        entries = state.results[unit]
        for number in range(waiting):
            at = (int(words[Word.HEAD + unit]) + number) % ring
            entries[(popped + number) % len(entries)] = _results(context, unit, ring)[at]
    for unit, blocks in enumerate(_transposes(context, state.chip)):
        index = int(words[Word.TRANSPOSE_INDEX]) >> _INDEX_BITS * unit & (1 << _INDEX_BITS) - 1
        state.transposes[unit, SHADOW], state.transposes[unit, ACTIVE] = (
            blocks[0],
            blocks[1 + index],
        )


def write_state(context: ExecutionContext, state: CoreState, ring: int, kernel: Kernel) -> None:
    """The other way round, for a core that goes on in `kernel`; no window refers to HBM."""
    words = context.words
    for unit in range(state.chip.mxu_units):
        blocks = _weights(context, unit)
        for block, at in ((ACTIVE, 0), (SHADOW, 1)):
            blocks[at] = _to_native(state.weights[unit, block])
        words[Word.ACTIVE + unit], words[Word.PUSHES + unit] = 0, _ALL_PUSHES
        popped, waiting = int(state.mrf_popped[unit]), _waiting(state, unit)
        head = words[Word.HEAD + unit] = waiting % 2  # both results of a pass lie together
        entries = state.results[unit]
        for number in range(min(waiting, ring)):
            value = entries[(popped + number) % len(entries)]
            _results(context, unit, ring)[(int(head) + number) % ring] = value
    words[Word.TRANSPOSE_INDEX] = 0
    for unit, blocks in enumerate(_transposes(context, state.chip)):
        blocks[0], blocks[1] = state.transposes[unit, SHADOW], state.transposes[unit, ACTIVE]
    _write_windows(context, kernel)


def _write_windows(context: ExecutionContext, kernel: Kernel) -> None:
    """The table of windows that are read in place, as at the start of a kernel."""
    found = windows_in_place(kernel)
    context.words[Word.WINDOW_COUNT] = len(found)
    for window, in_place in found.items():
        at = context.address + entry_offset(in_place.entry)
        ctypes.memset(at, 0, ENTRY_BYTES)
        base = int(context.words[Word.VMEM]) + kernel.windows[window].base_row * ROW_BYTES
        for offset, value in (
            (POINTER_OFFSET, base),
            (PIECE_ROWS_OFFSET, in_place.pieces.rows),
            (GAP_OFFSET, in_place.pieces.gap_bytes),
        ):
            ctypes.c_int64.from_address(at + offset).value = value


def _waiting(state: CoreState, unit: int) -> int:
    """Results in an MXU's queue."""
    return int(state.mrf_pushed[unit] - state.mrf_popped[unit])


def _weights(context: ExecutionContext, unit: int) -> U16:
    """The two blocks of a unit: rows, columns, halves of a word."""
    words = context.memory(Word.WEIGHTS, np.uint16)
    size = WEIGHT_BYTES // 2
    return words[unit * 2 * size : (unit + 1) * 2 * size].reshape(2, WEIGHT_ROWS, COLUMNS, 2)


def _k_of() -> npt.NDArray[np.intp]:
    """The k whose weights each row and half of a block holds."""
    layout = layout_of(detect_host())
    steps = np.arange(WEIGHT_ROWS // layout.words)[:, None, None] * 2 * layout.words
    halves: npt.NDArray[np.intp] = steps + np.array(layout.halves)[None]
    return halves.reshape(WEIGHT_ROWS, 2)


def _from_native(block: U16) -> U16:
    weights = np.empty((UNIT_DIM, UNIT_DIM), np.uint16)
    weights[_k_of()] = block.transpose(0, 2, 1)
    return weights


def _to_native(weights: U16) -> U16:
    return weights[_k_of()].transpose(0, 2, 1)


def _pushed(pushes: int) -> npt.NDArray[np.bool_]:
    """Which weights by k and column were written: plain push n k 16n.., transposed push n columns 16n.."""
    bits = np.array([pushes >> bit & 1 for bit in range(16)], np.bool_)
    plain, transposed = np.repeat(bits[:8], UNIT_DIM // 8), np.repeat(bits[8:], UNIT_DIM // 8)
    return plain[:, None] | transposed[None, :]


def _results(context: ExecutionContext, unit: int, ring: int) -> U32:
    words = context.memory(Word.RESULTS, np.uint32)
    size = ring * VREG_BYTES // 4
    return words[unit * size : (unit + 1) * size].reshape(ring, SUBLANES, LANES)


def _transposes(context: ExecutionContext, chip: Chip) -> npt.NDArray[np.uint32]:
    """By unit its shadow block and the ring of active ones, of the first thread."""
    blocks = 1 + context.transpose_blocks
    size = chip.transpose_units * blocks * TRANSPOSE_BYTES // 4
    words: U32 = context.memory(Word.TRANSPOSE, np.uint32)[:size]
    return words.reshape(chip.transpose_units, blocks, UNIT_DIM, UNIT_DIM)
