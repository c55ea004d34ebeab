"""Unrolling of short parallel loops, so that latencies of one iteration hide behind another.

An innermost loop whose iterations are independent, and whose longest chain of latencies is longer
than its instructions need slots, gets several iterations per body. Addresses that move by a
constant from iteration to iteration become immediates of one base; what does not depend on the
iteration is computed once. Memory accesses of different iterations are independent by the loop's
claim: copy c of window w is named ``w + ALIAS_STRIDE * c`` until bundles are made.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from compiler.backend.op_table import Code, OpInfo, class_capacities
from compiler.backend.spill import max_live
from compiler.llo.ir import LloBlock, LloIf, LloKernel, LloLoop, LloNode, LloWhile
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import ROWS, Instr
from tpu_sim.isa.rows.scalar import SADDI

ALIAS_STRIDE = 1 << 16
"""Distance of the window numbers that copies of an iteration go by."""

_MOST_OPS = 640
_MOST_COPIES = 8
_COPYABLE = frozenset({Code.PLAIN, Code.LOAD, Code.STORE, Code.SMEM_LOAD, Code.PUSH, Code.POP})

assert ROWS


def unroll_parallel_loops(kernel: LloKernel, table: dict[str, OpInfo], chip: Chip) -> None:
    """Unroll, in place, the loops of a kernel where it helps."""
    names = _Names()
    names.skip(kernel.body, table)
    _visit(kernel.body, table, chip, kernel.variables, names)


class _Names:
    """Fresh virtual registers of each file."""

    def __init__(self) -> None:
        self.highest = {"v": -1, "m": -1, "s": 0}

    def skip(self, body: list[LloNode], table: dict[str, OpInfo]) -> None:
        """Leave out all names of a kernel."""
        for node in body:
            match node:
                case LloBlock():
                    for instr in node.ops:
                        letter = table[instr.row.name].defines
                        if letter and instr.operands[0] > self.highest[letter]:
                            self.highest[letter] = instr.operands[0]
                case LloLoop():
                    self.highest["s"] = max(self.highest["s"], node.index)
                    self.skip(node.body, table)
                case LloIf():
                    self.skip(node.then, table)
                    self.skip(node.orelse, table)
                case LloWhile():
                    self.skip(node.test, table)
                    self.skip(node.body, table)

    def fresh(self, letter: str) -> int:
        """A name not in use."""
        self.highest[letter] += 1
        return self.highest[letter]


def _visit(
    body: list[LloNode], table: dict[str, OpInfo], chip: Chip, variables: set[int], names: _Names
) -> None:
    for node in body:
        match node:
            case LloLoop():
                block = node.body[0] if len(node.body) == 1 else None
                if not isinstance(block, LloBlock):
                    _visit(node.body, table, chip, variables, names)
                elif node.parallel and node.trip > 1:
                    _unroll(node, block, table, chip, variables, names)
            case LloIf():
                _visit(node.then, table, chip, variables, names)
                _visit(node.orelse, table, chip, variables, names)
            case LloWhile():
                _visit(node.test, table, chip, variables, names)
                _visit(node.body, table, chip, variables, names)


def _unroll(
    loop: LloLoop,
    block: LloBlock,
    table: dict[str, OpInfo],
    chip: Chip,
    variables: set[int],
    names: _Names,
) -> None:
    infos = [table[instr.row.name] for instr in block.ops]
    if any(info.code not in _COPYABLE for info in infos):
        return
    if any(
        i.operands[0] in variables
        for i, o in zip(block.ops, infos, strict=True)
        if o.defines == "s"
    ):
        return
    copies = _copies(loop.trip, block.ops, infos, table, chip)
    if copies > 1:
        scaled = names.fresh("s")
        scale = Instr(ROWS["smuli.s32"], (scaled, loop.index, copies))
        if copies & (copies - 1) == 0:
            scale = Instr(ROWS["sshli"], (scaled, loop.index, copies.bit_length() - 1))
        copier = _Copier(block.ops, infos, loop.index, scaled, names)
        block.ops = [scale, *copier.run(copies)]
        loop.trip //= copies


def _copies(
    trip: int, ops: list[Instr], infos: list[OpInfo], table: dict[str, OpInfo], chip: Chip
) -> int:
    """How many iterations to put into a body: enough work for the longest chain, if they fit."""
    slots = _slot_cycles(infos, chip)
    wanted = -(-_chain_cycles(ops, infos) // max(1, slots))
    most = min(
        wanted,
        _MOST_COPIES,
        _MOST_OPS // max(1, len(ops)),
        (chip.vregs - 4) // max(1, max_live(ops, table, "v")),
        chip.vmasks // max(1, max_live(ops, table, "m")),
    )
    return next((count for count in range(most, 1, -1) if trip % count == 0), 1)


def _slot_cycles(infos: list[OpInfo], chip: Chip) -> int:
    """Cycles that the busiest slot class needs."""
    capacities = class_capacities(chip)
    work = [0] * len(capacities)
    for info in infos:
        work[info.resource] += info.occupies
    return max(-(-cycles // max(1, slots)) for cycles, slots in zip(work, capacities, strict=True))


def _chain_cycles(ops: list[Instr], infos: list[OpInfo]) -> int:
    """Length of the longest chain of latencies, memory not considered."""
    ready: dict[tuple[str, int], int] = {}
    queued: tuple[deque[int], deque[int]] = (deque(), deque())
    longest = 0
    for instr, info in zip(ops, infos, strict=True):
        operands = instr.operands
        start = 0
        for letter, positions in (("v", info.vregs), ("m", info.masks), ("s", info.sregs)):
            for i in positions:
                start = max(start, ready.get((letter, operands[i]), 0))
        if info.code is Code.POP:
            start = max(start, queued[info.queue].popleft())
        end = start + info.latency
        if info.code is Code.PUSH:
            queued[info.queue].append(end)
        if info.defines:
            ready[info.defines, operands[0]] = end
        longest = max(longest, end)
    return longest


@dataclass
class _Copier:
    """Copies a body. The first copy has the body's own names, at `scaled` instead of the index."""

    ops: list[Instr]
    infos: list[OpInfo]
    index: int
    scaled: int
    names: _Names
    step_of: dict[int, int | None] = field(default_factory=dict)
    varies: set[tuple[str, int]] = field(default_factory=set)

    def run(self, copies: int) -> list[Instr]:
        """The new body."""
        stored = {
            instr.operands[info.window]
            for instr, info in zip(self.ops, self.infos, strict=True)
            if info.code is Code.STORE
        }
        self.step_of = {self.index: 1}
        self.varies = {("s", self.index)}
        shared = [self._analyse(o, i, stored) for o, i in zip(self.ops, self.infos, strict=True)]
        self._share_queues(shared)
        out: list[Instr] = []
        for copy in range(copies):
            out += self._copy(copy, shared)
        return out

    def _analyse(self, instr: Instr, info: OpInfo, stored: set[int]) -> bool:
        """Note what an op's result varies with; True if it is the same in every iteration."""
        operands = instr.operands
        reads = [("v", operands[i]) for i in info.vregs]
        reads += [("m", operands[i]) for i in info.masks]
        reads += [("s", operands[i]) for i in info.sregs]
        is_varying = any(read in self.varies for read in reads)
        if info.defines == "s":
            self.step_of[operands[0]] = self._step(instr, info)
        if info.code is Code.STORE or info.code is Code.POP:
            is_varying = True
        if info.code is Code.LOAD and operands[info.window] in stored:
            is_varying = True
        if is_varying and info.defines:
            self.varies.add((info.defines, operands[0]))
        return not is_varying

    def _share_queues(self, shared: list[bool]) -> None:
        """Queue traffic is copied whole: a push is not shared, as its pop is not."""
        for index, info in enumerate(self.infos):
            if info.code is Code.PUSH:
                shared[index] = False

    def _step(self, instr: Instr, info: OpInfo) -> int | None:
        """By how much an sreg grows per iteration; None if that is not a constant."""
        operands = instr.operands
        steps = [self.step_of.get(operands[i], 0) for i in info.sregs]
        if all(step == 0 for step in steps):
            return 0
        if any(step is None for step in steps):
            return None
        known = [step or 0 for step in steps]
        match instr.row.name:
            case "saddi.s32" | "smov":
                return known[0]
            case "sadd.s32":
                return known[0] + known[1]
            case "ssub.s32":
                return known[0] - known[1]
            case "smuli.s32":
                return known[0] * operands[2]
            case "sshli":
                return known[0] << operands[2] if 0 <= operands[2] < 31 else None
        return None

    def _copy(self, copy: int, shared: list[bool]) -> list[Instr]:
        """One copy of the body."""
        out: list[Instr] = []
        renamed: dict[tuple[str, int], int] = {("s", self.index): self.scaled} if not copy else {}
        for instr, info, is_shared in zip(self.ops, self.infos, shared, strict=True):
            if copy and (is_shared or (info.defines == "s" and self._moves(instr.operands[0]))):
                continue
            out += self._copied(instr, info, copy, renamed)
        return out

    def _moves(self, sreg: int) -> bool:
        """Whether an sreg grows by a constant: later copies take it from the first."""
        return self.step_of.get(sreg) is not None

    def _copied(
        self, instr: Instr, info: OpInfo, copy: int, renamed: dict[tuple[str, int], int]
    ) -> list[Instr]:
        out: list[Instr] = []
        operands = list(instr.operands)
        for i in info.vregs:
            operands[i] = renamed.get(("v", operands[i]), operands[i])
        for i in info.masks:
            operands[i] = renamed.get(("m", operands[i]), operands[i])
        for i in info.sregs:
            is_base = info.offset >= 0 and i == info.window + 1
            operands[i], moved = self._sreg(operands[i], copy, is_base, renamed, out)
            if is_base:
                operands[info.offset] += moved
        if info.window >= 0:
            operands[info.window] += ALIAS_STRIDE * copy
        if copy and info.defines:
            name = renamed[info.defines, operands[0]] = self.names.fresh(info.defines)
            operands[0] = name
        out.append(Instr(instr.row, tuple(operands), instr.source))
        return out

    def _sreg(
        self,
        sreg: int,
        copy: int,
        is_base: bool,
        renamed: dict[tuple[str, int], int],
        out: list[Instr],
    ) -> tuple[int, int]:
        """The sreg that a copy reads instead, and a constant to add to it."""
        found = renamed.get(("s", sreg))
        step = self.step_of.get(sreg, 0)
        if found is not None or step is None or not copy or step == 0:
            return (sreg if found is None else found), 0
        first = self.scaled if sreg == self.index else sreg
        if is_base:
            return first, step * copy
        name = renamed["s", sreg] = self.names.fresh("s")
        out.append(Instr(SADDI, (name, first, step * copy)))
        return name, 0
