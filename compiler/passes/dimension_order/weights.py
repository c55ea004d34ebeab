"""How often the computations of a program run, and how often their loops read what does not change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from compiler.analysis.loop_invariants import invariant_elements
from compiler.analysis.trip_count import UNKNOWN_TRIPS, expected_trips
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait

Instr = HloInstruction

_OTHER_BRANCH = 0.05


def weights(module: HloModule) -> dict[HloComputation | None, float]:
    """How often each computation runs."""
    weights: dict[HloComputation | None, float] = {module.entry: 1.0}
    pending = [module.entry]
    while pending:
        computation = pending.pop()
        for instr in computation:
            if not OPCODES[instr.opcode].has(Trait.HANDS_STATE):
                continue
            for called, times in _runs(instr):
                weights[called] = weights.get(called, 0.0) + times * weights[computation]
                pending.append(called)
    return weights


def invariant_turns(computations: Iterable[HloComputation]) -> dict[Instr, float]:
    """How many turns of its loop read an array that none changes: it is reordered once before them."""
    found: dict[Instr, float] = {}
    for loop in (i for computation in computations for i in computation if i.opcode == "while"):
        trips = float(expected_trips(loop) or 1)
        found.update((element, max(trips, 1.0)) for element in invariant_elements(loop.body))
    return found


def _runs(instr: Instr) -> Iterator[tuple[HloComputation, float]]:
    """What control flow runs, and how often by the best guess."""
    called = instr.called_computations()
    if instr.opcode == "while":
        found = expected_trips(instr)
        yield from ((c, float(UNKNOWN_TRIPS if found is None else found)) for c in called)
        return
    for branch in called:  # an estimate without values takes the last one, too
        yield branch, 1.0 if branch is called[-1] else _OTHER_BRANCH
