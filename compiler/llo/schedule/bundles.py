"""From LLO with assigned sregs to bundles: every block scheduled, vregs and vmasks assigned on the way.

schedule_nodes(llo, chip, check) -> list[Node]

What is in the MXU result queues is followed from block to block: a loop must leave what it found.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.diagnostics import CompileError
from compiler.llo.ir import ALIAS_STRIDE, LloBlock, LloKernel, LloNode
from compiler.llo.op_table import OpInfo, op_table
from compiler.llo.schedule.dependences import DmaFacts, build_graph, descriptor_windows
from compiler.llo.schedule.known_schedules import known_schedule
from compiler.llo.schedule.schedule_check import check_schedule
from compiler.llo.schedule.scheduler import Schedule
from compiler.llo.walk import blocks
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.instruction import Instr
from tpu_sim.isa.program import Block, Bundle, Node


def schedule_nodes(llo: LloKernel, chip: Chip, *, check: bool) -> list[Node]:
    """The kernel's body as bundles; `check` holds every schedule against its block.

    Raises CompileError where MXU results are left over or read too early.
    """
    return _Scheduling(llo, chip, check).run()


@dataclass
class _Scheduling:
    llo: LloKernel
    chip: Chip
    check: bool
    occupancy: dict[int, int] = field(default_factory=dict)

    def run(self) -> list[Node]:
        self.table = op_table(self.chip)
        self.sreg_of = self.llo.registers
        self.dma = _dma_facts(self.llo)
        body = self._nodes(self.llo.body)
        self._expect_empty("at the end of the kernel")
        return body

    def _nodes(self, body: list[LloNode]) -> list[Node]:
        out: list[Node] = []
        for node in body:
            match node:
                case LloBlock():
                    if node.ops:
                        out.append(self._block(node))
                case Loop():
                    out.append(self._loop(node))
                case If():
                    out.append(self._if(node))
                case While():
                    test = self._same_occupancy(node.test, "a while loop's test")
                    loop = self._same_occupancy(node.body, "a while loop")
                    condition = self.sreg_of[node.condition]
                    out.append(While(test, condition, loop, node.name, node.expected_trips))
                case Call():
                    self._expect_empty(f"at the call of {node.kernel}")
                    out.append(node)
        return out

    def _loop(self, node: Loop[LloBlock]) -> Loop[Block]:
        body = self._same_occupancy(node.body, f"loop {node.name}")
        trip_sreg = self.sreg_of[node.trip_sreg] if node.trip < 0 else -1
        index = self.sreg_of[node.index]
        return Loop(node.trip, index, body, trip_sreg, node.parallel, node.name)

    def _if(self, node: If[LloBlock]) -> If[Block]:
        before = dict(self.occupancy)
        then = self._nodes(node.then)
        after = self.occupancy
        self.occupancy = before
        orelse = self._nodes(node.orelse)
        if _waiting(after) != _waiting(self.occupancy):
            raise CompileError(f"kernel {self.llo.name}: MXU queues differ between branches")
        return If(self.sreg_of[node.condition], then, orelse)

    def _same_occupancy(self, body: list[LloNode], what: str) -> list[Node]:
        before = _waiting(self.occupancy)
        nodes = self._nodes(body)
        if _waiting(self.occupancy) != before:
            raise CompileError(
                f"kernel {self.llo.name}: {what} leaves MXU results {_waiting(self.occupancy)}, "
                f"it found {before}"
            )
        return nodes

    def _expect_empty(self, where: str) -> None:
        waiting = _waiting(self.occupancy)
        if waiting:
            raise CompileError(f"kernel {self.llo.name}: MXU results {waiting} unread {where}")

    def _block(self, block: LloBlock) -> Block:
        ops = block.ops
        infos = [self.table[instr.row.name] for instr in ops]
        graph = build_graph(ops, infos, self.sreg_of, self.chip, self.dma, self.occupancy)
        schedule = known_schedule(ops, infos, graph, self.chip)
        if self.check:
            check_schedule(ops, infos, schedule, self.sreg_of)
        return Block(_bundles(ops, infos, schedule, self.sreg_of), block.name)


def _waiting(occupancy: dict[int, int]) -> dict[int, int]:
    return {unit: results for unit, results in occupancy.items() if results}


def _dma_facts(llo: LloKernel) -> DmaFacts:
    windows = [descriptor_windows(descriptor) for descriptor in llo.descriptors]
    of_flag: dict[int, frozenset[int]] = {}
    for block in blocks(llo.body):
        for instr in block.ops:
            row = instr.row
            if row.is_transfer:
                descriptor = instr.operands[row.descriptor_index]
                flag = instr.operands[row.flag_index]
                of_flag[flag] = of_flag.get(flag, frozenset()) | windows[descriptor]
    return DmaFacts(windows, of_flag)


def _bundles(
    ops: list[Instr], infos: list[OpInfo], schedule: Schedule, sreg_of: dict[int, int]
) -> list[Bundle]:
    """The scheduled operations with physical registers."""
    vregs, masks = schedule.vregs, schedule.masks
    files = {"v": vregs, "m": masks, "s": sreg_of}
    physical: list[Instr] = []
    for instr, info in zip(ops, infos, strict=True):
        operands = list(instr.operands)
        for i in info.vregs:
            operands[i] = vregs[operands[i]]
        for i in info.sregs:
            operands[i] = sreg_of[operands[i]]
        for i in info.masks:
            operands[i] = masks[operands[i]]
        if info.defines:
            operands[0] = files[info.defines][operands[0]]
        if info.window >= 0:
            operands[info.window] %= ALIAS_STRIDE
        physical.append(Instr(instr.row, tuple(operands), instr.source))
    return [tuple([physical[index] for index in bundle]) for bundle in schedule.bundles]
