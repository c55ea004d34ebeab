"""What state instructions do to a `CoreState`: `tpu_sim.isa.effects.CorePrimitives` on NumPy arrays.

A method reads at once, checks and faults at once, and leaves what it changes to a function of
`later`: the executor runs these when all instructions of a bundle have read.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tpu_sim.interp import mxu
from tpu_sim.interp.transpose import transposed_halves
from tpu_sim.isa.causes import LOWERED, Cause, transfer_cause
from tpu_sim.isa.chip_limits import MOST_RESULTS
from tpu_sim.isa.geometry import LANES, SUBLANES, UNIT_DIM, WORD_BYTES
from tpu_sim.isa.program import HBM, NO_ROUTE, SMEM, SPILL_ROWS, Kernel, Window
from tpu_sim.isa.resources import EUP, MRF, XLU, Resource
from tpu_sim.isa.timing import DmaCost, dma_times, exchange_times, result_ready_cycles, unit_free
from tpu_sim.machine import dma
from tpu_sim.machine.fabric import Fabric, Links
from tpu_sim.machine.far_core import FarCore
from tpu_sim.machine.faults import (
    DeadlockFault,
    DmaCountFault,
    OutOfMemoryRangeFault,
    OutOfWindowFault,
)
from tpu_sim.machine.memory import HbmMemory
from tpu_sim.machine.race_detector import RaceDetector
from tpu_sim.machine.state import ACTIVE, SHADOW, CoreState

U32 = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]
I64 = npt.NDArray[np.int64]
Commit = Callable[[], None]

_SUBLANES = np.arange(SUBLANES, dtype=np.int64)
_EVERYWHERE = np.ones((SUBLANES, LANES), np.bool_)
_TRANSPOSE: dict[int, Callable[[U32], U32]] = {
    32: lambda block: block.T.copy(),
    16: transposed_halves,
}
"""By bits of an element."""


class NumpyCore:
    """`Core` for the instructions of one kernel (or of main, `kernel` None).

    Vregs are uint32 [8, 128], masks bool [8, 128], scalars signed ints, of stored SMEM words too.
    """

    def __init__(
        self,
        state: CoreState,
        hbm: HbmMemory,
        kernel: Kernel | None,
        races: RaceDetector | None,
        fabric: Fabric,
        links: Links | None,
    ) -> None:
        self._state = state
        self._hbm = hbm
        self._kernel = kernel
        self._races = races
        self._fabric = fabric
        self._links = links
        self.later: list[Commit] = []
        """What the methods called so far leave to be done; the executor takes it."""

    # VMEM

    def _window(self, window: int) -> Window:
        assert self._kernel is not None
        return self._kernel.windows[window]

    def _window_rows(self, number: int, rows: I64) -> I64:
        window = self._window(number)
        low, high = int(rows.min()), int(rows.max())
        if low < 0 or high >= window.rows:
            raise OutOfWindowFault(
                f"rows {low}..{high} of window {window.name}, which has {window.rows}"
            )
        return rows + window.base_row

    def load_rows(self, window: int, s: int, k: int, stride: int) -> U32:
        """See `Core`."""
        rows = self._window_rows(window, s + k + _SUBLANES * stride)
        if self._races:
            self._races.read_rows(rows, self._window(window))
        return self._state.vmem[rows]

    def store_rows(
        self, window: int, s: int, k: int, stride: int, a: U32, mask: Mask | None = None
    ) -> None:
        """See `Core`."""
        rows = self._window_rows(window, s + k + _SUBLANES * stride)
        if self._races:
            self._races.write_rows(rows if mask is None else rows[mask.any(axis=1)])

        def commit() -> None:
            for sublane, row in enumerate(rows.tolist()):
                target = self._state.vmem[row]
                if mask is None:
                    target[:] = a[sublane]
                else:
                    target[mask[sublane]] = a[sublane][mask[sublane]]

        self.later.append(commit)

    def _words(self, window: int, s: int, index: U32, mask: Mask) -> I64:
        words = (index.view(np.int32).astype(np.int64) + s * LANES)[mask]
        rows = self._window_rows(window, words // LANES) if len(words) else words
        return rows * LANES + words % LANES

    def load_words(self, window: int, s: int, index: U32) -> U32:
        """See `Core`."""
        words = self._words(window, s, index, _EVERYWHERE)
        if self._races:
            self._races.read_rows(np.unique(words // LANES), self._window(window))
        return self._state.vmem.reshape(-1)[words].reshape(SUBLANES, LANES)

    def store_words(self, window: int, s: int, index: U32, a: U32, mask: Mask) -> None:
        """See `Core`."""
        words = self._words(window, s, index, mask)
        if self._races and len(words):
            self._races.write_rows(np.unique(words // LANES))

        def commit() -> None:
            memory = self._state.vmem.reshape(-1)
            for word, bits in zip(words.tolist(), a[mask].tolist(), strict=True):
                memory[word] = bits  # in order: the last store to a word wins

        self.later.append(commit)

    def _spill_rows(self, slot: int) -> slice:
        assert self._kernel is not None
        first = self._kernel.spill_base_row + slot * SPILL_ROWS
        return slice(first, first + SPILL_ROWS)

    def fill(self, slot: int) -> U32:
        """See `Core`."""
        if self._races:
            self._races.read_spill(slot)
        return self._state.vmem[self._spill_rows(slot)].copy()

    def fill_mask(self, slot: int) -> Mask:
        """See `Core`."""
        mask: Mask = self.fill(slot) != 0
        return mask

    def spill(self, slot: int, a: U32) -> None:
        """See `Core`."""
        if self._races:
            self._races.write_spill(slot)
        self.later.append(lambda: self._state.vmem.__setitem__(self._spill_rows(slot), a))

    def spill_mask(self, slot: int, a: Mask) -> None:
        """See `Core`."""
        self.spill(slot, a.astype(np.uint32))

    # SMEM

    def _smem_word(self, a: int, k: int) -> int:
        word = a + k
        if not 0 <= word < len(self._state.smem):
            raise OutOfMemoryRangeFault(f"SMEM word {word}, there are {len(self._state.smem)}")
        return word

    def load_smem(self, a: int, k: int) -> U32:
        """See `Core`."""
        word = self._smem_word(a, k)
        if self._races:
            self._races.read_words(_smem_side(word))
        return self._state.smem[word : word + 1].copy()

    def store_smem(self, a: int, k: int, b: int) -> None:
        """See `Core`."""
        word = self._smem_word(a, k)
        if self._races:
            self._races.write_words(_smem_side(word))
        self.later.append(lambda: self._state.smem.__setitem__(word, b & 0xFFFFFFFF))

    def core_number(self) -> U32:
        """See `Core`."""
        return np.array([self._state.core], np.uint32)

    # queues

    def pop(self, queue: Resource, unit: int) -> U32:
        """See `Core`."""
        state = self._state
        if queue is not MRF:
            return {EUP: state.eup, XLU: state.xlu}[queue].popleft()
        ring = state.results[unit]
        value: U32 = ring[int(state.mrf_popped[unit]) % len(ring)].copy()
        state.mrf_popped[unit] += 1
        return value

    # from the vector unit to the scalar unit

    def first_word(self, a: U32) -> U32:
        """See `Core`."""
        return a[0, :1].copy()

    # MXU

    def push_weights(self, unit: int, a: U32, row: int, *, is_transposed: bool) -> None:
        """See `Core`."""
        shadow = self._state.weights[unit, SHADOW]
        shadow = shadow.T if is_transposed else shadow
        self.later.append(lambda: shadow.__setitem__(slice(16 * row, 16 * row + 16), _rows(a)))

    def swap_weights(self, unit: int) -> None:
        """See `Core`."""
        weights = self._state.weights[unit]

        def commit() -> None:
            weights[ACTIVE] = weights[SHADOW]
            weights[SHADOW] = 0

        self.later.append(commit)

    def multiply(self, unit: int, a: U32, pass_format: str) -> None:
        """See `Core`."""
        state = self._state
        weights = state.weights[unit, ACTIVE].astype(np.uint32) << np.uint32(16)
        left = np.concatenate(mxu.halves(a))
        rows = mxu.PASSES[pass_format](left, weights.view(np.float32))

        def commit() -> None:
            for half, cycles in enumerate(result_ready_cycles(state.chip)):
                pushed = int(state.mrf_pushed[unit])
                ring = state.results[unit]
                ring[pushed % len(ring)] = rows[SUBLANES * half : SUBLANES * (half + 1)]
                state.mrf_ready[unit, pushed % MOST_RESULTS] = state.now + cycles
                state.mrf_pushed[unit] += 1
            state.unit_free[unit] = unit_free(int(state.unit_free[unit]), state.now, state.chip)
            state.mxu_passes += 1

        self.later.append(commit)

    # transpose units

    def push_block(self, unit: int, a: U32, row: int) -> None:
        """See `Core`."""
        where = (unit, SHADOW, slice(SUBLANES * row, SUBLANES * row + SUBLANES))
        self.later.append(lambda: self._state.transposes.__setitem__(where, a))

    def transpose(self, unit: int, element_bits: int) -> None:
        """See `Core`."""
        transposed = _TRANSPOSE[element_bits](self._state.transposes[unit, SHADOW])
        self.later.append(lambda: self._state.transposes.__setitem__((unit, ACTIVE), transposed))

    def read_block(self, unit: int, row: int) -> U32:
        """See `Core`."""
        rows = slice(SUBLANES * row, SUBLANES * row + SUBLANES)
        return self._state.transposes[unit, ACTIVE, rows].copy()

    # transfers and sync flags

    def flag(self, flag: int, f: int) -> int:
        """The number of a sync flag, which the kernel has."""
        count = 0 if self._kernel is None else self._kernel.flags
        if not 0 <= flag + f < count:
            raise DmaCountFault(f"sync flag {flag + f}, the kernel has {count}")
        return flag + f

    def start(
        self, descriptor: int, src: int, dst: int, flag: int, f: int, c0: int, c1: int
    ) -> None:
        """See `Core`."""
        assert self._kernel is not None
        shape = self._kernel.descriptors[descriptor]
        window = self._kernel.windows[shape.window] if shape.window >= 0 else None
        number = self.flag(flag, f)
        sizes = {HBM: len(self._hbm.bytes), SMEM: self._state.smem.nbytes}
        transfer = dma.resolve(shape, window, (src, dst), (c0, c1), sizes)
        if shape.route != NO_ROUTE:
            self.later.append(lambda: self._exchange(transfer, shape.route, number))
            return
        cost = self._fabric.cost(shape.src_space, shape.dst_space)
        cause = transfer_cause(shape)
        self.later.append(lambda: self._transfer(transfer, cost, number, cause))

    def _transfer(self, transfer: dma.Transfer, cost: DmaCost, flag: int, cause: Cause) -> None:
        state = self._state
        if self._races:
            self._races.start(transfer, flag)
        dma.copy(transfer, state, self._hbm)
        free, done = dma_times(state.now, state.dma_free, transfer.total_bytes, cost)
        state.dma_free = free
        state.flag_done[flag] = max(int(state.flag_done[flag]), done)
        state.flag_cause[flag] = int(cause)
        state.hbm_bytes += transfer.hbm_bytes

    def _exchange(self, transfer: dma.Transfer, number: int, flag: int) -> None:
        """Send to the core that a route leads to; wait on the flag for what comes by it."""
        state, links = self._state, self._links
        if links is None:
            raise DeadlockFault("a transfer to another core, and this one runs alone")
        route = links.routes[number]
        cost = self._fabric.route_cost(route, is_flag=not transfer.total_bytes)
        state.flag_cause[flag] = int(Cause.ICI)
        if route.source(links.number) >= 0:
            state.expect_raise(flag)
        target = route.targets[links.number]
        if target < 0:
            return
        peer, hbm = links.cores[target]
        dma.copy(transfer, state, self._hbm, hbm)
        if isinstance(peer, FarCore):
            for first in transfer.target.offsets.tolist():
                peer.post(first, transfer.target.chunk_bytes)
        engine = int(state.port_free[route.port])
        free, left, done = exchange_times(state.now, engine, transfer.total_bytes, cost)
        state.port_free[route.port] = free
        state.flag_done[flag] = max(int(state.flag_done[flag]), left)
        state.hbm_bytes += transfer.hbm_bytes
        links.sent[number] += transfer.total_bytes
        peer.raise_flag(flag, done)

    def wait(self, flag: int, f: int) -> None:
        """See `Core`; the time it takes is the executor's."""
        number = self.flag(flag, f)

        def commit() -> None:
            self._state.flag_cause[number] = int(LOWERED)
            if self._races:
                self._races.wait(number)

        self.later.append(commit)


def _rows(packed: U32) -> npt.NDArray[np.uint16]:
    """(16, 128): rows 2s and 2s+1 are the low and high halves of sublane s."""
    low, high = packed.astype(np.uint16), (packed >> np.uint32(16)).astype(np.uint16)
    rows: npt.NDArray[np.uint16] = np.stack([low, high], axis=1).reshape(16, UNIT_DIM)
    return rows


def _smem_side(word: int) -> dma.Side:
    return dma.Side(SMEM, np.array([word * WORD_BYTES], np.int64), WORD_BYTES)
