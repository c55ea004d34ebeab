"""The schedule's own verifier: does a scheduled block still mean what its LLO meant?

It replays the bundles on physical registers that hold the *names* of virtual values. Every read
must find the value that source order gives it, and find it complete; queue pops must fetch the
result of their own push; accesses that may touch the same rows must keep their order. The rules of
the machine (slots, unit spacing, latencies over block ends) are checked by `tpu_sim.isa.checker`.
"""

from __future__ import annotations

from collections import deque

from compiler.llo.op_table import Code, OpInfo, registers_read
from compiler.llo.schedule.scheduler import Schedule
from tpu_sim.isa.instruction import Instr


class ScheduleError(AssertionError):
    """The scheduler broke a block."""


def check_schedule(
    ops: list[Instr], infos: list[OpInfo], schedule: Schedule, sreg_of: dict[int, int]
) -> None:
    """Raise `ScheduleError` unless `schedule` computes what `ops` compute in source order."""
    issued = [index for bundle in schedule.bundles for index in bundle]
    if sorted(issued) != list(range(len(ops))):
        raise ScheduleError("the schedule is not a permutation of the block")
    _Replay(ops, infos, schedule, sreg_of).run()
    cycle_of = {i: cycle for cycle, bundle in enumerate(schedule.bundles) for i in bundle}
    _check_memory_order(ops, infos, cycle_of)
    _check_unit_order(ops, infos, issued)


def _source_writers(ops: list[Instr], infos: list[OpInfo]) -> list[list[int]]:
    """Per op, for each register it reads, the op that wrote it in source order (-1: none here)."""
    writer: dict[tuple[str, int], int] = {}
    wanted: list[list[int]] = []
    for index, info in enumerate(infos):
        operands = ops[index].operands
        reads = registers_read(info, operands)
        wanted.append([writer.get(read, -1) for read in reads])
        if info.defines:
            writer[info.defines, operands[0]] = index
    return wanted


class _Replay:
    """Runs the bundles; registers hold (writer op, cycle it is complete)."""

    def __init__(
        self,
        ops: list[Instr],
        infos: list[OpInfo],
        schedule: Schedule,
        sreg_of: dict[int, int],
    ) -> None:
        self.ops, self.infos, self.schedule = ops, infos, schedule
        self.files = {"v": schedule.vregs, "m": schedule.masks, "s": sreg_of}
        self.held: dict[tuple[str, int], tuple[int, int]] = {}
        self.queues: tuple[deque[int], deque[int]] = (deque(), deque())
        self.push_of = _push_of_pop(infos)

    def run(self) -> None:
        wanted = _source_writers(self.ops, self.infos)
        for cycle, bundle in enumerate(self.schedule.bundles):
            for index in bundle:
                self._check_reads(index, cycle, wanted[index])
            for index in bundle:
                self._issue(index, cycle)

    def _check_reads(self, index: int, cycle: int, wanted: list[int]) -> None:
        reads = registers_read(self.infos[index], self.ops[index].operands)
        for (letter, virtual), writer in zip(reads, wanted, strict=True):
            physical = self.files[letter][virtual]
            found, ready = self.held.get((letter, physical), (-1, 0))
            if found != writer and physical:
                raise ScheduleError(
                    f"op {index} wants {letter}{virtual} of op {writer} in {letter}{physical}, "
                    f"cycle {cycle} finds the result of op {found}"
                )
            if ready > cycle:
                raise ScheduleError(f"op {index} reads {letter}{physical} {ready - cycle} early")

    def _issue(self, index: int, cycle: int) -> None:
        info = self.infos[index]
        if info.code is Code.PUSH:
            self.queues[info.queue].append(index)
        elif info.code is Code.POP:
            push = self.queues[info.queue].popleft()
            if push != self.push_of[index]:
                raise ScheduleError(f"op {index} pops the result of op {push}")
        if info.defines:
            physical = self.files[info.defines][self.ops[index].operands[0]]
            self.held[info.defines, physical] = (index, cycle + info.latency)


def _push_of_pop(infos: list[OpInfo]) -> dict[int, int]:
    waiting: tuple[deque[int], deque[int]] = (deque(), deque())
    push_of: dict[int, int] = {}
    for index, info in enumerate(infos):
        if info.code is Code.PUSH:
            waiting[info.queue].append(index)
        elif info.code is Code.POP:
            push_of[index] = waiting[info.queue].popleft()
    return push_of


def _check_memory_order(ops: list[Instr], infos: list[OpInfo], cycle_of: dict[int, int]) -> None:
    """Every pair of accesses of a window, one a store, that may overlap is in source order."""
    accesses: dict[int, list[int]] = {}
    for index, info in enumerate(infos):
        if info.code in (Code.LOAD, Code.STORE):
            accesses.setdefault(ops[index].operands[info.window], []).append(index)
    for indices in accesses.values():
        stores = [i for i in indices if infos[i].code is Code.STORE]
        for store in stores:
            for other in indices:
                if other != store and _may_overlap(ops, infos, store, other):
                    _check_pair(infos, cycle_of, min(store, other), max(store, other))


def _check_pair(infos: list[OpInfo], cycle_of: dict[int, int], first: int, second: int) -> None:
    distance = infos[first].latency if infos[first].code is Code.STORE else 0
    if cycle_of[second] < cycle_of[first] + distance:
        raise ScheduleError(f"memory accesses {first} and {second} are out of order")


def _may_overlap(ops: list[Instr], infos: list[OpInfo], a: int, b: int) -> bool:
    rows_a, rows_b = _rows(ops[a], infos[a]), _rows(ops[b], infos[b])
    if rows_a is None or rows_b is None:
        return True
    same_base = ops[a].operands[infos[a].window + 1] == ops[b].operands[infos[b].window + 1]
    return not same_base or bool(rows_a & rows_b)


def _rows(instr: Instr, info: OpInfo) -> set[int] | None:
    """Rows an access touches, from its base; None when the address is in a vreg."""
    if info.offset < 0:
        return None
    start, stride = instr.operands[info.offset], instr.operands[info.stride]
    return {start + i * stride for i in range(8)}


_UNIT_GROUPS: tuple[tuple[frozenset[int], frozenset[int]], ...] = (
    (frozenset({Code.MATPUSH, Code.MATSWAP}), frozenset()),
    (frozenset({Code.MATSWAP, Code.MATMUL}), frozenset()),
    (frozenset({Code.MRF_POP}), frozenset()),
    (frozenset({Code.DMA_START, Code.DMA_WAIT}), frozenset()),
    (frozenset({Code.XPOSE_SWAP}), frozenset({Code.XPOSE_PUSH})),
    (frozenset({Code.XPOSE_SWAP}), frozenset({Code.XPOSE_READ})),
)
"""Codes that keep their order on each unit; those of the second set only against the first's."""


def _check_unit_order(ops: list[Instr], infos: list[OpInfo], issued: list[int]) -> None:
    """Pushes, swaps, matmuls, pops, transpositions and transfers keep their order on each unit."""
    for ordered, free in _UNIT_GROUPS:
        last: dict[int, int] = {}  # the latest in source order of all that were issued
        last_ordered: dict[int, int] = {}
        for index in issued:
            code = infos[index].code
            if code not in ordered and code not in free:
                continue
            unit = _unit(ops[index], infos[index])
            before = last if code in ordered else last_ordered
            if index < before.get(unit, -1):
                raise ScheduleError(f"op {index} of unit {unit} is out of order")
            last[unit] = max(index, last.get(unit, -1))
            if code in ordered:
                last_ordered[unit] = index


def _unit(instr: Instr, info: OpInfo) -> int:
    """The number of the MXU or transpose unit; -1 for what there is one of."""
    return instr.operands[info.unit] if info.unit >= 0 else -1
