"""The dependence graph of one block: what must come before what, and by how many cycles.

Every edge goes forward in source order, so source order is always a valid issue order. An edge
``(j, d)`` of operation i says: j issues at least d cycles after i. Distance 0 means the same bundle
is allowed (a bundle reads before it writes).

Memory: windows are disjoint; within a window two accesses with the same base sreg and disjoint rows
are independent. DMA starts follow the accesses of their window, accesses follow the wait for it.
EUP and XLU queues have no edges but push -> pop: the scheduler keeps their order as it goes.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from compiler.llo.op_table import Code, OpInfo
from compiler.llo.schedule.memory_order import SMEM_WINDOW, MemoryOrder
from compiler.llo.schedule.mxu_order import MxuOrder, XposeOrder
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import SMEM, DmaDescriptor


@dataclass
class BlockGraph:
    """Successors with distances, predecessor counts, and the pop that each queue push feeds.

    `earliest`: cycles before which an operation would only stall, where not 0.
    """

    successors: list[list[tuple[int, int]]]
    predecessors: list[int]
    pop_of: dict[int, int] = field(default_factory=dict)
    earliest: dict[int, int] = field(default_factory=dict)

    def edge(self, before: int, after: int, distance: int) -> None:
        """`after` issues at least `distance` cycles after `before`."""
        self.successors[before].append((after, distance))
        self.predecessors[after] += 1


@dataclass(frozen=True)
class DmaFacts:
    """Which windows a descriptor touches, and a sync flag stands for."""

    windows_of_descriptor: list[frozenset[int]]
    windows_of_flag: dict[int, frozenset[int]]


def descriptor_windows(descriptor: DmaDescriptor) -> frozenset[int]:
    """The alias classes a transfer reads or writes."""
    touched = {descriptor.window} if descriptor.window >= 0 else set()
    if SMEM in (descriptor.src_space, descriptor.dst_space):
        touched.add(SMEM_WINDOW)
    return frozenset(touched)


def build_graph(
    ops: list[Instr],
    infos: list[OpInfo],
    sreg_of: dict[int, int],
    chip: Chip,
    dma: DmaFacts,
    occupancy: dict[int, int],
) -> BlockGraph:
    """The graph of a block. `occupancy` (results waiting per MXU) is updated to the block's end."""
    count = len(ops)
    graph = BlockGraph([[] for _ in range(count)], [0] * count)
    _vector_edges(ops, infos, graph)
    versions = _scalar_edges(ops, infos, graph, sreg_of)
    _memory_edges(ops, infos, graph, sreg_of, versions, dma)
    _unit_edges(ops, infos, graph, chip, occupancy)
    return graph


def _vector_edges(ops: list[Instr], infos: list[OpInfo], graph: BlockGraph) -> None:
    """vregs and vmasks are written once: only true dependences."""
    vreg: dict[int, int] = {}
    mask: dict[int, int] = {}
    successors, predecessors = graph.successors, graph.predecessors
    for index, info in enumerate(infos):
        operands = ops[index].operands
        for i in info.vregs:
            before = vreg[operands[i]]
            successors[before].append((index, infos[before].latency))
            predecessors[index] += 1
        for i in info.masks:
            graph.edge(mask[operands[i]], index, infos[mask[operands[i]]].latency)
        if info.defines == "v":
            vreg[operands[0]] = index
        elif info.defines == "m":
            mask[operands[0]] = index


def _scalar_edges(
    ops: list[Instr], infos: list[OpInfo], graph: BlockGraph, sreg_of: dict[int, int]
) -> list[int]:
    """True, anti and output dependences of physical sregs; returns per op its base's version."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    versions = [-1] * len(ops)
    for index, info in enumerate(infos):
        operands = ops[index].operands
        for i in info.sregs:
            register = sreg_of[operands[i]]
            if register == 0:
                continue
            before = writer.get(register)
            if before is not None:
                graph.edge(before, index, infos[before].latency)
                if i == info.sregs[0]:
                    versions[index] = before
            readers.setdefault(register, []).append(index)
        if info.defines == "s":
            register = sreg_of[operands[0]]
            for reader in readers.pop(register, ()):
                if reader != index:
                    graph.edge(reader, index, 0)
            before = writer.get(register)
            if before is not None:
                graph.edge(before, index, max(1, infos[before].latency - info.latency + 1))
            writer[register] = index
    return versions


def _memory_edges(
    ops: list[Instr],
    infos: list[OpInfo],
    graph: BlockGraph,
    sreg_of: dict[int, int],
    versions: list[int],
    dma: DmaFacts,
) -> None:
    order = MemoryOrder(graph, _tracked_windows(ops, infos, dma))
    fills: dict[int, int] = {}
    waited: dict[int, int] = {}
    last_misc = -1
    for index, info in enumerate(infos):
        code = info.code
        if code is Code.PLAIN:
            continue
        operands = ops[index].operands
        if code is Code.LOAD or code is Code.STORE:
            window = operands[info.window]
            if window in waited:
                graph.edge(waited[window], index, 1)
            if window in order.windows:
                base = (sreg_of[operands[info.window + 1]], versions[index])
                order.window_access(index, info, operands, window, base)
        elif code is Code.SMEM_LOAD or code is Code.SMEM_STORE:
            if SMEM_WINDOW in waited:
                graph.edge(waited[SMEM_WINDOW], index, 1)
            if SMEM_WINDOW in order.windows:
                base = (sreg_of[operands[info.sregs[0]]], versions[index])
                order.word_access(index, info, operands[info.offset], base)
        elif code is Code.DMA_START or code is Code.DMA_WAIT:
            if last_misc >= 0:
                graph.edge(last_misc, index, 1)
            last_misc = index
            if code is Code.DMA_START:
                descriptor = operands[info.row.descriptor_index]
                order.dma_start(index, dma.windows_of_descriptor[descriptor])
            else:
                for window in dma.windows_of_flag.get(operands[info.row.flag_index], ()):
                    waited[window] = index
        elif code is Code.SPILL:
            fills[operands[info.row.slot_index]] = index
        elif code is Code.FILL:
            spill = fills[operands[info.row.slot_index]]
            graph.edge(spill, index, infos[spill].latency)


def _tracked_windows(ops: list[Instr], infos: list[OpInfo], dma: DmaFacts) -> set[int]:
    """Windows that the block writes or transfers: accesses of the others are unordered."""
    tracked: set[int] = set()
    for index, info in enumerate(infos):
        if info.code is Code.STORE:
            tracked.add(ops[index].operands[info.window])
        elif info.code is Code.SMEM_STORE:
            tracked.add(SMEM_WINDOW)
        elif info.code is Code.DMA_START:
            descriptor = ops[index].operands[info.row.descriptor_index]
            tracked |= dma.windows_of_descriptor[descriptor]
    return tracked


def _unit_edges(
    ops: list[Instr],
    infos: list[OpInfo],
    graph: BlockGraph,
    chip: Chip,
    occupancy: dict[int, int],
) -> None:
    units: dict[int, MxuOrder] = {}
    xposes: dict[int, XposeOrder] = {}
    waiting: tuple[deque[int], deque[int]] = (deque(), deque())
    for index, info in enumerate(infos):
        code = info.code
        if code < Code.MATPUSH:
            continue
        if code is Code.PUSH:
            waiting[info.queue].append(index)
        elif code is Code.POP:
            push = waiting[info.queue].popleft()
            graph.pop_of[push] = index
            graph.edge(push, index, infos[push].latency)
        elif code <= Code.MRF_POP:
            unit = ops[index].operands[info.unit]
            if unit not in units:
                units[unit] = MxuOrder(graph, chip, occupancy.get(unit, 0))
            units[unit].add(index, code)
        elif code <= Code.XPOSE_READ:
            unit = ops[index].operands[info.unit]
            if unit not in xposes:
                xposes[unit] = XposeOrder(graph, chip)
            xposes[unit].add(index, code)
    for unit, order in units.items():
        occupancy[unit] = order.waiting
        graph.earliest.update(order.earliest)
