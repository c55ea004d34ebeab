"""Exchanges in halves: a kernel becomes a start and a done, and these one kernel again.

    p = f32[8,128] fusion(x), kind=kCustom, calls={ROOT collective-permute(param_0), ...}

    s = (f32[8,128], f32[8,128]) collective-permute-start(x), ...
    p = f32[8,128] collective-permute-done(s)

The start hands on its operands beside the results, so both stay where they are until the done.
An all-gather passes on what has come, step by step, and a reduce-scatter adds to it before: they are an
``async-start``, an ``async-update`` for each further part of the steps, and an ``async-done``. Partial sums
come to a third array of a reduction's start, as large as its operand. An all-to-all has all on its way
at once: an ``async-start`` and an ``async-done``.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.async_flags import group_size, has_flags, ring_steps, set_phase
from compiler.analysis.code_costs import KernelCosts
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import Shape, TupleShape
from compiler.rewrite.graph import emit
from tpu_sim.isa.chips import Chip

_MOST_PHASES = 16
"""Of a transfer whose parts wait for each other: more only add starts (assumed)."""


@dataclass(frozen=True, eq=False)
class Halves:
    """A kernel that exchanges data, and what stands for it: start, updates and done."""

    whole: HloInstruction
    chain: tuple[HloInstruction, ...]

    @property
    def start(self) -> HloInstruction:
        """The first of them."""
        return self.chain[0]

    @property
    def done(self) -> HloInstruction:
        """The last of them."""
        return self.chain[-1]


def can_split(instr: HloInstruction) -> bool:
    """Whether an instruction is a kernel of one exchange that runs without the core's help."""
    if instr.opcode != "fusion" or instr.kind != "kCustom":
        return False
    called = instr.calls
    root = called.root_instruction
    if not OPCODES[root.opcode].has(Trait.OVERLAPS) or [*root.operands] != [*called.parameters]:
        return False
    return "replica_groups" not in root.attrs or (group_size(root) >= 2 and has_flags(root))


def split(whole: HloInstruction, chip: Chip) -> Halves:
    """Put halves in the place of a kernel, at the end of its computation; the kernel has no users
    then, and is still there."""
    root = whole.calls.root_instruction
    given = TupleShape(tuple(operand.shape for operand in whole.operands))
    if root.opcode == "collective-permute":
        first: Shape = given if len(given.elements) > 1 else given.elements[0]
        shape = TupleShape((first, whole.shape))
        start = emit(whole, f"{root.opcode}-start", shape, whole.operands, dict(root.attrs))
        halves = [start, emit(whole, f"{root.opcode}-done", whole.shape, (start,))]
    else:
        partial = (whole.operands[0].shape,) if root.opcode == "reduce-scatter" else ()
        shape = TupleShape((given, whole.shape, *partial))
        attrs: dict[str, object] = {"calls": whole.calls}
        count = _phases(root, chip)
        halves = [emit(whole, "async-start", shape, whole.operands, attrs)]
        for _ in range(count - 1):
            halves.append(emit(whole, "async-update", shape, halves[-1:]))
        halves.append(emit(whole, "async-done", whole.shape, halves[-1:]))
        for number, half in enumerate(halves):
            set_phase(half, number, count)
    whole.replace_all_uses_with(halves[-1])
    return Halves(whole, tuple(halves))


def _phases(root: HloInstruction, chip: Chip) -> int:
    """In how many parts it is done: as many as a ring has steps, if each is worth its kernel."""
    all_of = root.array if root.opcode == "all-gather" else root.operands[0].array
    sent = all_of.element_count * all_of.dtype.bits / 16 / chip.ici_bytes_per_cycle
    return max(1, min(ring_steps(root), _MOST_PHASES, int(sent / KernelCosts.of(chip).phase)))


def join(halves: Halves) -> None:
    """Let the kernel do it all after all; the halves have no users then, and are still there."""
    halves.done.replace_all_uses_with(halves.whole)


def remove(computation: HloComputation, *instrs: HloInstruction) -> None:
    """Take instructions without users out of their computation, users first."""
    for instr in instrs:
        computation.remove(instr)
