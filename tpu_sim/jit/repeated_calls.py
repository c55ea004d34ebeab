"""Which kernel calls of an estimate may go as they went before, so that they need not be counted anew.

A loop of main calls the same kernels trip after trip. Without values, a kernel's clock depends on its
code, on what it reads in SMEM, and on when transfers that are under way will be through. Where control flow
and transfers, but for their addresses, ask for nothing in SMEM, and the times are the same as seen
from the begin of the call, a call takes the same cycles for the same causes and leaves the same times
behind: `tpu_sim.jit.repeat_kernels` remembers them.
"""

from __future__ import annotations

from functools import cache

from tpu_sim.isa.control_flow import If, Loop, While
from tpu_sim.isa.instruction import SREG, Instr, Kind, Row
from tpu_sim.isa.program import NO_ROUTE, SMEM, Block, Kernel, Node
from tpu_sim.isa.resources import FLAG
from tpu_sim.isa.resources import SMEM as SMEM_WORDS
from tpu_sim.machine.node_table import MAIN, NodeStep, NodeTable

NOT_REMEMBERED = -1
_ADDRESSES = ("src", "dst")
"""Operands of a transfer that do not tell when it is through."""


def flags_of_calls(table: NodeTable) -> tuple[int, ...]:
    """By call of main the sync flags of its kernel, or `NOT_REMEMBERED`; nothing if main repeats none."""
    main = table.bodies[MAIN].nodes
    repeated = {
        node.call
        for first, loop in enumerate(main)
        if loop.step is NodeStep.ENTER
        for node in main[first : loop.target]
        if node.step is NodeStep.CALL
    }
    if not repeated:
        return ()
    flags = {body: _flags(table.bodies[body].kernel) for body in _bodies(table, repeated)}
    return tuple(
        flags[body] if call in repeated else NOT_REMEMBERED
        for call, body in enumerate(table.body_of_call)
    )


def _bodies(table: NodeTable, calls: set[int]) -> set[int]:
    return {table.body_of_call[call] for call in calls}


def _flags(kernel: Kernel) -> int:
    return kernel.flags if is_repeatable(kernel) else NOT_REMEMBERED


def is_repeatable(kernel: Kernel) -> bool:
    """Whether a kernel leaves nothing in SMEM, and nothing in SMEM decides what it does next or how much
    it moves."""
    if any(d.route != NO_ROUTE or SMEM in (d.src_space, d.dst_space) for d in kernel.descriptors):
        return False
    walk = _Walk()
    walk.nodes(kernel.body, frozenset())
    return walk.is_repeatable


_Registers = frozenset[int]


class _Walk:
    """Goes through nodes with the sregs that may hold what comes of words in SMEM."""

    def __init__(self) -> None:
        self.is_repeatable = True
        self._scalar: dict[int, list[list[Instr]]] = {}

    def nodes(self, nodes: list[Node], held: _Registers) -> _Registers:
        """The sregs that hold such words behind `nodes`."""
        for node in nodes:
            match node:
                case Block():
                    held = self._block(node, held)
                case Loop():
                    held = self._loop(node, held)
                case While():  # an estimate knows its trips
                    held = self._repeated([*node.test, *node.body], held)
                case If():
                    self._ask(node.condition in held)
                    held = self.nodes(node.then, held) | self.nodes(node.orelse, held)
        return held

    def _loop(self, loop: Loop[Block], held: _Registers) -> _Registers:
        self._ask(loop.trip < 0 and loop.trip_sreg in held)
        return self._repeated(loop.body, held - {loop.index}, {loop.index})

    def _repeated(
        self, body: list[Node], held: _Registers, fresh: set[int] | frozenset[int] = frozenset()
    ) -> _Registers:
        """Behind any number of trips; `fresh` are set anew at the begin of each."""
        while self.is_repeatable:
            after = self.nodes(body, held) - fresh
            if after <= held:
                break
            held |= after
        return held

    def _ask(self, is_held: bool) -> None:
        self.is_repeatable = self.is_repeatable and not is_held

    def _block(self, block: Block, held: _Registers) -> _Registers:
        found = set(held)
        for bundle in self._instructions(block):
            writes = [self._write(instr, found) for instr in bundle]
            for register, holds in writes:
                if holds:
                    found.add(register)
                else:
                    found.discard(register)
        return frozenset(found)

    def _instructions(self, block: Block) -> list[list[Instr]]:
        """By bundle those that concern sregs, flags or SMEM."""
        found = self._scalar.get(id(block))
        if found is None:
            bundles = ([i for i in bundle if _concerns(i.row)] for bundle in block.bundles)
            found = self._scalar[id(block)] = [bundle for bundle in bundles if bundle]
        return found

    def _write(self, instr: Instr, held: set[int]) -> tuple[int, bool]:
        """The sreg it writes, 0 for none, and whether that comes of words in SMEM then."""
        row, operands = instr.row, instr.operands
        self._ask(SMEM_WORDS in row.defines)
        if FLAG in row.touches:
            self._ask(any(operands[at] in held for at in _deciding(row)))
        if row.write is None or row.write.register_class != SREG:
            return 0, False
        read = any(operands[r.index] in held for r in row.reads if r.register_class == SREG)
        return operands[0], read or SMEM_WORDS in row.uses


@cache
def _concerns(row: Row) -> bool:
    writes_scalar = row.write is not None and row.write.register_class == SREG
    return writes_scalar or FLAG in row.touches or SMEM_WORDS in row.touches


@cache
def _deciding(row: Row) -> tuple[int, ...]:
    """Positions of the sregs that say which flag is meant and how much is moved."""
    return tuple(
        position
        for position, operand in enumerate(row.operands)
        if operand.kind is Kind.SS and operand.name not in _ADDRESSES
    )
