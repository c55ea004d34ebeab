"""Turns planned groups into `fusion` instructions with computations of their own.

Virtual instructions are copied into every fusion that reads them; values from memory become
parameters; a reshape of such a value that moves no bytes stays outside, as a `bitcast`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from compiler.analysis.kernel_vmem import arrangement
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import TupleShape
from compiler.passes.fusion_groups import Group, GroupGraph
from compiler.passes.fusion_roles import (
    FusionNode,
    Role,
    is_free_reshape,
    is_index_or_elementwise,
    is_scalar_constant,
)
from compiler.rewrite.graph import emit, remove_dead


class FusionBuilder:
    """Builds the fusions of one computation; `values` maps an instruction to where it lies."""

    def __init__(
        self,
        computation: HloComputation,
        nodes: dict[HloInstruction, FusionNode],
        graph: GroupGraph,
        recomputed: set[HloInstruction],
        repeated_in: Mapping[int, set[HloInstruction]],
    ) -> None:
        self.computation = computation
        self.nodes = nodes
        self.graph = graph
        self.recomputed = recomputed
        self.repeated_in = repeated_in
        self.values: dict[HloInstruction, HloInstruction] = {}
        self.fusions: dict[HloInstruction, list[HloInstruction]] = {}

    def build(self, groups: list[Group], outputs: dict[int, list[HloInstruction]]) -> None:
        """Create all fusions, rewire the fixed instructions and remove what was fused."""
        originals = list(self.computation)
        edges = self.computation.take_control_edges() if groups else []
        position = {instr: i for i, instr in enumerate(originals)}
        for group in self._in_order(groups, position):
            self._build_one(group, outputs[group.index], position)
        for instr in originals:
            if self.nodes[instr].role is Role.FIXED and self.graph.find(instr) is None:
                self._rewire(instr)
        root = self.computation.root_instruction
        if self.nodes[root].role is not Role.FIXED or self.graph.find(root) is not None:
            self.computation.root = self._value(root)
        for instr in reversed(originals):
            if instr.computation is self.computation:
                remove_dead(instr)
        for before, after in edges:
            for first, second in itertools.product(self._runs_in(before), self._runs_in(after)):
                self.computation.add_control_edge(first, second)
        self.computation.sort()

    def _in_order(self, groups: list[Group], position: dict[HloInstruction, int]) -> list[Group]:
        """Producers before consumers; among the ready ones, as their last instruction stood."""
        last = {g.index: max(position[n] for n in g.nodes) for g in groups}
        done: set[int] = set()
        order: list[Group] = []
        for start in sorted(groups, key=lambda g: last[g.index]):
            stack = [start]
            while stack:
                group = stack[-1]
                before = self.graph.predecessors(group)
                missing = [p for p in before if p.index in last and p.index not in done]
                if missing:
                    stack.extend(missing)
                    continue
                stack.pop()
                if group.index not in done:
                    done.add(group.index)
                    order.append(group)
        return order

    def _rewire(self, instr: HloInstruction) -> None:
        operands = [self._value(o) for o in instr.operands]
        if operands != instr.operands:
            instr.set_operands(operands)

    def _value(self, instr: HloInstruction) -> HloInstruction:
        """Where the value of an instruction lies outside all fusions."""
        if instr in self.values:
            return self.values[instr]
        node = self.nodes.get(instr)
        if node is not None and node.role is Role.VIRTUAL:
            assert is_free_reshape(instr), f"%{instr.name} is not in memory"
            source = self._value(instr.operands[0])
            made = emit(instr, "bitcast", instr.shape, (source,), name=instr.name)
            self.values[instr] = made
            return made
        is_fused = node is not None and self.graph.find(instr) is not None
        assert not is_fused, f"%{instr.name} is read from memory but no fusion stores it"
        return instr

    def _runs_in(self, instr: HloInstruction) -> list[HloInstruction]:
        """What runs an instruction now: the fusions it is in, or itself. Constants do not run."""
        return [] if instr.opcode == "constant" else self.fusions.get(instr, [instr])

    def _build_one(
        self,
        group: Group,
        outputs: list[HloInstruction],
        position: dict[HloInstruction, int],
    ) -> None:
        body = _Body(self, group)
        assert outputs, "nothing reads a fusion"
        results = [body.inside(o) for o in sorted(outputs, key=lambda n: position[n])]
        fused = body.finish(results)
        self.computation.owner.add_computation(fused)
        root = fused.root_instruction
        last = max(outputs, key=lambda n: position[n])
        attrs: dict[str, object] = {"kind": group.kind.fusion_kind, "calls": fused}
        fusion = emit(last, "fusion", root.shape, body.operands, attrs, "fusion")
        for instr, copy in body.made.items():
            if copy.opcode != "parameter":
                self.fusions.setdefault(instr, []).append(fusion)
        if len(outputs) == 1 and root.opcode != "tuple":
            self.values[outputs[0]] = fusion
            return
        for index, instr in enumerate(sorted(outputs, key=lambda n: position[n])):
            part = emit(
                instr, "get-tuple-element", instr.shape, (fusion,), {"index": index}, instr.name
            )
            self.values[instr] = part


class _Body:
    """A fused computation under construction."""

    def __init__(self, builder: FusionBuilder, group: Group) -> None:
        self.builder = builder
        self.group = group
        self.computation = HloComputation("fused_computation")
        self.made: dict[HloInstruction, HloInstruction] = {}
        self.operands: list[HloInstruction] = []
        self._parameters: dict[HloInstruction, HloInstruction] = {}

    def inside(self, instr: HloInstruction) -> HloInstruction:
        """The instruction's copy in this body, or the parameter that brings its value."""
        stack = [instr]
        while stack:
            current = stack[-1]
            if current in self.made:
                stack.pop()
            elif not self._is_copied(current):
                self.made[current] = self._parameter(self.builder._value(current))
                stack.pop()
            else:
                missing = [o for o in current.operands if o not in self.made]
                if missing:
                    stack.extend(reversed(missing))
                    continue
                stack.pop()
                self.made[current] = self._copy(current)
        return self.made[instr]

    def _is_copied(self, instr: HloInstruction) -> bool:
        if instr in self.group.nodes or is_scalar_constant(instr):
            return True
        if instr in self.builder.recomputed and instr not in self.builder.values:
            return True
        if instr in self.builder.repeated_in.get(self.group.index, ()):
            return True
        nodes = self.builder.nodes
        if self._is_filled_by_kernel(instr):
            return True
        if nodes[instr].role is not Role.VIRTUAL:
            return False
        if not is_free_reshape(instr) or self._is_rearranged(instr):
            return True
        return self._is_copied(instr.operands[0])

    def _is_rearranged(self, reshape: HloInstruction) -> bool:
        """Whether VMEM arranges an array otherwise than what it is a reshape of, so that the two cannot
        share a place there: a vector fills its registers, one row of a matrix does not."""
        if arrangement(reshape.operands[0].array) == arrangement(reshape.array):
            return False
        return all(
            is_index_or_elementwise(user) and user.opcode != "dynamic-update-slice"
            for user in reshape.users
            if user in self.group.nodes
        )

    def _is_filled_by_kernel(self, instr: HloInstruction) -> bool:
        """Whether a scatter starts from this constant, which it does not read, also where it is stored."""
        return any(
            custom.opcode == "scatter"
            and custom in self.group.nodes
            and instr not in self.builder.nodes[custom].leaves
            for custom in instr.users
        )

    def _copy(self, instr: HloInstruction) -> HloInstruction:
        operands = [self.made[o] for o in instr.operands]
        copy = HloInstruction(
            instr.opcode, f"{instr.name}", instr.shape, operands, dict(instr.attrs)
        )
        copy.location = instr.location
        return self.computation.add(copy)

    def _parameter(self, value: HloInstruction) -> HloInstruction:
        if value not in self._parameters:
            number = len(self.operands)
            self.operands.append(value)
            parameter = HloInstruction(
                "parameter", f"param_{number}", value.shape, (), {"parameter_number": number}
            )
            self._parameters[value] = self.computation.add(parameter)
        return self._parameters[value]

    def finish(self, results: list[HloInstruction]) -> HloComputation:
        """Set the root: the one result, or a tuple of all."""
        if len(results) == 1:
            self.computation.root = results[0]
            return self.computation
        shape = TupleShape(tuple(r.shape for r in results))
        self.computation.root = self.computation.add(
            HloInstruction("tuple", "tuple", shape, results)
        )
        return self.computation
