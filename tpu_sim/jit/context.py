"""`ExecutionContext`: all state of one emulated core that native code works on, behind one pointer.

The context is an array of 64-bit words at fixed indices (`Word`); memories are large anonymous
mappings whose addresses stand in it, so that native code holds no address of its own. A host
thread that runs iterations of a parallel loop gets a context of its own over the same HBM and SMEM.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.causes import LOWERED, Cause
from tpu_sim.isa.chip_limits import MOST_UNITS
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.geometry import ROW_BYTES, VREG_BYTES
from tpu_sim.isa.program import Route
from tpu_sim.isa.timing import pass_occupancy, result_ready_cycles
from tpu_sim.machine.fabric import ROUTES, Fabric
from tpu_sim.machine.result import MOST_RECORDS, RECORD_WORDS
from tpu_sim.machine.schema import OFFSETS, STATE_WORDS

WEIGHT_BYTES = 128 * 128 * 2
TRANSPOSE_BYTES = 128 * 128 * 4

_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0

OWN_CARRY, OWN_TRANSPOSE, OWN_TRANSPOSE_INDEX = -24, -16, -8
"""Byte offsets, from a thread's scratch memory, of words that are the thread's own: pointers to its
carried vregs and its transpose blocks, and the indices of its current transpose blocks."""
_OWN_BYTES = VREG_BYTES
OWN_STATE = -_OWN_BYTES
"""The same of the words, up to `Word.FLAG_DONE`, of a range of iterations that the thread runs."""

COST_WORDS = 3
"""Of a route's DMA cost: factor, setup and latency."""

Words = npt.NDArray[np.int64]


class Word(IntEnum):
    """Index of each 64-bit word of the context; per-unit and per-flag words are tables.

    The core's state as both machines have it comes first (`tpu_sim.machine.schema`), then what native
    code needs beside it.
    """

    NOW = OFFSETS["now"]
    CAUSES = OFFSETS["causes"]
    UNTIL = OFFSETS["until"]
    UNTIL_CALL = OFFSETS["until_call"]
    BODY = OFFSETS["body"]
    NODE = OFFSETS["node"]
    RETURN_NODE = OFFSETS["return_node"]
    CALL = OFFSETS["call"]
    CALL_START = OFFSETS["call_start"]
    MXU_PASSES = OFFSETS["mxu_passes"]
    DMA_WAIT = OFFSETS["dma_wait"]
    HBM_BYTES = OFFSETS["hbm_bytes"]
    DMA_FREE = OFFSETS["dma_free"]
    CORES = OFFSETS["cores"]
    CORE = OFFSETS["core"]
    CORE_FLAGS = OFFSETS["core_flags"]
    CORE_DMA = OFFSETS["core_dma"]
    CORE_DMA_FREE = OFFSETS["core_dma_free"]
    CORE_END = OFFSETS["core_end"]
    CORE_CAUSES = OFFSETS["core_causes"]
    RECORD_COUNT = OFFSETS["record_count"]
    UNIT_FREE = OFFSETS["unit_free"]
    CLOCK_TAIL = OFFSETS["mrf_pushed"]
    CLOCK_HEAD = OFFSETS["mrf_popped"]
    SREGS = OFFSETS["sregs"]
    COUNTERS = OFFSETS["counters"]
    TRIPS = OFFSETS["trips"]
    FLAG_DONE = OFFSETS["flag_done"]
    FLAG_CAUSE = OFFSETS["flag_cause"]
    FLAG_PENDING = OFFSETS["flag_pending"]
    PORT_FREE = OFFSETS["port_free"]
    READY = OFFSETS["mrf_ready"]

    VMEM = STATE_WORDS
    HBM = VMEM + 1
    HBM_GRANULES = VMEM + 2
    SMEM = VMEM + 3
    SMEM_WORDS = VMEM + 4
    CARRY = VMEM + 5  # vreg values that cross a stage of a block
    RESULTS = VMEM + 6  # MXU result queues: a ring of vregs per unit
    WEIGHTS = VMEM + 7  # per unit two blocks, active and shadow
    TRANSPOSE = VMEM + 8  # per transpose unit its shadow block, then a ring of active blocks
    RECORDS = VMEM + 9
    TOTALS = VMEM + 10  # per call of the program: a record of what has no record of its own
    TRANSPOSE_INDEX = (
        VMEM + 11
    )  # which active block of its ring is current, 16 bits a transpose unit
    TASKS = VMEM + 12  # table of tasks and their arguments
    SCRATCH = VMEM + 13  # values within one component
    SMEM_END = VMEM + 14  # one more than the last word written behind those that the program owns
    POOL = VMEM + 15  # words of the helpers, 0 if a run has none
    WINDOWS_LOCK = VMEM + 16
    WINDOW_COUNT = VMEM + 17  # entries in use of the table of windows read in place
    RESULT_READY = VMEM + 18  # two: cycles until the results of a pass can be popped
    PASS_OCCUPANCY = VMEM + 20
    WAIT_CYCLES = VMEM + 21
    CALL_CYCLES = VMEM + 22
    JOIN_CYCLES = VMEM + 23  # until cores that shared a kernel know that all are through
    MOST_RECORDS = VMEM + 24
    COMPONENTS = VMEM + 25  # the table of the program's component functions
    GOAL = (
        VMEM + 26
    )  # the cycle that the run is to go to; it may come back to Python before (UNTIL)
    LINKS = VMEM + 27  # the table of the program's routes, as this core has them (`RouteWord`)
    POSTS = VMEM + 28  # of a core of another process: the list of what was written (`FarCore`)
    DMA_COSTS = VMEM + 29  # by route: factor, setup and latency, as the fabric gave them
    REPEATS = DMA_COSTS + COST_WORDS * len(
        ROUTES
    )  # by call: the address of its row (`RepeatWord`) or 0; 0 if there is no table
    HEAD = REPEATS + 1  # per unit: results popped so far, if any are left
    PUSHES = HEAD + MOST_UNITS  # per unit: 8 bits of plain, 8 of transposed pushes since a swap
    ACTIVE = PUSHES + MOST_UNITS  # per unit: 0 or 1, the active weight block
    WINDOWS = ACTIVE + MOST_UNITS


class RouteWord(IntEnum):
    """Words of a route in the table at `Word.LINKS`."""

    PEER = 0  # the context of the core that it leads to, 0 if to none
    EXPECTS = 1  # 1 if transfers come to this core by it
    PORT = 2
    FACTOR = 3  # cost of its transfers: see `DmaCost`
    SETUP = 4
    LATENCY = 5
    FLAG_LATENCY = 6  # of those without bytes
    SENT = 7  # bytes that this core sent over it


class RepeatWord(IntEnum):
    """Words of a row that says how a kernel call went, seen from its begin (`tpu_sim.jit.repeat_kernels`).

    A time that lies before the begin is 0. Behind them stand per flag `REPEAT_FLAG_WORDS`: when it
    is done and what a wait for it counts as, as the call begins and as it ends.
    """

    START = 0  # the cycle at which the call under way began, or -1
    IS_KNOWN = 1
    FLAGS = 2
    ENGINE_BEFORE = 3  # when the DMA engine is free
    ENGINE_AFTER = 4
    CYCLES = 5
    MXU_PASSES = 6
    DMA_WAIT = 7
    HBM_BYTES = 8
    CAUSES = 9


REPEAT_FLAGS = RepeatWord.CAUSES + len(Cause)
REPEAT_FLAG_WORDS = 4
ROUTE_WORDS = 8
CONTEXT_WORDS = int(Word.WINDOWS) + 256
assert OWN_STATE + 8 * Word.FLAG_DONE <= OWN_CARRY


def map_memory(size_bytes: int) -> mmap.mmap:
    """A zeroed private mapping, page-aligned, huge pages where the host gives them."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    mapping = mmap.mmap(-1, max(size_bytes, mmap.PAGESIZE), flags=flags)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapping.madvise(mmap.MADV_HUGEPAGE)
    return mapping


def mapping_address(mapping: mmap.mmap) -> int:
    """Host address of a mapping."""
    return ctypes.addressof(ctypes.c_char.from_buffer(mapping))


@dataclass(frozen=True)
class ContextSizes:
    """What a translated program needs beside the chip's memories."""

    carry_bytes: int
    scratch_bytes: int
    task_bytes: int
    ring_entries: int
    transpose_blocks: int
    threads: int = 1
    calls: int = 0
    repeats: Sequence[int] = ()
    """Of an estimate, by call: see `tpu_sim.jit.repeated_calls.flags_of_calls`."""


class MachineMemories:
    """The chip's memories and the record table: one set serves all programs of a machine."""

    def __init__(self, chip: Chip) -> None:
        self.smem_words = chip.smem_words
        self._end = ctypes.c_int64(0)
        self.end_address = ctypes.addressof(self._end)
        """Where native code finds `smem_end`."""
        self.mappings = {
            Word.VMEM: map_memory(chip.vmem_bytes),
            Word.SMEM: map_memory(chip.smem_words * 4),
            Word.RECORDS: map_memory(MOST_RECORDS * RECORD_WORDS * 8),
        }

    @property
    def smem_end(self) -> int:
        """SMEM behind this word is zero."""
        return self._end.value

    @smem_end.setter
    def smem_end(self, word: int) -> None:
        self._end.value = word


class ExecutionContext:
    """One core's state. `words` is the array native code gets a pointer to (`address`)."""

    def __init__(self, chip: Chip, memories: MachineMemories, needs: ContextSizes) -> None:
        self.words: npt.NDArray[np.int64] = np.zeros(CONTEXT_WORDS, np.int64)
        self.address: int = self.words.ctypes.data
        self.scratch_step = _OWN_BYTES + -(-needs.scratch_bytes // VREG_BYTES) * VREG_BYTES
        carry_bytes = -(-needs.carry_bytes // VREG_BYTES) * VREG_BYTES
        unit_bytes = (1 + needs.transpose_blocks) * TRANSPOSE_BYTES
        transpose_bytes = chip.transpose_units * unit_bytes
        sizes = {
            Word.CARRY: needs.threads * carry_bytes,
            Word.SCRATCH: needs.threads * self.scratch_step,
            Word.RESULTS: chip.mxu_units * needs.ring_entries * VREG_BYTES,
            Word.WEIGHTS: chip.mxu_units * 2 * WEIGHT_BYTES,
            Word.TRANSPOSE: needs.threads * transpose_bytes,
            Word.TASKS: needs.task_bytes,
            Word.TOTALS: needs.calls * RECORD_WORDS * 8,
        }
        self._mappings = {word: map_memory(size_bytes) for word, size_bytes in sizes.items()}
        self._mappings.update(memories.mappings)
        self._memories = memories
        self.words[Word.SMEM_WORDS] = memories.smem_words
        for word, mapping in self._mappings.items():
            self.words[word] = mapping_address(mapping)
        self._calls = needs.calls
        self.transpose_blocks = needs.transpose_blocks
        self.words[Word.RESULT_READY : Word.RESULT_READY + 2] = result_ready_cycles(chip)
        self.words[Word.PASS_OCCUPANCY] = pass_occupancy(chip)
        self.words[Word.WAIT_CYCLES] = chip.dma_wait_cycles
        self.words[Word.CALL_CYCLES] = chip.call_overhead_cycles
        self.words[Word.JOIN_CYCLES] = chip.core_sync_cycles
        self.words[Word.MOST_RECORDS] = MOST_RECORDS
        self._repeats = _Repeats(needs.repeats)
        self.words[Word.REPEATS] = self._repeats.address
        self._first_scratch = int(self.words[Word.SCRATCH]) + _OWN_BYTES
        self.words[Word.SCRATCH] = self._first_scratch
        for thread in range(needs.threads):
            self._give_own_words(thread, carry_bytes, transpose_bytes)

    def _give_own_words(self, thread: int, carry_bytes: int, transpose_bytes: int) -> None:
        """Fill the words before a thread's scratch memory."""
        for offset, value in (
            (OWN_CARRY, int(self.words[Word.CARRY]) + thread * carry_bytes),
            (OWN_TRANSPOSE, int(self.words[Word.TRANSPOSE]) + thread * transpose_bytes),
            (OWN_TRANSPOSE_INDEX, 0),
        ):
            ctypes.c_int64.from_address(self.scratch_address(thread) + offset).value = value

    def scratch_address(self, thread: int) -> int:
        """Host address of a thread's own scratch memory."""
        return self._first_scratch + thread * self.scratch_step

    def attach_fabric(self, fabric: Fabric) -> None:
        """Ask what transfers cost from now on."""
        costs = [fabric.cost(*route) for route in ROUTES]
        numbers = [(cost.factor, cost.setup, cost.latency) for cost in costs]
        end = Word.DMA_COSTS + COST_WORDS * len(ROUTES)
        self.words[Word.DMA_COSTS : end] = np.array(numbers, np.int64).reshape(-1)

    def attach_routes(
        self, fabric: Fabric, routes: Sequence[Route], ends: Sequence[tuple[int, bool]]
    ) -> None:
        """Tell of each route where it leads (the address of a context, or 0), and whether transfers
        come by it."""
        rows = np.zeros((len(routes), ROUTE_WORDS), np.int64)
        for row, route, (peer, expects) in zip(rows, routes, ends, strict=True):
            cost = fabric.route_cost(route, is_flag=False)
            flag = fabric.route_cost(route, is_flag=True)
            row[: RouteWord.FLAG_LATENCY + 1] = (
                peer, expects, route.port, cost.factor, cost.setup, cost.latency, flag.latency
            )  # fmt: skip
        self._routes = rows  # native code has its address
        self.words[Word.LINKS] = rows.ctypes.data

    def route_bytes(self) -> list[int]:
        """Bytes sent over each route."""
        return [int(count) for count in self._routes[:, RouteWord.SENT]]

    def attach_hbm(self, address: int, size_bytes: int) -> None:
        """Let native code see an HBM of `size_bytes` at host `address`."""
        self.words[Word.HBM] = address
        self.words[Word.HBM_GRANULES] = size_bytes // ROW_BYTES

    def reset(self, smem_words: int) -> None:
        """The start of main, at cycle 0: no records, SMEM zero; VMEM stays as it is.

        The program owns the first `smem_words` of SMEM, and mostly leaves the rest alone.
        """
        memories = self._memories
        ctypes.memset(int(self.words[Word.SMEM]), 0, 4 * max(memories.smem_end, smem_words))
        memories.smem_end = smem_words
        self.words[Word.SMEM_END] = 0
        ctypes.memset(int(self.words[Word.TOTALS]), 0, self._calls * RECORD_WORDS * 8)
        self.words[: Word.READY] = 0
        self.words[Word.FLAG_CAUSE : Word.FLAG_PENDING] = int(LOWERED)
        self.words[Word.TRANSPOSE_INDEX] = 0
        self.words[Word.WINDOW_COUNT] = 0
        self._repeats.forget()

    def quick_words(self, smem_words: int) -> tuple[int, int, int]:
        """The program's words of SMEM, where to note what is written there, bytes of the totals."""
        return smem_words, self._memories.end_address, self._calls * RECORD_WORDS * 8

    def note_smem(self) -> None:
        """After a run: note how much of SMEM it may have written."""
        self._memories.smem_end = max(self._memories.smem_end, int(self.words[Word.SMEM_END]))

    def records(self) -> Words:
        """Rows (`tpu_sim.machine.result`) of the calls that have a record, in order."""
        count = min(int(self.words[Word.RECORD_COUNT]), MOST_RECORDS)
        return self._rows(Word.RECORDS, count)

    def totals(self) -> Words:
        """One row for each call of the program, of its runs that have no record; none if all have one."""
        return (
            self.all_totals()
            if self.words[Word.RECORD_COUNT] > MOST_RECORDS
            else self._rows(Word.TOTALS, 0)
        )

    def all_totals(self) -> Words:
        """Room for one row for each call of the program."""
        return self._rows(Word.TOTALS, self._calls)

    def _rows(self, table: Word, count: int) -> Words:
        return self.memory(table, np.int64)[: count * RECORD_WORDS].reshape(count, RECORD_WORDS)

    def memory(self, word: Word, dtype: type[np.generic]) -> npt.NDArray[Any]:
        """A memory as an array that is no copy."""
        return np.frombuffer(self._mappings[word], dtype)


class _Repeats:
    """The table at `Word.REPEATS` and its rows; `address` is 0 for a program without repeated calls."""

    def __init__(self, flags: Sequence[int]) -> None:
        """`flags` by call; a call with less than 0 has no row."""
        sizes = [REPEAT_FLAGS + REPEAT_FLAG_WORDS * count if count >= 0 else 0 for count in flags]
        self._words = np.zeros(len(flags) + sum(sizes), np.int64)
        self._rows: list[int] = []
        self.address = self._words.ctypes.data if sum(sizes) else 0
        at = len(flags)
        for call, (count, size) in enumerate(zip(flags, sizes, strict=True)):
            if size:
                self._rows.append(at)
                self._words[call] = self._words.ctypes.data + 8 * at
                self._words[at + RepeatWord.FLAGS] = count
            at += size

    def forget(self) -> None:
        """No call has been seen."""
        for row in self._rows:
            self._words[row + RepeatWord.START] = -1
            self._words[row + RepeatWord.IS_KNOWN] = 0
