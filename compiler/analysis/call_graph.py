"""Who calls whom: reachable computations, and which are bodies of control flow or fusions."""

from __future__ import annotations

from compiler.hlo.ir import HloComputation, HloModule
from compiler.hlo.opcodes import OPCODES, Trait


def reachable(module: HloModule) -> list[HloComputation]:
    """The computations the entry needs, callees before callers (the entry comes last)."""
    order: list[HloComputation] = []
    seen: set[str] = set()

    def visit(computation: HloComputation) -> None:
        if computation.name in seen:
            return
        seen.add(computation.name)
        for instr in computation:
            for callee in instr.called_computations():
                visit(callee)
        order.append(computation)

    visit(module.entry)
    return order


def control_computations(module: HloModule) -> list[HloComputation]:
    """The computations that run as the program's control flow, callees before callers.

    These are the entry and everything reached through while, conditional and call; not the
    bodies of fusions, nor what reduce, scatter or sort apply.
    """
    order: list[HloComputation] = []
    seen: set[str] = set()

    def visit(computation: HloComputation) -> None:
        if computation.name in seen:
            return
        seen.add(computation.name)
        for instr in computation:
            if OPCODES[instr.opcode].has(Trait.CONTROL_FLOW):
                for callee in instr.called_computations():
                    visit(callee)
        order.append(computation)

    visit(module.entry)
    return order


def drop_unreachable(module: HloModule) -> int:
    """Remove the computations nothing reachable calls; return how many. Keeps callee order."""
    kept = reachable(module)
    removed = len(module.computations) - len(kept)
    module.computations = {c.name: c for c in kept}
    return removed
