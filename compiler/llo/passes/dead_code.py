"""`dead-code`: removal of operations whose results nothing reads."""

from __future__ import annotations

from collections import deque

from compiler.llo.ir import LloBlock, LloKernel
from compiler.llo.op_table import Code, OpInfo, op_table
from compiler.llo.walk import control_reads
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import walk_backwards
from tpu_sim.isa.instruction import Instr


def remove_dead_code(kernel: LloKernel, chip: Chip) -> bool:
    """Drop, in place, operations without effect whose result is never read; whether there were any.

    A dead result of the EUP or XLU queue goes together with its push. sregs are written before
    they are read in source order (every write of a variable counts as read), so
    one backward walk finds everything.
    """
    table = op_table(chip)
    needed = set(kernel.variables)
    dropped = 0
    for node in walk_backwards(kernel.body):
        needed.update(control_reads(node))
        if isinstance(node, LloBlock):
            before = len(node.ops)
            node.ops = live_ops(node.ops, table, needed)
            dropped += before - len(node.ops)
    return dropped > 0


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
