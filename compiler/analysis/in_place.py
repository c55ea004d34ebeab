"""Which results a kernel may write over which of its operands.

A kernel reads and writes block by block, so a result may lie where an operand does only when no
block is read after another block's result was written over it.
"""

from __future__ import annotations

from compiler.analysis.aliasing import updated_operand
from compiler.analysis.fourier_grid import fourier_grid
from compiler.analysis.fusion_body import fusion_body
from compiler.analysis.window_planner import WindowPlanner
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, leaves
from tpu_sim.isa.program import SMEM


def may_overwrite(
    instr: HloInstruction, operand_index: int, leaf: int, planner: WindowPlanner
) -> bool:
    """Whether result array `leaf` of a fusion or copy may lie where the operand lies.

    Scalars in SMEM are read before anything is written; of an array there only an element is. A copy of
    a place onto itself is nothing.
    """
    result = leaves(instr.shape)[leaf]
    operand = instr.operands[operand_index].shape
    if result.layout is not None and result.layout.memory_space == SMEM:
        is_scalar = isinstance(operand, ArrayShape) and not operand.dims and not result.dims
        return is_scalar or updated_operand(instr) == operand_index or operand == result
    if instr.opcode == "copy":
        return operand == result
    if updated_operand(instr) is not None:
        return updated_operand(instr) == operand_index
    transform = transform_of(instr)
    if transform is not None:
        return operand == result and fourier_grid(transform, planner.chip).is_disjoint
    is_as_wide = isinstance(operand, ArrayShape) and operand.dtype.bits == result.dtype.bits
    return (
        is_as_wide and reads_in_place(instr, operand_index) and blocks_are_disjoint(instr, planner)
    )


def transform_of(instr: HloInstruction) -> HloInstruction | None:
    """The `pair-fft` that a fusion is the kernel of: a step reads its lines before it writes them."""
    if instr.opcode != "fusion" or instr.kind != "kCustom":
        return None
    root = instr.calls.root_instruction
    return root if root.opcode == "pair-fft" else None


def blocks_are_disjoint(fusion: HloInstruction, planner: WindowPlanner) -> bool:
    """Whether no grid step of a fusion computes what another step computed before.

    The last block of a dimension that the blocks do not divide starts earlier; in place, it
    would read what was already overwritten.
    """
    return planner.facts(fusion).is_disjoint


def reads_in_place(fusion: HloInstruction, operand_index: int) -> bool:
    """Whether a fusion reads an operand only at the index it writes its results at."""
    if fusion.opcode != "fusion" or fusion.kind not in ("kLoop", "kOutput"):
        return False
    called = fusion.calls
    dims = called.parameters[operand_index].array.dims
    pending = [called.parameters[operand_index]]
    seen = set(pending)
    while pending:
        for user in pending.pop().users:
            if user.opcode == "tuple":
                continue
            is_same = OPCODES[user.opcode].has(Trait.ELEMENTWISE) and user.array.dims == dims
            if not is_same:
                return False
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return True


def stores_last(fusion: HloInstruction) -> bool:
    """Whether a kernel of windows reads each tile of an operand before it stores one of its results there.

    Then a result may lie in VMEM on an operand that is read in place. A single result is stored by the
    last stage, tile by tile; of several, those of one stage that turns nothing are stored together.
    """
    if fusion.opcode != "fusion" or fusion.kind not in ("kLoop", "kOutput"):
        return False
    body = fusion_body(fusion)
    if len(body.roots) == 1:
        return True
    is_one_stage = not body.materialised and len({root.array.dims for root in body.roots}) == 1
    return is_one_stage and all(map(_is_read_as_it_lies, fusion.calls))


def _is_read_as_it_lies(node: HloInstruction) -> bool:
    """Whether an operation takes its operands' elements at its own index, or scalars."""
    if not node.operands or node.opcode == "tuple":
        return True
    is_by_element = OPCODES[node.opcode].has(Trait.ELEMENTWISE) or node.opcode == "broadcast"
    return is_by_element and all(o.array.dims in ((), node.array.dims) for o in node.operands)
