"""Spill code for sregs: make constants and arguments again, keep the rest in SMEM."""

from __future__ import annotations

from compiler.diagnostics import KernelLimitError
from compiler.llo.ir import ARGUMENT_WORDS, LloBlock, LloKernel, LloNode
from compiler.llo.op_table import OpInfo
from compiler.llo.passes.register_names import RegisterNames
from compiler.llo.walk import blocks, rewrite
from tpu_sim.isa.instruction import ROWS, Instr
from tpu_sim.isa.resources import FLAG
from tpu_sim.isa.rows.scalar import SLD, SST

assert ROWS


def spill_sregs(
    kernel: LloKernel, table: dict[str, OpInfo], victims: set[int], slots_used: int
) -> int:
    """Rewrite `kernel` so that `victims` live only next to their uses; returns slots now in use."""
    recipes = _recipes(kernel, table, victims)
    slots: dict[int, int] = {}
    for victim in sorted(victims - recipes.keys()):
        slots[victim] = ARGUMENT_WORDS - 1 - slots_used
        slots_used += 1
    if ARGUMENT_WORDS - slots_used < kernel.arg_count:
        raise KernelLimitError(
            f"kernel {kernel.name}: {slots_used} spilled scalar registers and {kernel.arg_count} "
            f"arguments do not fit {ARGUMENT_WORDS} SMEM words; split the kernel"
        )
    names = RegisterNames(kernel, table)

    def rewritten(node: LloNode) -> list[LloNode]:
        if not isinstance(node, LloBlock):
            return [node]
        begins = bool(node.ops) and FLAG in node.ops[0].row.uses
        node.ops = _rewrite(node.ops, table, recipes, slots, names)
        return _behind_a_block(node) if begins else [node]

    kernel.body = rewrite(kernel.body, rewritten)
    return slots_used


def _behind_a_block(block: LloBlock) -> list[LloNode]:
    """A wait that began its block begins one still: a machine that waits for another core goes on with
    that one between blocks. What it needs is made in a block before."""
    first = next(k for k, instr in enumerate(block.ops) if FLAG in instr.row.uses)
    made, block.ops = block.ops[:first], block.ops[first:]
    return [LloBlock(made, block.name), block] if made else [block]


def _recipes(kernel: LloKernel, table: dict[str, OpInfo], victims: set[int]) -> dict[int, Instr]:
    """Defining instructions that may be repeated anywhere: constants and argument reads."""
    recipes: dict[int, Instr] = {}
    for block in blocks(kernel.body):
        for instr in block.ops:
            if table[instr.row.name].defines != "s" or instr.operands[0] not in victims:
                continue
            is_argument = instr.row is SLD and instr.operands[1] == 0
            is_argument = is_argument and instr.operands[2] < kernel.arg_count
            if instr.operands[0] in kernel.variables:
                continue
            if instr.row.name == "smovi" or is_argument:
                recipes[instr.operands[0]] = instr
    return recipes


def _rewrite(
    ops: list[Instr],
    table: dict[str, OpInfo],
    recipes: dict[int, Instr],
    slots: dict[int, int],
    names: RegisterNames,
) -> list[Instr]:
    """Reload right before every use, store right after every write."""
    out: list[Instr] = []
    for instr in ops:
        info = table[instr.row.name]
        operands = list(instr.operands)
        for i in info.sregs:
            value = operands[i]
            if value in recipes:
                operands[i] = names.fresh("s")
                recipe = recipes[value]
                out.append(Instr(recipe.row, (operands[i], *recipe.operands[1:]), recipe.source))
            elif value in slots:
                operands[i] = names.fresh("s")
                out.append(Instr(SLD, (operands[i], 0, slots[value]), instr.source))
        if info.defines != "s" or operands[0] not in recipes.keys() | slots.keys():
            out.append(Instr(instr.row, tuple(operands), instr.source))
        elif operands[0] in slots:
            slot = slots[operands[0]]
            operands[0] = names.fresh("s")
            out.append(Instr(instr.row, tuple(operands), instr.source))
            out.append(Instr(SST, (0, slot, operands[0]), instr.source))
    return out
