"""Control unsharing: what a loop or conditional runs is run by it alone.

HLO lets several instructions name one computation: two loops one condition, a conditional one
branch twice, a call what a reduction applies. Passes that know what a computation is given
(constants of a loop's state, types, buffers) change it for its caller, so each caller gets a copy
of its own, with everything that runs inside. What reductions, sorts, scatters and maps apply is
never changed for a caller and stays shared among them.
"""

from __future__ import annotations

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import sort_computations
from compiler.hlo.cloning import clone_computation
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.passes.context import PassContext

MOST_COMPUTATIONS = 20_000
"""Copies double with each level that shares a body; so many are refused before memory runs out
(assumed)."""


def unshare_control(module: HloModule, context: PassContext) -> bool:
    """Give every while, conditional, call and fusion computations of its own."""
    context.counts["copied"] += unshare(module)
    return bool(context.counts["copied"])


def unshare(module: HloModule) -> int:
    """Copy computations until each that is run has one caller; return how many copies were made."""
    applied = {
        callee
        for computation in module.computations.values()
        for instr in computation
        if instr.attrs and not runs_its_callees(instr)
        for callee in instr.called_computations()
    }
    made = _Unsharing(module, applied).run(module.entry)
    if made:
        sort_computations(module)
    return made


def runs_its_callees(instr: HloInstruction) -> bool:
    """Whether what the instruction calls is part of the program's control flow, or a fusion's."""
    return instr.opcode == "fusion" or OPCODES[instr.opcode].has(Trait.CONTROL_FLOW)


class _Unsharing:
    def __init__(self, module: HloModule, taken: set[HloComputation]) -> None:
        self.module = module
        self.taken = taken

    def run(self, computation: HloComputation) -> int:
        """Unshare what a computation runs, and what that runs."""
        made = 0
        for instr in computation:
            if not instr.attrs or not runs_its_callees(instr):
                continue
            for key, value in list(instr.attrs.items()):
                if isinstance(value, HloComputation):
                    instr.attrs[key] = own = self._own(value)
                    made += own is not value
                elif isinstance(value, tuple) and value and isinstance(value[0], HloComputation):
                    instr.attrs[key] = own_all = tuple(self._own(v) for v in value)
                    made += sum(a is not b for a, b in zip(own_all, value, strict=True))
            for callee in instr.called_computations():
                made += self.run(callee)
        return made

    def _own(self, callee: HloComputation) -> HloComputation:
        """The computation if nobody has it yet, else a copy; what it runs is looked at later."""
        if callee not in self.taken:
            self.taken.add(callee)
            return callee
        if len(self.taken) > MOST_COMPUTATIONS:
            raise UnsupportedError(
                f"computation %{callee.name}: its callers and theirs run it from more than "
                f"{MOST_COMPUTATIONS} places; loops within loops that share bodies are compiled "
                "for each place",
                callee.span,
            )
        own = clone_computation(callee, module=self.module)
        self.taken.add(own)
        return own
