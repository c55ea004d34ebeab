"""Which results of a many-operand reducer depend on which operands, and reducers for groups.

A reducer of n operands takes (a_0 .. a_n-1, b_0 .. b_n-1) and returns n results. When result 0
needs operand 0 alone, it is a reduction of its own, which kernels do better than a joint one:
sums of complex numbers, bitwise operations, plain overwriting.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.hlo.cloning import clone
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import TupleShape

Instr = HloInstruction


def groups_of(reducer: HloComputation, count: int) -> list[list[int]]:
    """The results in groups that can be reduced apart, each in order."""
    needs = _needed_operands(reducer, count)
    group = list(range(count))
    for result, operands in enumerate(needs):
        for operand in operands:
            old, new = group[operand], group[result]
            group = [new if g == old else g for g in group]
    return [[k for k in range(count) if group[k] == number] for number in dict.fromkeys(group)]


def _needed_operands(reducer: HloComputation, count: int) -> list[set[int]]:
    """For each result the operand numbers it depends on."""
    reach: dict[Instr, set[int]] = {}
    for instr in reducer:
        found = set().union(*(reach[operand] for operand in instr.operands))
        if instr.opcode == "parameter":
            found.add(instr.parameter_number % count)
        reach[instr] = found
    return [reach[result] for result in reducer.results]


def separated(reducer: HloComputation, count: int, chosen: Sequence[int]) -> HloComputation:
    """A reducer of the chosen operands alone (the reducer itself when that is all)."""
    if len(chosen) == count:
        return reducer
    target = reducer.owner.add_computation(HloComputation(reducer.name))
    made: dict[Instr, Instr] = {}
    numbers = [*chosen, *(count + k for k in chosen)]
    for position, number in enumerate(numbers):
        old = reducer.parameters[number]
        attrs: dict[str, object] = {"parameter_number": position}
        made[old] = target.add(HloInstruction("parameter", old.name, old.shape, (), attrs))
    results = [reducer.results[k] for k in chosen]
    _copy_needed(results, target, made)
    roots = [made[result] for result in results]
    if len(roots) == 1:
        target.root = roots[0]
    else:
        shape = TupleShape(tuple(root.shape for root in roots))
        target.root = target.add(HloInstruction("tuple", "results", shape, roots))
    return target


def _copy_needed(results: list[Instr], target: HloComputation, made: dict[Instr, Instr]) -> None:
    """Copy what the results need, operands first."""
    for result in results:
        waiting = [result]
        while waiting:
            instr = waiting[-1]
            missing = [o for o in instr.operands if o not in made]
            if instr not in made and missing:
                waiting.extend(missing)
                continue
            if instr not in made:
                made[instr] = clone(instr, target, [made[o] for o in instr.operands])
            waiting.pop()
