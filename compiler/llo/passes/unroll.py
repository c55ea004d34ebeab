"""`unroll`: parallel loops get several iterations per body, so that latencies of one hide behind another.

An innermost loop whose iterations are independent, and whose longest chain of latencies is longer
than its instructions need slots, gets several iterations per body. Addresses that move by a
constant from iteration to iteration become immediates of one base; what does not depend on the
iteration is computed once. Memory accesses of different iterations are independent by the loop's
claim: copy c of window w is named ``w + ALIAS_STRIDE * c`` until bundles are made. A loop that is
unrolled whole disappears, and its outer loop is then an innermost one.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from compiler.llo.ir import ALIAS_STRIDE, LloBlock, LloKernel, LloNode
from compiler.llo.op_table import Code, OpInfo, class_capacities, op_table, registers_read
from compiler.llo.passes.register_names import RegisterNames
from compiler.llo.passes.spill import exceeds, max_live
from compiler.llo.walk import blocks, rewrite
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Loop
from tpu_sim.isa.instruction import ROWS, Instr
from tpu_sim.isa.program import NO_ROUTE
from tpu_sim.isa.resources import FLAG
from tpu_sim.isa.rows.misc import DMA_WAIT
from tpu_sim.isa.rows.scalar import SADDI

_MOST_OPS = 2048
"""Of a body with all its copies: eight of a chain of 250 operations."""
_MOST_JOINED = 768
"""Of what becomes straight-line code: a loop that goes away, neighbouring blocks."""
_MOST_COPIES = 8
_DENSE = 4
"""A body whose slots need so many times its longest chain gains nothing."""
_COPYABLE = frozenset({Code.PLAIN, Code.LOAD, Code.STORE, Code.SMEM_LOAD, Code.PUSH, Code.POP})

_Renaming = dict[tuple[str, int], int]


def unroll_parallel_loops(kernel: LloKernel, chip: Chip) -> bool:
    """Unroll, in place, the loops of a kernel where it helps; whether anything changed."""
    table = op_table(chip)
    names = RegisterNames(kernel, table)
    unroller = _Unroller(table, chip, kernel.variables, names, _may_wait_for_others(kernel))
    kernel.body = rewrite(kernel.body, unroller.node, unroller.merged)
    return unroller.is_changed


def _may_wait_for_others(kernel: LloKernel) -> bool:
    """Whether it sends by a route, or waits for a flag on which it starts nothing (`tpu_sim.isa.flag_waits`):
    the done of an exchange, which may have transfers of its own beside."""
    if any(d.route != NO_ROUTE for d in kernel.descriptors):
        return True
    started, awaited = set[int](), set[int]()
    for block in blocks(kernel.body):
        for instr in block.ops:
            row = instr.row
            if row.flag_index >= 0:
                (awaited if FLAG in row.uses else started).add(instr.operands[row.flag_index])
    return bool(awaited - started)


@dataclass
class _Unroller:
    """Inner loops come first, so that one unrolled whole lets its outer loop be unrolled."""

    table: dict[str, OpInfo]
    chip: Chip
    variables: set[int]
    names: RegisterNames
    is_exchange: bool
    """Whether a wait may be for another core: it then has to be the first thing in its block."""
    is_changed: bool = False

    def node(self, node: LloNode) -> list[LloNode]:
        """What a node becomes."""
        return self._loop(node) if isinstance(node, Loop) else [node]

    def merged(self, body: list[LloNode]) -> list[LloNode]:
        """Neighbouring blocks as one, where both only compute and the sum is not too long."""
        out: list[LloNode] = []
        for node in body:
            last = out[-1] if out else None
            if isinstance(node, LloBlock) and isinstance(last, LloBlock):
                if self.is_exchange and node.ops and node.ops[0].row is DMA_WAIT:
                    out.append(node)
                    continue
                if self._is_scalar(node) or self._is_scalar(last):
                    out[-1] = LloBlock(last.ops + node.ops, last.name or node.name)
                    continue
                is_short = len(last.ops) + len(node.ops) <= _MOST_JOINED
                if is_short and self._only_computes(last) and self._only_computes(node):
                    out[-1] = LloBlock(self._joined(last.ops, node.ops), last.name or node.name)
                    continue
            out.append(node)
        self.is_changed |= len(out) < len(body)
        return out

    def _is_scalar(self, block: LloBlock) -> bool:
        infos = (self.table[instr.row.name] for instr in block.ops)
        return all(info.code is Code.PLAIN and info.defines == "s" for info in infos)

    def _only_computes(self, block: LloBlock) -> bool:
        return all(self.table[instr.row.name].code in _COPYABLE for instr in block.ops)

    def _joined(self, first: list[Instr], second: list[Instr]) -> list[Instr]:
        """Two blocks' operations; iterations of one are no longer independent of the other."""
        shared = self._windows(first) & self._windows(second)
        out: list[Instr] = []
        for instr in first + second:
            position = self.table[instr.row.name].window
            if position >= 0 and instr.operands[position] >= ALIAS_STRIDE:
                window = instr.operands[position] % ALIAS_STRIDE
                if window in shared:
                    operands = list(instr.operands)
                    operands[position] = window
                    instr = Instr(instr.row, tuple(operands), instr.source)
            out.append(instr)
        return out

    def _windows(self, ops: list[Instr]) -> set[int]:
        infos = [self.table[instr.row.name] for instr in ops]
        return {
            instr.operands[info.window] % ALIAS_STRIDE
            for instr, info in zip(ops, infos, strict=True)
            if info.window >= 0
        }

    def _loop(self, loop: Loop[LloBlock]) -> list[LloNode]:
        block = loop.body[0] if len(loop.body) == 1 else None
        if not loop.parallel or loop.trip < 2 or not isinstance(block, LloBlock):
            return [loop]
        infos = [self.table[instr.row.name] for instr in block.ops]
        if not self._is_copyable(block.ops, infos):
            return [loop]
        copies = _copies(loop.trip, block.ops, infos, self.table, self.chip)
        copier = _Copier(block.ops, infos, loop.index, self.names)
        while copies > 1 and copies * len(block.ops) > _MOST_JOINED:
            if self._fits(copier.run(self._constant(0), copies)):
                break
            copies //= 2
        if copies == 1:
            return [loop]
        self.is_changed = True
        trips, rest = divmod(loop.trip, copies)
        out: list[LloNode] = []
        if trips > 1:
            loop.body = [LloBlock(copier.run(self._scaled(loop.index, copies), copies), block.name)]
            loop.trip = trips
            out.append(loop)
        elif trips:
            out.append(LloBlock(copier.run(self._constant(0), copies), block.name))
        if rest:
            first = self._constant(trips * copies)
            out.append(LloBlock(copier.run(first, rest), block.name))
        return out

    def _is_copyable(self, ops: list[Instr], infos: list[OpInfo]) -> bool:
        return all(
            info.code in _COPYABLE
            and not (info.defines == "s" and instr.operands[0] in self.variables)
            for instr, info in zip(ops, infos, strict=True)
        )

    def _fits(self, ops: list[Instr]) -> bool:
        """Whether nothing is spilled: what all copies share is held from the first to the last."""
        chip = self.chip
        files = (("v", chip.vregs), ("m", chip.vmasks))
        return not any(exceeds(ops, self.table, letter, limit) for letter, limit in files)

    def _scaled(self, index: int, copies: int) -> Instr:
        """The iteration number of the first copy."""
        name = self.names.fresh("s")
        if copies & (copies - 1) == 0:
            return Instr(ROWS["sshli"], (name, index, copies.bit_length() - 1))
        return Instr(ROWS["smuli.s32"], (name, index, copies))

    def _constant(self, value: int) -> Instr:
        return Instr(ROWS["smovi"], (self.names.fresh("s"), value))


def _copies(
    trip: int, ops: list[Instr], infos: list[OpInfo], table: dict[str, OpInfo], chip: Chip
) -> int:
    """How many iterations to put into a body: enough work for the longest chain, if they fit."""
    slots, chain = max(1, _slot_cycles(infos, chip)), _chain_cycles(ops, infos)
    if chain * _DENSE <= slots:
        return 1
    wanted = 2 + -(-chain // slots)
    most = min(
        wanted,
        _MOST_COPIES,
        _MOST_OPS // max(1, len(ops)),
        (chip.vregs - 4) // max(1, max_live(ops, table, "v")),
        chip.vmasks // max(1, max_live(ops, table, "m")),
    )
    if most < 2:
        return 1
    if trip <= min(_MOST_COPIES, 3 * most) and trip * len(ops) <= _MOST_JOINED:
        return trip
    divisors = [count for count in range(most, most // 2, -1) if trip % count == 0]
    return divisors[0] if divisors else most


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
        for read in registers_read(info, operands):
            start = max(start, ready.get(read, 0))
        if info.code is Code.POP:
            start = max(start, queued[info.queue].popleft())
        end = start + info.latency
        if info.code is Code.PUSH:
            queued[info.queue].append(end)
        if info.defines:
            ready[info.defines, operands[0]] = end
        longest = max(longest, end)
    return longest


class _Copier:
    """Copies a body, any number of times in a row, at iteration numbers from a given one on."""

    def __init__(
        self, ops: list[Instr], infos: list[OpInfo], index: int, names: RegisterNames
    ) -> None:
        self.ops = ops
        self.infos = infos
        self.index = index
        self.names = names
        self.base: _Renaming = {}  # names in the first copy
        self.step_of: dict[int, int | None] = {index: 1}
        self.varies: set[tuple[str, int]] = {("s", index)}
        accesses = [(o, i) for o, i in zip(ops, infos, strict=True) if i.window >= 0]
        aliases = [o.operands[i.window] // ALIAS_STRIDE for o, i in accesses]
        self.aliases = max(aliases, default=0) + 1
        stored = {o.operands[i.window] for o, i in accesses if i.code is Code.STORE}
        self.shared = [self._analyse(o, i, stored) for o, i in zip(ops, infos, strict=True)]

    def run(self, first: Instr, copies: int) -> list[Instr]:
        """`copies` iterations; `first` puts the number of the first into an sreg."""
        self.base = {("s", self.index): first.operands[0]}
        out = [first]
        for copy in range(copies):
            out += self._copy(copy)
        return out

    def _analyse(self, instr: Instr, info: OpInfo, stored: set[int]) -> bool:
        """Note what an op's result varies with; True if it is the same in every iteration."""
        operands = instr.operands
        is_varying = any(read in self.varies for read in registers_read(info, operands))
        if info.defines == "s":
            self.step_of[operands[0]] = self._step(instr, info)
        if info.code in (Code.STORE, Code.PUSH, Code.POP):
            is_varying = True  # what a queue holds is copied whole
        if info.code is Code.LOAD and operands[info.window] in stored:
            is_varying = True
        if is_varying and info.defines:
            self.varies.add((info.defines, operands[0]))
        return not is_varying

    def _step(self, instr: Instr, info: OpInfo) -> int | None:
        """By how much an sreg grows per iteration; None if that is not a constant."""
        operands = instr.operands
        if any((letter, operands[i]) in self.varies for letter, read in info.reads for i in read):
            return None
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

    def _copy(self, copy: int) -> list[Instr]:
        """One copy of the body; the later ones leave out what they take from the first."""
        out: list[Instr] = []
        own: _Renaming = {} if copy else self.base
        for instr, info, is_shared in zip(self.ops, self.infos, self.shared, strict=True):
            is_moved = info.defines == "s" and self.step_of[instr.operands[0]] is not None
            if not copy or not (is_shared or is_moved):
                self._copy_op(instr, info, copy, own, out)
        return out

    def _copy_op(
        self, instr: Instr, info: OpInfo, copy: int, own: _Renaming, out: list[Instr]
    ) -> None:
        operands = list(instr.operands)
        for letter, positions in (("v", info.vregs), ("m", info.masks)):
            for i in positions:
                key = (letter, operands[i])
                operands[i] = own[key] if key in own else self.base[key]
        for i in info.sregs:
            is_base = info.offset >= 0 and i == info.window + 1
            operands[i], moved = self._sreg(operands[i], copy, is_base, own, out)
            if is_base:
                operands[info.offset] += moved
        if info.window >= 0:
            operands[info.window] += ALIAS_STRIDE * self.aliases * copy
        if info.defines:
            name = own[info.defines, operands[0]] = self.names.fresh(info.defines)
            operands[0] = name
        out.append(Instr(instr.row, tuple(operands), instr.source))

    def _sreg(
        self, sreg: int, copy: int, is_base: bool, own: _Renaming, out: list[Instr]
    ) -> tuple[int, int]:
        """The sreg that a copy reads instead, and a constant to add to it."""
        key = ("s", sreg)
        if key in own:
            return own[key], 0
        first = self.base.get(key)
        if first is None:  # from outside the loop
            return sreg, 0
        moved = (self.step_of[sreg] or 0) * copy
        if is_base or not moved:
            return first, moved
        name = own[key] = self.names.fresh("s")
        out.append(Instr(SADDI, (name, first, moved)))
        return name, 0
