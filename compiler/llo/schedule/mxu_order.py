"""Order within an MXU and within a transpose unit."""

from __future__ import annotations

from compiler.diagnostics import CompileError
from compiler.llo.op_table import Code
from compiler.llo.schedule.memory_order import EdgeSink
from tpu_sim.isa.chips import Chip

RESULTS_PER_MATMUL = 2


class MxuOrder:
    """One MXU in one block: pushes, swaps and matmuls in source order, pops in result order.

    `waiting` results were pushed by earlier blocks; `earliest` says when popping them does not
    stall, if their matmuls came one every `Chip.matmul_cycles`. A matmul that would overflow the
    result queue waits for pops.
    """

    def __init__(self, graph: EdgeSink, chip: Chip, waiting: int) -> None:
        self._graph = graph
        self._chip = chip
        self._entered = waiting
        self._push = self._swap = self._matmul = -1
        self._matmuls: list[int] = []
        self._pops: list[int] = []
        self.earliest: dict[int, int] = {}

    @property
    def waiting(self) -> int:
        """Results in the queue at this point."""
        return self._entered + RESULTS_PER_MATMUL * len(self._matmuls) - len(self._pops)

    def add(self, index: int, code: Code) -> None:
        """The next operation of this unit in source order."""
        chip = self._chip
        if code is Code.MATPUSH:
            self._after(self._push, index, chip.latency("matpush"))
            self._after(self._swap, index, chip.latency("matswap"))
            self._push = index
        elif code is Code.MATSWAP:
            self._after(self._push, index, chip.latency("matpush"))
            self._after(self._swap, index, chip.latency("matswap"))
            self._after(self._matmul, index, chip.latency("matmul"))
            self._swap = index
        elif code is Code.MATMUL:
            self._after(self._matmul, index, chip.matmul_cycles)
            self._after(self._swap, index, chip.latency("matswap"))
            self._make_room(index)
            self._matmul = index
            self._matmuls.append(index)
        else:
            self._pop(index)

    def _after(self, before: int, index: int, distance: int) -> None:
        if before >= 0:
            self._graph.edge(before, index, distance)

    def _make_room(self, index: int) -> None:
        excess = self.waiting + RESULTS_PER_MATMUL - self._chip.mrf_entries
        if excess > 0:
            raise CompileError(
                f"an MXU result queue would hold {self.waiting + RESULTS_PER_MATMUL} results, "
                f"it has {self._chip.mrf_entries} entries; pop earlier"
            )
        pushed = self._entered + RESULTS_PER_MATMUL * (len(self._matmuls) + 1)
        needed = pushed - self._chip.mrf_entries  # pops that must have come before
        if needed > 0:
            self._graph.edge(self._pops[needed - 1], index, 1)

    def _pop(self, index: int) -> None:
        if self.waiting <= 0:
            raise CompileError("vpop.mrf of an empty MXU result queue")
        if self._pops:
            self._graph.edge(self._pops[-1], index, 1)
        chip = self._chip
        result = len(self._pops) - self._entered
        half = result % RESULTS_PER_MATMUL * (chip.matmul_cycles // RESULTS_PER_MATMUL)
        latency = chip.latency("mxu_result") + half
        matmul = result // RESULTS_PER_MATMUL
        if matmul >= 0:
            self._graph.edge(self._matmuls[matmul], index, latency)
        elif matmul * chip.matmul_cycles + latency > 0:
            self.earliest[index] = matmul * chip.matmul_cycles + latency
        self._pops.append(index)


class XposeOrder:
    """One transpose unit: pushes fill the shadow block, a swap makes it readable."""

    def __init__(self, graph: EdgeSink, chip: Chip) -> None:
        self._graph = graph
        self._chip = chip
        self._swap = -1
        self._pushes: list[int] = []
        self._reads: list[int] = []

    def add(self, index: int, code: Code) -> None:
        """The next operation of the unit in source order."""
        chip = self._chip
        if code is Code.XPOSE_PUSH:
            if self._swap >= 0:
                self._graph.edge(self._swap, index, 1)
            self._pushes.append(index)
        elif code is Code.XPOSE_SWAP:
            for push in self._pushes:
                self._graph.edge(push, index, chip.latency("xpose_push"))
            for read in self._reads:
                self._graph.edge(read, index, 0)
            if self._swap >= 0:
                self._graph.edge(self._swap, index, chip.latency("xpose_swap"))
            self._swap = index
            self._pushes, self._reads = [], []
        else:
            if self._swap >= 0:
                self._graph.edge(self._swap, index, chip.latency("xpose_swap"))
            self._reads.append(index)
