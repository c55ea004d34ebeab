"""Operations that partial sums go through: what is added to another sum is summed over devices once.

    all-reduce(a) + all-reduce(b) = all-reduce(a + b)

They go on as they are where nobody else needs the operands, which would then be summed all the same.
"""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.partitioner.factors import Assignment, FactorPlan, Job
from compiler.partitioner.grid import Cut
from compiler.partitioner.region import LocalComputation
from compiler.partitioner.values import Held, PartitionedValue

Instr = HloInstruction

_OF_SUMS = ("negate", "subtract")


def through(region: LocalComputation, instr: Instr, plan: FactorPlan) -> Held | None:
    """The operation done on the parts of sums; None where that is not the same or saves nothing."""
    values = [region.value(operand) for operand in instr.operands]
    given = _assignment(region, instr, plan, values) if values else None
    if given is None:
        return None
    first = values[0].first
    (hint,) = region.hints(instr)
    (dims,) = plan.rule.results
    cut = Cut(plan.project(dims, given), first.partial, first.order)
    region.b.near, region.b.order = instr, first.order
    operands = [value.cuts[first] for value in values]
    shape = instr.array
    job = Job(region.b, instr, operands, given, [region.grid.local(shape.dims, cut)])
    found = region.new_value(plan.emit(job)[0], shape.dims, cut, hint)
    found.combiner = values[0].combiner
    return found


def _assignment(
    region: LocalComputation, instr: Instr, plan: FactorPlan, values: list[PartitionedValue]
) -> Assignment | None:
    """The axes of each factor if all operands are such parts in one cut, and nobody else's."""
    first = values[0].first
    if not first.partial or not _goes_through(instr, values[0]):
        return None
    for operand, value in zip(instr.operands, values, strict=True):
        is_shared = set(operand.users) != {instr}
        is_other = list(value.cuts) != [first] or _kind(value) != _kind(values[0])
        if is_shared or is_other:
            return None
    dims = plan.rule.operands[0]
    given = plan.read(dims, first, region.grid)
    is_whole = plan.project(dims, given) == first.dims and plan.is_valid(given, region.grid)
    return given if is_whole else None


def _goes_through(instr: Instr, value: PartitionedValue) -> bool:
    kind = _kind(value)
    if OPCODES[instr.opcode].has(Trait.REARRANGES) or instr.opcode == kind:
        return True
    return kind == "add" and instr.opcode in _OF_SUMS


def _kind(value: PartitionedValue) -> str | None:
    """The opcode that combines two parts; None where that is more than one operation."""
    if value.combiner is None:
        return None
    root = value.combiner.root_instruction
    is_plain = set(root.operands) == set(value.combiner.parameters)
    return root.opcode if is_plain else None
