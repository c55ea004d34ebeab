"""Copies of instructions and of whole computations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from compiler.hlo.ir import HloComputation, HloInstruction, HloModule


def clone(
    instr: HloInstruction, target: HloComputation, operands: Iterable[HloInstruction]
) -> HloInstruction:
    """Copy an instruction into `target` with other operands; called computations are shared.

    Control edges stay within a computation: a copy in another one has none.
    """
    copy = HloInstruction(instr.opcode, instr.name, instr.shape, operands, dict(instr.attrs))
    copy.location = instr.location
    return target.add(copy)


def clone_instructions(
    source: HloComputation, target: HloComputation, arguments: Sequence[HloInstruction] | None
) -> dict[HloInstruction, HloInstruction]:
    """Copy the instructions of `source` into `target`; returns old -> new.

    `arguments` stand for the parameters (inlining); with None the parameters are copied too.
    Computations that the instructions name are shared, not copied.
    """
    copies: dict[HloInstruction, HloInstruction] = {}
    if arguments is not None:
        copies.update(zip(source.parameters, arguments, strict=True))
    for instr in source:
        if instr in copies:
            continue
        copy = clone(instr, target, [copies[operand] for operand in instr.operands])
        copies[instr] = copy
        copy.set_control_predecessors(copies[p] for p in instr.control_predecessors())
    return copies


def clone_computation(
    computation: HloComputation, name: str | None = None, module: HloModule | None = None
) -> HloComputation:
    """Copy a computation; with `module` the copy is added there, under names free in it."""
    clone = HloComputation(name if name is not None else f"{computation.name}.clone")
    clone.attrs = dict(computation.attrs)
    clone.span = computation.span
    copies = clone_instructions(computation, clone, None)
    clone.root = copies[computation.root_instruction]
    if module is not None:
        module.add_computation(clone)
    return clone
