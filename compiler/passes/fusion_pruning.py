"""Drops results of fusions that their readers can recompute from what is stored anyway.

A layer norm's fusion that stores ``x`` need not store ``x - mean`` for the backward pass too:
one value per row (the mean) is stored instead, and readers subtract. Likewise a softmax whose
exponentials and row sums are stored, or the tanh of a gelu whose argument is. The result is
dropped when recomputing takes few operations and reads one array of its size, which must be
stored already. A loop fusion all of whose results go this way is gone. What a dot reads is
repeated for every window of its other operand, so there only cheap work on large arrays is
worth it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.analysis.lane_costs import is_dear, lane_ops
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.passes.fusion_decision import (
    MAX_OPERANDS,
    REPLAY_BUDGET,
    REPLAY_WINDOW,
    Legality,
    leaf_is_array,
)
from compiler.passes.fusion_groups import FusionKind, Group, GroupGraph
from compiler.passes.fusion_roles import Access, FusionNode, Role
from compiler.passes.turned_images import is_turned_image

MAX_RECOMPUTED_OPS = 16
"""VALU operations an element, as `MAX_VIRTUAL_OPS` of `fusion_nodes`, that a second kernel repeats."""
MIN_BYTES_BEFORE_DOT = 64 << 20  # below, a dot's operand is better stored than recomputed


@dataclass
class _Recipe:
    """How to recompute a result: the instructions to repeat and the stored values they read."""

    repeated: list[HloInstruction] = field(default_factory=list)
    stored: dict[HloInstruction, None] = field(default_factory=dict)
    op_count: int = 0
    is_cheap: bool = True  # no transcendental function among the repeated


class OutputPruner:
    """Finds and applies recipes; `recomputed` are the instructions readers now repeat."""

    def __init__(
        self, graph: GroupGraph, nodes: dict[HloInstruction, FusionNode], legality: Legality
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        self.legality = legality
        self.recomputed: set[HloInstruction] = set()

    def prune(self, groups: list[Group]) -> int:
        """Prune all groups; return how many results were dropped."""
        dropped = 0
        for group in groups:
            outputs = self.legality.outputs(group)
            is_whole = group.kind is FusionKind.LOOP and not group.has_row_reduction
            if group.kind in (FusionKind.CUSTOM, FusionKind.SCALAR) or len(outputs) < 2 - is_whole:
                continue
            position = {n: i for i, n in enumerate(group.nodes)}
            for instr in sorted(outputs, key=lambda n: -position[n]):
                dropped += self._try_drop(group, instr)
        return dropped

    def _try_drop(self, group: Group, instr: HloInstruction) -> bool:
        is_row = self._is_row(group, instr)
        if instr in self.legality.hard or not (is_row or instr.array.dims == group.box != ()):
            return False
        recipe = self._recipe(group, instr)
        if recipe is None or not self._is_worthwhile(group, instr, recipe, is_row=is_row):
            return False
        readers = [r for r in self.legality.readers[instr] if r not in group.nodes]
        if not all(self._can_recompute(r, instr, recipe) for r in readers):
            return False
        for reader in readers:
            self._redirect(reader, instr, recipe)
        self.recomputed.update(recipe.repeated)
        return True

    def _recipe(self, group: Group, instr: HloInstruction) -> _Recipe | None:
        outputs = set(self.legality.outputs(group))
        recipe = _Recipe()
        pending, seen = [instr], {instr}
        while pending:
            current = pending.pop()
            is_stop = current is not instr and (
                current in outputs or current not in group.nodes or current in group.reads
            )
            node = self.nodes[current]
            if node.role is Role.VIRTUAL or (current in self.recomputed and not is_stop):
                is_stop = False
            elif current is not instr and self._is_row(group, current):
                is_stop = True
            if is_stop:
                recipe.stored[current] = None
                continue
            if node.role not in (Role.VIRTUAL, Role.REAL) or not self._is_repeatable(current):
                return None
            recipe.repeated.append(current)
            cost = lane_ops(current) if current.array.dims == group.box else 0
            recipe.op_count += cost
            recipe.is_cheap &= not is_dear(current)
            for operand in current.operands:
                if operand not in seen:
                    seen.add(operand)
                    pending.append(operand)
        return recipe

    def _is_row(self, group: Group, instr: HloInstruction) -> bool:
        return (
            leaf_is_array(instr)
            and instr in group.aligned
            and instr.array.dims == group.row_box != group.box
        )

    def _is_repeatable(self, instr: HloInstruction) -> bool:
        return instr.opcode != "get-tuple-element" and not OPCODES[instr.opcode].has(Trait.STAGE)

    def _is_worthwhile(
        self, group: Group, instr: HloInstruction, recipe: _Recipe, *, is_row: bool
    ) -> bool:
        if recipe.op_count > MAX_RECOMPUTED_OPS or is_turned_image(instr, self.nodes):
            return False
        if is_row:  # where narrow, as many rows as fill its registers would be a step
            stored = {*self.legality.outputs(group), *group.reads} - {instr}
            return instr.array.dtype.bits < 32 and stored.issuperset(recipe.stored)
        if any(not leaf_is_array(s) for s in recipe.stored):
            return False
        size = instr.array.byte_count
        big = [s for s in recipe.stored if 4 * s.array.byte_count > size]
        return len(big) == 1 and big[0].array.byte_count <= size

    def _can_recompute(
        self, reader: HloInstruction, instr: HloInstruction, recipe: _Recipe
    ) -> bool:
        group = self.graph.find(reader)
        if group is None or group.kind in (FusionKind.CUSTOM, FusionKind.SCALAR):
            return False
        is_direct = self.nodes[reader].leaves.get(instr) is Access.SAME
        if not is_direct and instr not in reader.operands:
            return False  # read under other dimensions: better as a bitcast of a stored value
        new = (group.reads | recipe.stored.keys()) - {instr} - group.nodes.keys()
        if len(new) > MAX_OPERANDS:
            return False
        if group.dot is None or not self._feeds_dot(group.dot, instr):
            return True
        replays = -(-max(group.dot.array.dims[-2:]) // REPLAY_WINDOW)
        is_cheap = recipe.is_cheap and replays * recipe.op_count <= REPLAY_BUDGET
        return is_cheap and instr.array.byte_count >= MIN_BYTES_BEFORE_DOT

    def _feeds_dot(self, dot: HloInstruction, instr: HloInstruction) -> bool:
        return instr in self.nodes[dot].leaves

    def _redirect(self, reader: HloInstruction, instr: HloInstruction, recipe: _Recipe) -> None:
        """Let `reader` read the recipe's stored values instead of `instr`."""
        group = self.graph.find(reader)
        assert group is not None
        self.legality.readers[instr].remove(reader)
        group.reads.discard(instr)
        for value in recipe.stored:
            if value in group.nodes:
                continue
            group.reads.add(value)
            self.legality.add_reader(value, reader)
            producer = self.graph.find(value)
            if producer is not None:
                self.graph.connect(producer, group)
