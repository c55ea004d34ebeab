"""Exchanges in halves: a kernel becomes a start and a done, and these one kernel again.

    p = f32[8,128] fusion(x), kind=kCustom, calls={ROOT collective-permute(param_0), ...}

    s = (f32[8,128], f32[8,128]) collective-permute-start(x), ...
    p = f32[8,128] collective-permute-done(s)

The start hands on its operands beside the results, so both stay where they are until the done.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import Shape, TupleShape
from compiler.rewrite.graph import emit

_SPLIT = ("collective-permute",)


@dataclass(frozen=True, eq=False)
class Halves:
    """A kernel that exchanges data, and the two instructions that stand for it."""

    whole: HloInstruction
    start: HloInstruction
    done: HloInstruction


def can_split(instr: HloInstruction) -> bool:
    """Whether an instruction is a kernel of one exchange that runs without the core's help."""
    if instr.opcode != "fusion" or instr.kind != "kCustom":
        return False
    called = instr.calls
    root = called.root_instruction
    return root.opcode in _SPLIT and [*root.operands] == [*called.parameters]


def split(whole: HloInstruction) -> Halves:
    """Put a start and a done in the place of a kernel, at the end of its computation; the kernel has no
    users then, and is still there."""
    root = whole.calls.root_instruction
    given: tuple[Shape, ...] = tuple(operand.shape for operand in whole.operands)
    shape = TupleShape((given[0] if len(given) == 1 else TupleShape(given), whole.shape))
    start = emit(whole, f"{root.opcode}-start", shape, whole.operands, dict(root.attrs))
    done = emit(whole, f"{root.opcode}-done", whole.shape, (start,))
    whole.replace_all_uses_with(done)
    return Halves(whole, start, done)


def join(halves: Halves) -> None:
    """Let the kernel do it all after all; the halves have no users then, and are still there."""
    halves.done.replace_all_uses_with(halves.whole)


def remove(computation: HloComputation, *instrs: HloInstruction) -> None:
    """Take instructions without users out of their computation, users first."""
    for instr in instrs:
        computation.remove(instr)
