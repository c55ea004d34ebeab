"""Which axes are manual where: values between the boundaries of a region.

Values that an operation relates are in one region; only the two custom calls at its boundaries
lead from one to another. Axes that are manual around a region are so inside, too.
"""

from __future__ import annotations

from collections.abc import Iterable

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.passes.sharding.importer import Program
from compiler.sharding.mesh import Axes
from compiler.sharding.op_rules import FULL_TO_SHARD
from compiler.sharding.values import Value, Values

_ALIASES = frozenset(
    {"tuple", "get-tuple-element", "opt-barrier", "domain", "parameter", "after-all"}
)


class _Sets:
    """Disjoint sets of numbers."""

    def __init__(self, count: int) -> None:
        self.parent = list(range(count))

    def find(self, item: int) -> int:
        while self.parent[item] != item:
            self.parent[item] = self.parent[self.parent[item]]
            item = self.parent[item]
        return item

    def join(self, items: Iterable[Value]) -> None:
        numbers = [self.find(value.number) for value in items]
        for number in numbers[1:]:
            self.parent[self.find(number)] = self.find(numbers[0])


def mark_manual(program: Program, values: Values) -> None:
    """Tell every value which axes are manual where it is."""
    if not program.manual:
        return
    regions = _regions(program, values)
    crossings = []
    manual: dict[int, Axes] = {}
    for instr, axes in program.manual.items():
        sides = [*values.of[instr.operands[0]], *values.of[instr]]
        if instr.attrs["custom_call_target"] != FULL_TO_SHARD:
            sides.reverse()
        around, inside = (regions.find(side.number) for side in sides)
        crossings.append((around, inside, axes))
        for found in sides:
            manual[regions.find(found.number)] = _joined(
                manual.get(regions.find(found.number), ()), found.manual
            )
    has_changed = True
    while has_changed:
        has_changed = False
        for around, inside, axes in crossings:
            wanted = _joined(manual[inside], (*manual[around], *axes))
            has_changed = has_changed or wanted != manual[inside]
            manual[inside] = wanted
    for value in values.all():
        value.manual = manual.get(regions.find(value.number), ())
        if value.manual and value.mesh is None:
            value.mesh = program.statements.mesh


def _joined(a: Axes, b: Axes) -> Axes:
    return tuple(sorted({*a, *b}))


def _regions(program: Program, values: Values) -> _Sets:
    regions = _Sets(values.count)
    for edge in values.edges:
        regions.join([*edge.sources, edge.target])
    for instr, own in values.of.items():
        if instr.opcode in _ALIASES or instr in program.manual:
            continue
        regions.join([*own, *values.operands(instr)] if own else values.operands(instr))
        for root in _conditions(instr):
            regions.join([*own, *values.of[root]])
    return regions


def _conditions(instr: HloInstruction) -> list[HloInstruction]:
    condition = instr.attrs.get("condition")
    return [condition.root_instruction] if isinstance(condition, HloComputation) else []
