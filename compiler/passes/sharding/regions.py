"""Which axes are manual where: values between the boundaries of a region.

Values that an operation relates are in one region; only the two custom calls at its boundaries
lead from one to another. Axes that are manual around a region are so inside, too. Within a region all
shardings are over one mesh, that of its manual axes; what is said there over another one is dropped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.passes.sharding.importer import ImportedProgram
from compiler.sharding.mesh import Axes, Mesh
from compiler.sharding.op_rules import FULL_TO_SHARD
from compiler.sharding.projection import product
from compiler.sharding.values import ShardedValue, Values

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

    def join(self, items: Iterable[ShardedValue]) -> None:
        numbers = [self.find(value.number) for value in items]
        for number in numbers[1:]:
            self.parent[self.find(number)] = self.find(numbers[0])


@dataclass
class _Manual:
    """The manual axes of one region, and the mesh they are of."""

    mesh: Mesh | None = None
    axes: Axes = ()

    def add(self, mesh: Mesh | None, axes: Axes, boundary: HloInstruction) -> bool:
        """Let these be manual too; returns whether they were not."""
        if not axes or self._is_all():
            return False
        assert mesh is not None
        if self.mesh not in (None, mesh) and product(axes) < mesh.device_count:
            raise UnsupportedError(
                f"%{boundary.name}: manual axes of two meshes whose devices stand in other orders",
                boundary.span,
            )
        wanted = _joined(self.axes if self.mesh == mesh else (), axes)
        is_new = (mesh, wanted) != (self.mesh, self.axes)
        self.mesh, self.axes = mesh, wanted
        return is_new

    def _is_all(self) -> bool:
        return self.mesh is not None and product(self.axes) == self.mesh.device_count


def mark_manual(program: ImportedProgram, values: Values) -> None:
    """Tell every value which axes are manual where it is."""
    if not program.manual:
        return
    regions = _regions(program, values)
    found: dict[int, _Manual] = defaultdict(_Manual)
    crossings = []
    for instr, axes in program.manual.items():
        sides = [*values.of[instr.operands[0]], *values.of[instr]]
        if instr.attrs["custom_call_target"] != FULL_TO_SHARD:
            sides.reverse()
        around, inside = (found[regions.find(side.number)] for side in sides)
        for side in sides:
            found[regions.find(side.number)].add(side.mesh, side.manual, instr)
        inside.add(sides[0].mesh, axes, instr)
        crossings.append((around, inside, instr))
    while any(inside.add(around.mesh, around.axes, instr) for around, inside, instr in crossings):
        pass
    for value in values.all():
        _mark(value, found[regions.find(value.number)])


def _mark(value: ShardedValue, manual: _Manual) -> None:
    """Let a value of a region have its manual axes, and its mesh."""
    value.manual = manual.axes
    if not manual.axes or value.mesh == manual.mesh or (value.mesh and value.mesh.is_maximal):
        return
    if value.mesh is not None:
        value.forget()
    value.mesh = manual.mesh


def _joined(a: Axes, b: Axes) -> Axes:
    return tuple(sorted({*a, *b}))


def _regions(program: ImportedProgram, values: Values) -> _Sets:
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
