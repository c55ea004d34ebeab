"""Parts of a fusion as fusions of their own: what a fusion that has no windows is split into.

A `FusionPart` computes some nodes of a fusion's body from the fusion's parameters and from nodes that
other parts store. It can be had as a trial, a fusion that is in no module and that the window
planner can be asked about, and as the real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.boxes import is_row_reduction
from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.layout_assignment import with_default_layout
from compiler.rewrite.graph import emit
from tpu_sim.isa.cached_property import cached_property

_SMALL_SHARE = 2
"""An update of less than one element in so many is small."""


@dataclass(frozen=True)
class FusionPart:
    """`outputs` of `fusion`'s body, computed from its parameters and the nodes in `given`.

    With `is_apart`, what several nodes read is an operand for each of them: then the windows of
    ``dot(x, x)`` are rows of x and columns of x, not one that holds both, and those of
    ``concatenate(x, x)`` two parts of x, far from each other.
    """

    fusion: HloInstruction
    outputs: tuple[HloInstruction, ...]
    given: frozenset[HloInstruction] = frozenset()
    is_apart: bool = False

    @cached_property
    def nodes(self) -> tuple[HloInstruction, ...]:
        """What it computes, operands before users."""
        needed = self.behind(self.outputs)
        return tuple(n for n in self.fusion.calls if n in needed and not self._is_input(n))

    @property
    def is_all(self) -> bool:
        """Whether it makes all results of the fusion from its parameters."""
        return not self.given and set(self.outputs) == set(self.fusion.calls.results)

    @cached_property
    def inputs(self) -> tuple[HloInstruction, ...]:
        """The parameters and given nodes that it reads."""
        needed = self.behind(self.outputs)
        return tuple(n for n in self.fusion.calls if n in needed and self._is_input(n))

    @cached_property
    def operands(self) -> tuple[tuple[HloInstruction, object], ...]:
        """Each operand: the input, and which reading of it where operands are apart."""
        if not self.is_apart:
            return tuple((n, None) for n in self.inputs)
        found: dict[tuple[HloInstruction, object], None] = {
            (o, None): None for o in self.outputs if self._is_input(o)
        }
        for node, side in self._copies:
            for number, operand in enumerate(node.operands):
                if self._is_input(operand):
                    found[operand, self._reading(operand, node, number, side)] = None
        return tuple(found)

    @cached_property
    def _copies(self) -> tuple[tuple[HloInstruction, int | None], ...]:
        """The nodes to compute; where operands are apart, what both sides of a dot are made of
        twice, by side."""
        sides: dict[HloInstruction, set[int | None]] = {n: set() for n in self.nodes}
        for output in self.outputs:
            if output in sides:
                sides[output].add(None)
        for node in reversed(self.nodes):
            for number, operand in enumerate(node.operands):
                if operand in sides:
                    is_side = node.opcode == "dot" and self.is_apart
                    sides[operand] |= {number} if is_side else sides[node]
        return tuple((n, side) for n in self.nodes for side in sorted(sides[n], key=str))

    def _reading(
        self, operand: HloInstruction, node: HloInstruction, number: int, side: int | None
    ) -> object:
        """Which reading of an input this is: those that share one share the operand."""
        if not self.is_apart or operand.array.rank == 0:
            return None
        if node.opcode == "dot":
            return number
        if node.opcode == "concatenate":
            return node, side, number
        return node if side is None else side

    @cached_property
    def traffic(self) -> int:
        """Bytes of all that it reads and makes, each once."""
        return sum(
            byte_size(self._shape_of(n)) for n in (*(o for o, _ in self.operands), *self.outputs)
        )

    def behind(self, nodes: tuple[HloInstruction, ...]) -> set[HloInstruction]:
        """`nodes` and what they depend on inside the part, its inputs included."""
        found, pending = set(nodes), list(nodes)
        while pending:
            current = pending.pop()
            for operand in () if self._is_input(current) else current.operands:
                if operand not in found:
                    found.add(operand)
                    pending.append(operand)
        return found

    def cut_at(self, stored: tuple[HloInstruction, ...]) -> tuple[FusionPart, FusionPart] | None:
        """The part that makes `stored`, and the one that makes the other results from them.

        Results that `stored` depend on are made with them. None where nothing would be left.
        """
        behind = self.behind(stored)
        early = (*stored, *(o for o in self.outputs if o in behind and o not in stored))
        late = tuple(o for o in self.outputs if o not in early)
        if not late:
            return None
        first = FusionPart(self.fusion, early, self.given)
        return first, FusionPart(self.fusion, late, self.given | set(early))

    def without(self, output: HloInstruction) -> tuple[FusionPart, FusionPart]:
        """The part that makes one result, and the one that makes the others."""
        rest = tuple(o for o in self.outputs if o is not output)
        return (
            FusionPart(self.fusion, (output,), self.given),
            FusionPart(self.fusion, rest, self.given | {output}),
        )

    def kinds(self) -> Iterator[str]:
        """The kinds of fusion that it can be, the likelier first.

        A small update is none: its own kernel, or a loop of such, leaves the rest where it is.
        """
        if any(_is_small_update(n) for n in self.outputs):
            return
        reduces = [n for n in self.nodes if n.opcode == "reduce"]
        if any(n.opcode == "dot" for n in self.nodes):
            yield "kOutput"
            return
        are_rows = all(is_row_reduction(r) for r in reduces)
        if are_rows or self.fusion.kind == "kLoop":
            yield "kLoop"
        if reduces and self._are_all_sums(reduces):
            yield "kInput"

    def _are_all_sums(self, reduces: list[HloInstruction]) -> bool:
        """Whether a kInput fusion can hold this: reduces over the same space, and what has the
        dimensions of their results."""
        first = reduces[0]
        dims, reduced = first.operands[0].array.dims, first.dimensions
        kept = tuple(n for d, n in enumerate(dims) if d not in reduced)
        is_same = all(r.operands[0].array.dims == dims and r.dimensions == reduced for r in reduces)
        if not is_same or any(o.array.dims != kept for o in self.outputs):
            return False
        stored = {o.operands[0] if o.opcode == "get-tuple-element" else o for o in self.outputs}
        return self.fusion.kind == "kInput" or stored == set(reduces)

    def trial(self, kind: str) -> HloInstruction:
        """The part as a fusion that is in no module."""
        attrs: dict[str, object] = {}
        operands = [
            HloInstruction("parameter", "given", self._shape_of(n)) for n, _ in self.operands
        ]
        name = self.fusion.name
        attrs = {"kind": kind, "calls": self._body()}
        return HloInstruction("fusion", name, self._shape(), operands, attrs)

    def emit(
        self, kind: str, outside: dict[HloInstruction, HloInstruction]
    ) -> list[HloInstruction]:
        """Emit it beside its fusion; returns its results. `outside` has the values of its inputs."""
        body = self._body()
        self.fusion.home.owner.add_computation(body)
        attrs: dict[str, object] = {"kind": kind, "calls": body}
        if "control-predecessors" in self.fusion.attrs:
            attrs["control-predecessors"] = self.fusion.attrs["control-predecessors"]
        operands = [outside[n] for n, _ in self.operands]
        made = emit(self.fusion, "fusion", self._shape(), operands, attrs, "fusion")
        if len(self.outputs) == 1:
            return [made]
        return [
            emit(made, "get-tuple-element", self._shape_of(output), (made,), {"index": i})
            for i, output in enumerate(self.outputs)
        ]

    def _body(self) -> HloComputation:
        body = HloComputation("fused_computation")
        made: dict[tuple[HloInstruction, int | None], HloInstruction] = {}
        read: dict[tuple[HloInstruction, object], HloInstruction] = {}
        for number, (node, reading) in enumerate(self.operands):
            attrs: dict[str, object] = {"parameter_number": number}
            shape = node.array.with_layout(None)
            parameter = HloInstruction("parameter", f"param_{number}", shape, (), attrs)
            read[node, reading] = body.add(parameter)
        for node, side in self._copies:
            operands = [
                read[o, self._reading(o, node, number, side)]
                if self._is_input(o)
                else made[o, number if node.opcode == "dot" and self.is_apart else side]
                for number, o in enumerate(node.operands)
            ]
            copy = HloInstruction(node.opcode, node.name, node.shape, operands, dict(node.attrs))
            copy.location = node.location
            made[node, side] = body.add(copy)
        results = [read[o, None] if self._is_input(o) else made[o, None] for o in self.outputs]
        body.root = results[0]
        if len(results) > 1:
            of_all = TupleShape(tuple(r.shape for r in results))
            body.root = body.add(HloInstruction("tuple", "tuple", of_all, results))
        return body

    def _shape(self) -> Shape:
        shapes = tuple(self._shape_of(o) for o in self.outputs)
        return shapes[0] if len(shapes) == 1 else TupleShape(shapes)

    def _shape_of(self, node: HloInstruction) -> ArrayShape:
        """The shape of an input or result, with its layout in memory."""
        if node.opcode == "parameter":
            number = self.fusion.calls.parameters.index(node)
            return self.fusion.operands[number].array
        roots = self.fusion.calls.results
        if node in roots and isinstance(self.fusion.shape, TupleShape):
            shape = self.fusion.shape.elements[roots.index(node)]
        else:
            shape = self.fusion.shape if node in roots else with_default_layout(node.shape)
        assert isinstance(shape, ArrayShape)
        return shape

    def _is_input(self, node: HloInstruction) -> bool:
        return node.opcode == "parameter" or node in self.given


def _is_small_update(node: HloInstruction) -> bool:
    if node.opcode != "dynamic-update-slice":
        return False
    return node.operands[1].array.element_count * _SMALL_SHARE < node.array.element_count
