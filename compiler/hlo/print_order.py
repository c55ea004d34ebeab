"""The order in which XLA prints computations and instructions, and what it prints inside others.

XLA does not keep the order of a text: instructions come in the post order of a depth-first walk
from those without users, computations in the order in which a walk over the instructions of the
uncalled computations meets them.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.hlo.ir import HloComputation, HloInstruction, HloModule


def instructions_in_order(computation: HloComputation) -> list[HloInstruction]:
    """Operands first, each as late as its first user's first need for it."""
    done: dict[HloInstruction, None] = {}
    for start in computation:
        if start.users or start in done:
            continue
        path: dict[HloInstruction, Iterator[HloInstruction]] = {start: _needs(start)}
        while path:
            current = next(reversed(path))
            missing = next((n for n in path[current] if n not in done), None)
            if missing is None:
                del path[current]
                done[current] = None
            else:
                path[missing] = _needs(missing)
    return list(done)


def _needs(instr: HloInstruction) -> Iterator[HloInstruction]:
    yield from reversed(instr.control_predecessors())
    yield from instr.operands


def computations_in_order(module: HloModule) -> list[HloComputation]:
    """Callees as a rule before callers; bodies that their only user shows inline are left out."""
    called = {
        callee
        for computation in module.computations.values()
        for instr in computation
        if instr.attrs
        for callee in instr.called_computations()
    }
    done: dict[HloComputation, None] = {}
    for computation in module.computations.values():
        if computation not in called:
            done |= dict.fromkeys(_embedded(computation))
            done[computation] = None
    inline = _inline_computations(module)
    return [computation for computation in done if computation not in inline]


def _embedded(start: HloComputation) -> list[HloComputation]:
    """Everything below `start`. A callee counts as met when its caller's line is read."""
    met: set[HloComputation] = set()
    order: list[HloComputation] = []
    stack: list[tuple[HloComputation, Iterator[HloInstruction]]] = []

    def push(instr: HloInstruction) -> None:
        for callee in reversed(_callees(instr)):
            if callee not in met:
                met.add(callee)
                stack.append((callee, iter(callee)))

    for instr in start:
        push(instr)
        while stack:
            computation, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                order.append(computation)
            else:
                push(following)
    return order


def _callees(instr: HloInstruction) -> list[HloComputation]:
    found = instr.called_computations() if instr.attrs else []
    if len(found) == 2:  # XLA holds a loop's body first, and the branch of true
        later = instr.attrs.get("condition") or instr.attrs.get("false_computation")
        return sorted(found, key=lambda c: c is later)
    return found


def fused_computations(module: HloModule) -> set[HloComputation]:
    """The bodies of fusions: a schedule says nothing of them."""
    return {
        callee
        for computation in module.computations.values()
        for instr in computation
        if instr.opcode == "fusion"
        for callee in instr.called_computations()
    }


def _inline_computations(module: HloModule) -> set[HloComputation]:
    found: set[HloComputation] = set()
    for computation in module.computations.values():
        for instr in computation:
            if instr.opcode == "async-start" and wrapped_instruction(instr) is not None:
                found.update(instr.called_computations())
    return found


def wrapped_instruction(instr: HloInstruction) -> HloInstruction | None:
    """The one operation that an asynchronous half stands for, if its body holds nothing else."""
    start = instr
    while start.opcode in ("async-update", "async-done") and start.operands:
        start = start.operands[0]
    body = start.attrs.get("calls")
    if start.opcode != "async-start" or not isinstance(body, HloComputation):
        return None
    root = body.root_instruction
    if all(i is root or i.opcode == "parameter" for i in body):
        return root
    return None
