"""Removal of operations whose results nothing reads, before scheduling."""

from __future__ import annotations

from collections import deque

from compiler.backend.op_table import Code, OpInfo
from compiler.llo.ir import LloBlock, LloIf, LloKernel, LloLoop, LloNode, LloWhile
from tpu_sim.isa.instruction import Instr


def remove_dead_code(kernel: LloKernel, table: dict[str, OpInfo]) -> None:
    """Drop, in place, operations without effect whose result is never read.

    A dead result of the EUP or XLU queue goes together with its push. sregs are written before
    they are read in source order (every write of a variable counts as read), so
    one backward walk finds everything.
    """
    _sweep(kernel.body, table, set(kernel.variables))


def _sweep(body: list[LloNode], table: dict[str, OpInfo], needed: set[int]) -> None:
    for node in reversed(body):
        match node:
            case LloBlock():
                node.ops = live_ops(node.ops, table, needed)
            case LloLoop():
                if node.trip_sreg >= 0:
                    needed.add(node.trip_sreg)
                _sweep(node.body, table, needed)
            case LloIf():
                needed.add(node.condition)
                _sweep(node.orelse, table, needed)
                _sweep(node.then, table, needed)
            case LloWhile():
                needed.add(node.condition)
                _sweep(node.body, table, needed)
                _sweep(node.test, table, needed)


def live_ops(ops: list[Instr], table: dict[str, OpInfo], sregs: set[int]) -> list[Instr]:
    """The operations of a block that count; `sregs` are read later and gain what these read."""
    live: list[Instr] = []
    vregs: set[int] = set()
    masks: set[int] = set()
    popped: tuple[deque[bool], deque[bool]] = (deque(), deque())
    files = {"v": vregs, "m": masks, "s": sregs}
    for instr in reversed(ops):
        info = table[instr.row.name]
        operands = instr.operands
        if info.code is Code.PUSH:
            keep = popped[info.queue].popleft()
        else:
            keep = info.has_effect or operands[0] in files[info.defines]
            if info.code is Code.POP:
                popped[info.queue].append(keep)
        if not keep:
            continue
        live.append(instr)
        for i in info.vregs:
            vregs.add(operands[i])
        for i in info.sregs:
            sregs.add(operands[i])
        for i in info.masks:
            masks.add(operands[i])
    live.reverse()
    return live
