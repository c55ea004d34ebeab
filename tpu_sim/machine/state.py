"""The state of one core: the words of `tpu_sim.machine.schema` as views, memories, units, records.

At the borders of nodes, where a run may be paused, this is all there is: vregs, masks and the EUP
and XLU queues hold nothing then.
"""

from __future__ import annotations

from collections import deque

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.causes import LOWERED, Cause
from tpu_sim.isa.chip_limits import MOST_RESULTS, MOST_SREGS
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import LANES, SUBLANES, UNIT_DIM
from tpu_sim.isa.program import MAX_FLAGS
from tpu_sim.machine.result import MOST_RECORDS, RECORD_WORDS
from tpu_sim.machine.schema import OFFSETS, SCHEMA, STATE_WORDS

U16 = npt.NDArray[np.uint16]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SHADOW, ACTIVE = 0, 1
"""The two blocks of an MXU's weights and of a transpose unit."""

_COUNTS = {field.name: field.count for field in SCHEMA}


class _Word:
    """A word of the state as a number."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._at = OFFSETS[name]
        assert _COUNTS[name] == 1, name

    def __get__(self, state: CoreWords, owner: type) -> int:
        return int(state.words[self._at])

    def __set__(self, state: CoreWords, value: int) -> None:
        state.words[self._at] = value


class CoreWords:
    """The words of a core's state by name, wherever they lie: what a sequencer looks at."""

    now, until, until_call = _Word(), _Word(), _Word()
    body, node, return_node = _Word(), _Word(), _Word()
    call, call_start, record_count = _Word(), _Word(), _Word()
    mxu_passes, dma_wait, hbm_bytes, dma_free = _Word(), _Word(), _Word(), _Word()
    cores, core, core_flags, core_end = _Word(), _Word(), _Word(), _Word()
    core_dma, core_dma_free = _Word(), _Word()

    def __init__(self, words: I64) -> None:
        self.words = words
        self.causes, self.core_causes = self._field("causes"), self._field("core_causes")
        self.unit_free = self._field("unit_free")
        self.mrf_pushed, self.mrf_popped = self._field("mrf_pushed"), self._field("mrf_popped")
        self.mrf_ready = self._field("mrf_ready").reshape(-1, MOST_RESULTS)
        self.counters, self.trips = self._field("counters"), self._field("trips")
        self.flag_done, self.flag_cause = self._field("flag_done"), self._field("flag_cause")
        self.flag_pending = self._field("flag_pending")
        self.port_free = self._field("port_free")
        self.sregs: U32 = self._field("sregs").view(np.uint32)

    def _field(self, name: str) -> I64:
        return self.words[OFFSETS[name] : OFFSETS[name] + _COUNTS[name]]

    def sreg(self, number: int) -> int:
        """An sreg as a signed number."""
        return int(self.sregs[number : number + 1].view(np.int32)[0])


class CoreState(CoreWords):
    """Everything that a node can read or change, HBM apart.

    `weights` are bf16 bits by unit, block (`SHADOW`, `ACTIVE`), k and column; `transposes` words by
    unit, block, row and lane; `results` a ring of vregs for each MXU, in which result n lies at n
    modulo its length. `records` and `totals` are rows as in `tpu_sim.machine.result`, `totals` by
    number of the call. Given arrays are used, others made of zeros.
    """

    def __init__(
        self,
        chip: Chip,
        calls: int = 0,
        words: I64 | None = None,
        vmem: U32 | None = None,
        smem: U32 | None = None,
        records: I64 | None = None,
        totals: I64 | None = None,
    ) -> None:
        self.chip = chip
        super().__init__(np.zeros(STATE_WORDS, np.int64) if words is None else words)
        self.vmem: U32 = _or_zeros(vmem, (chip.vmem_rows, LANES))
        self.smem: U32 = _or_zeros(smem, (chip.smem_words,))
        self.records: I64 = (
            np.zeros((MOST_RECORDS, RECORD_WORDS), np.int64) if records is None else records
        )
        self.totals: I64 = np.zeros((calls, RECORD_WORDS), np.int64) if totals is None else totals
        self.weights: U16 = np.zeros((chip.mxu_units, 2, UNIT_DIM, UNIT_DIM), np.uint16)
        self.transposes: U32 = np.zeros((chip.transpose_units, 2, UNIT_DIM, UNIT_DIM), np.uint32)
        ring = 1 << (chip.mrf_entries - 1).bit_length()
        self.results: U32 = np.zeros((chip.mxu_units, ring, SUBLANES, LANES), np.uint32)
        if chip.sregs > MOST_SREGS:  # tests count on as many as a program names
            self.sregs = np.zeros(chip.sregs, np.uint32)
        self.forget_block()
        if words is None:
            self.flag_cause[:] = int(LOWERED)

    def forget_block(self) -> None:
        """Registers and queues that live within a block hold nothing."""
        self.vregs: dict[int, U32] = {}
        self.vmasks: dict[int, Mask] = {}
        self.eup: deque[U32] = deque()
        self.xlu: deque[U32] = deque()

    def enter_kernel(self) -> None:
        """Registers, queues and units are as a kernel finds them; sync flags stay as they are."""
        self.forget_block()
        self.sregs[:] = 0
        for array in (self.weights, self.transposes, self.unit_free):
            array[:] = 0
        self.mrf_pushed[:] = 0
        self.mrf_popped[:] = 0

    def expect_raise(self, flag: int) -> None:
        """Another core is going to raise a sync flag, or has done so."""
        self.flag_pending[flag] += 1

    def raise_flag(self, flag: int, cycle: int) -> None:
        """Another core raises a sync flag at a cycle, whether or not it is expected yet."""
        self.flag_pending[flag] -= 1
        self.flag_done[flag] = max(int(self.flag_done[flag]), cycle)

    def begin_call(self, number: int) -> None:
        """A kernel is called now: what it costs is counted from here, its launch included."""
        self.call, self.call_start = number, self.now
        self.mxu_passes = self.dma_wait = self.hbm_bytes = 0
        self.core, self.core_dma, self.core_dma_free, self.core_end = 0, self.dma_free, 0, 0
        self._launch()

    def _launch(self) -> None:
        self.causes[:] = 0
        self.causes[Cause.LAUNCH] = self.chip.call_overhead_cycles
        self.now = self.call_start + self.chip.call_overhead_cycles

    def end_share(self) -> bool:
        """A core is through with its part of a kernel; whether another one has a part, which is next.

        That one began at the same time: what counts in the end is the slowest.
        """
        if self.now > self.core_end:
            self.core_end = self.now
            self.core_causes[:] = self.causes
        self.core_dma_free = max(self.core_dma_free, self.dma_free)
        if self.core + 1 < self.cores:
            self.core += 1
            self.flag_done[: self.core_flags] = 0
            self.dma_free = self.core_dma
            self._launch()
            return True
        self.now, self.dma_free = self.core_end, self.core_dma_free
        self.causes[:] = self.core_causes
        if self.cores > 1:
            self.now += self.chip.core_sync_cycles
            self.causes[Cause.LATENCY] += self.chip.core_sync_cycles
        self.core = 0
        return False

    def end_call(self) -> None:
        """Keep a record of the call; see `tpu_sim.machine.result`."""
        counts = (self.now - self.call_start, self.mxu_passes, self.dma_wait, self.hbm_bytes)
        gains = np.array([*counts, *self.causes], np.int64)
        if self.record_count < MOST_RECORDS:
            row = self.records[self.record_count]
            row[:] = 0
            row[0], row[1] = self.call, self.call_start
        else:
            row = self.totals[self.call]
            row[1] = row[1] if row[0] else self.call_start
            row[0] += 1
        row[2 : 2 + len(gains)] += gains
        self.record_count += 1


def _or_zeros(array: U32 | None, shape: tuple[int, ...]) -> U32:
    return np.zeros(shape, np.uint32) if array is None else array


assert _COUNTS["flag_done"] == MAX_FLAGS
