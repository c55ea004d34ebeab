"""`sreg-allocation`: registers of a whole kernel's sregs, by linear scan on structured live ranges.

vregs and vmasks live in one block only and are assigned by the scheduler as it goes; sregs live
across blocks and get their numbers here, before scheduling, round robin, so that the scheduler
meets few false dependences. What does not fit is made again (constants, arguments) or kept in the
top of the kernel's SMEM argument area.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from compiler.diagnostics import CompileError, KernelLimitError
from compiler.llo.ir import LloBlock, LloKernel, LloNode
from compiler.llo.op_table import OpInfo, op_table
from compiler.llo.passes.sreg_spill import spill_sregs
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import If, Loop, While

_MAX_ROUNDS = 24
"""Of spilling and trying anew; a kernel that still needs more registers than there are is refused
(assumed)."""


@dataclass
class LiveRanges:
    """Live range of every sreg in linear source positions, both ends inclusive.

    `pinned` are sregs that control flow reads; they are never spilled.
    """

    first: dict[int, int] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)
    uses: dict[int, int] = field(default_factory=dict)
    pinned: set[int] = field(default_factory=set)


def allocate_sregs(kernel: LloKernel, chip: Chip) -> bool:
    """Set `kernel.registers`, spilling in place when there are too few; whether that changed it."""
    table = op_table(chip)
    before = kernel.registers
    spilled = 0
    for _ in range(_MAX_ROUNDS):
        ranges = live_ranges(kernel, table)
        mapping, victims = _linear_scan(ranges, chip.sregs)
        if not victims:
            kernel.registers = mapping
            return bool(spilled) or mapping != before
        spilled = spill_sregs(kernel, table, victims, spilled)
    raise KernelLimitError(
        f"kernel {kernel.name}: one place needs more than {chip.sregs - 1} scalar registers; "
        "split the kernel or hold fewer addresses at once"
    )


def clash(kernel: LloKernel, chip: Chip) -> str:
    """What is wrong with `kernel.registers`, in words: two values in one register, none, no such one."""
    ranges = live_ranges(kernel, op_table(chip))
    held: dict[int, int] = {}  # the latest value of each physical register, by first write
    for sreg in sorted(ranges.first, key=lambda sreg: ranges.first[sreg]):
        number = kernel.registers.get(sreg, 0)
        if not 0 < number < chip.sregs:
            return f"s{sreg} has no register" if not number else f"s{sreg} is in register {number}"
        other = held.get(number)
        if other is not None and ranges.last[other] > ranges.first[sreg]:
            return f"s{other} and s{sreg} are in register {number} at once"
        if other is None or ranges.last[sreg] >= ranges.last[other]:
            held[number] = sreg
    return ""


def live_ranges(kernel: LloKernel, table: dict[str, OpInfo]) -> LiveRanges:
    """Live ranges; a value from outside a loop that is used inside lives to the loop's end."""
    walk = _RangeWalk(table)
    walk.nodes(kernel.body)
    return walk.ranges


class _RangeWalk:
    def __init__(self, table: dict[str, OpInfo]) -> None:
        self.table = table
        self.position = 0
        self.ranges = LiveRanges()
        self.loops: list[set[int]] = []  # per open loop: outer values it uses
        self.depth: dict[int, int] = {}

    def nodes(self, body: list[LloNode]) -> None:
        for node in body:
            self.position += 1
            match node:
                case LloBlock():
                    self._block(node)
                case Loop():
                    if node.trip_sreg >= 0:
                        self._control(node.trip_sreg)
                    self.loops.append({node.trip_sreg} if node.trip_sreg > 0 else set())
                    self._define(node.index)
                    self.nodes(node.body)
                    self._control(node.index)
                    self._close_loop()
                case If():
                    self._control(node.condition)
                    self.nodes(node.then)
                    self.nodes(node.orelse)
                case While():
                    self.loops.append(set())
                    self.nodes(node.test)
                    self.position += 1
                    self._control(node.condition)
                    self.nodes(node.body)
                    self._close_loop()

    def _block(self, block: LloBlock) -> None:
        table = self.table
        for instr in block.ops:
            self.position += 1
            info = table[instr.row.name]
            for i in info.sregs:
                self._read(instr.operands[i])
            if info.defines == "s":
                self._define(instr.operands[0])

    def _control(self, sreg: int) -> None:
        self._read(sreg)
        self.ranges.pinned.add(sreg)

    def _define(self, sreg: int) -> None:
        if sreg in self.ranges.first:
            self._read(sreg)  # a variable written again
            return
        self.ranges.first[sreg] = self.ranges.last[sreg] = self.position
        self.ranges.uses[sreg] = 0
        self.depth[sreg] = len(self.loops)

    def _read(self, sreg: int) -> None:
        if sreg == 0:
            return
        ranges = self.ranges
        if sreg not in ranges.first:
            raise CompileError(f"s{sreg} is read before it is written")
        ranges.last[sreg] = self.position
        ranges.uses[sreg] += 1
        depth = self.depth[sreg]
        if depth < len(self.loops):
            self.loops[depth].add(sreg)

    def _close_loop(self) -> None:
        self.position += 1
        for sreg in self.loops.pop():
            self.ranges.last[sreg] = self.position


def _linear_scan(ranges: LiveRanges, sregs: int) -> tuple[dict[int, int], set[int]]:
    """Assign registers 1..sregs-1; when they run out, name victims instead."""
    free = deque(range(1, sregs))
    active: dict[int, int] = {}
    mapping = {0: 0}
    victims: set[int] = set()
    for sreg, start in sorted(ranges.first.items(), key=lambda item: item[1]):
        for other in [s for s in active if ranges.last[s] <= start]:
            free.append(active.pop(other))
        if not free:
            victim = _victim(ranges, [*active, sreg])
            victims.add(victim)
            if victim == sreg:
                continue
            free.append(active.pop(victim))
        mapping[sreg] = active[sreg] = free.popleft()
    return mapping, victims


def _victim(ranges: LiveRanges, candidates: list[int]) -> int:
    """The range that frees most positions for the fewest reloads."""

    def benefit(sreg: int) -> float:
        length = ranges.last[sreg] - ranges.first[sreg]
        return -1.0 if sreg in ranges.pinned else length / (1 + ranges.uses[sreg])

    return max(candidates, key=benefit)
