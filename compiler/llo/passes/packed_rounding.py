"""`packed-rounding`: numbers that are rounded to bf16 one by one and then packed are packed alone.

    vpack.bf16 v2 = v1, v1                  vpack.bf16 v4 = v1, v8
    vunpack.lo.bf16 v3 = v2         ->
    vpack.bf16 v4 = v3, v8

Packing rounds, and what is rounded already stays what it is.
"""

from __future__ import annotations

from compiler.llo.ir import LloKernel
from compiler.llo.walk import blocks
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import Instr

_PACK = "vpack.bf16"
_HALVES = {"vunpack.lo.bf16": 1, "vunpack.hi.bf16": 2}
"""Which operand of a pack an unpack gives back."""


def pack_unrounded(kernel: LloKernel, chip: Chip) -> bool:
    """Let packs read what their operands were rounded from; the roundings stay, for nobody."""
    is_changed = False
    for block in blocks(kernel.body):
        packs: dict[int, Instr] = {}
        rounded: dict[int, int] = {}
        ops: list[Instr] = []
        for instr in block.ops:
            name, operands = instr.row.name, instr.operands
            if name == _PACK:
                found = tuple(rounded.get(v, v) for v in operands[1:])
                if found != operands[1:]:
                    is_changed = True
                    instr = Instr(instr.row, (operands[0], *found), instr.source)
                packs[operands[0]] = instr
            elif name in _HALVES and operands[1] in packs:
                rounded[operands[0]] = packs[operands[1]].operands[_HALVES[name]]
            ops.append(instr)
        block.ops = ops
    return is_changed
