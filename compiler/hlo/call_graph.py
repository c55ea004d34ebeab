"""Who calls whom: computations in order of their calls, and which are bodies of control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait

_CALL_NOTHING = frozenset(name for name, op in OPCODES.items() if not op.has(Trait.CALLS))


def callees(computation: HloComputation) -> list[HloComputation]:
    """The computations its instructions name, each once, in order of first mention."""
    found: dict[HloComputation, None] = {}
    for instr in computation:
        if instr.opcode not in _CALL_NOTHING:
            found.update(dict.fromkeys(instr.called_computations()))
    return list(found)


def callers(module: HloModule) -> dict[HloComputation, list[HloInstruction]]:
    """For every computation of the module the instructions that name it."""
    found: dict[HloComputation, list[HloInstruction]] = {
        computation: [] for computation in module.computations.values()
    }
    for computation in module.computations.values():
        for instr in computation:
            if instr.opcode not in _CALL_NOTHING:
                for callee in dict.fromkeys(instr.called_computations()):
                    found.setdefault(callee, []).append(instr)
    return found


def post_order(
    starts: Iterable[HloComputation],
    called: Callable[[HloComputation], Iterable[HloComputation]] = callees,
) -> list[HloComputation]:
    """The computations reachable from `starts`, callees before callers, otherwise in order.

    Raises CompileError when computations call each other in a cycle.
    """
    done: dict[HloComputation, None] = {}
    for start in starts:
        path = {start: iter(called(start))} if start not in done else {}
        while path:
            current = next(reversed(path))
            missing = next((c for c in path[current] if c not in done), None)
            if missing is None:
                del path[current]
                done[current] = None
            elif missing in path:
                raise CompileError(f"computation %{missing.name} calls itself", missing.span)
            else:
                path[missing] = iter(called(missing))
    return list(done)


def sort_computations(module: HloModule) -> None:
    """Put the module's computations into post order, otherwise keeping their order."""
    ordered = post_order(module.computations.values())
    module.computations = {computation.name: computation for computation in ordered}


def reachable(module: HloModule) -> list[HloComputation]:
    """The computations the entry needs, callees before callers (the entry comes last)."""
    return post_order([module.entry])


def control_computations(module: HloModule) -> list[HloComputation]:
    """The computations that run as the program's control flow, callees before callers.

    These are the entry and everything reached through while, conditional and call; not the
    bodies of fusions, nor what reduce, scatter or sort apply.
    """
    return post_order([module.entry], _controlled)


def loop_bodies(module: HloModule) -> set[HloComputation]:
    """The bodies of all loops that run."""
    return {i.body for c in control_computations(module) for i in c if i.opcode == "while"}


def _controlled(computation: HloComputation) -> Iterator[HloComputation]:
    for instr in computation:
        op = OPCODES.get(instr.opcode)  # the verifier asks before it looks at opcodes
        if op is not None and op.has(Trait.CONTROL_FLOW):
            yield from instr.called_computations()


def drop_unreachable(module: HloModule) -> int:
    """Remove the computations nothing reachable calls; return how many. Keeps callee order."""
    kept = reachable(module)
    removed = len(module.computations) - len(kept)
    module.computations = {c.name: c for c in kept}
    return removed
