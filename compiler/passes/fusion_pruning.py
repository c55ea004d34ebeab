"""Drops results of fusions that their readers can recompute from what is stored anyway.

A layer norm's fusion that stores ``x`` need not store ``x - mean`` for the backward pass too:
one value per row (the mean) is stored instead, and readers subtract. Likewise a softmax whose
exponentials and row sums are stored, or the tanh of a gelu whose argument is. The result is
dropped when recomputing takes few operations and reads one array of its size, which must be
stored already. A loop fusion all of whose results go this way is gone. What a dot reads is
repeated for every window of its other operand, so there only cheap work on large arrays is
worth it.

Of an array too large to wait in VMEM for its readers, more operations are repeated (the logistic
function of a normalised value, for the gradient of a swish), where what the kernels compute takes
less time than what they move.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from compiler.analysis.code_costs import WindowCosts
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
from tpu_sim.isa.geometry import LANES, SUBLANES

MAX_RECOMPUTED_OPS = 16
"""VALU operations an element, as `MAX_VIRTUAL_OPS` of `fusion_nodes`, that a second kernel repeats."""
MIN_BYTES_BEFORE_DOT = 64 << 20  # below, a dot's operand is better stored than recomputed
WAITING_SHARE = 0.5
"""Of VMEM: what is made between a value and its reader, and the value, wait there up to this part (assumed);
windows take the rest."""


@dataclass
class _Recipe:
    """How to recompute a result: the instructions to repeat and the stored values they read."""

    repeated: list[HloInstruction] = field(default_factory=list)
    stored: dict[HloInstruction, None] = field(default_factory=dict)
    op_count: int = 0
    is_cheap: bool = True  # no transcendental function among the repeated


class OutputPruner:
    """Finds and applies recipes; `recomputed` are the instructions readers now repeat, `repeated_in` those
    that a group repeats although they are stored for others."""

    def __init__(
        self, graph: GroupGraph, nodes: dict[HloInstruction, FusionNode], legality: Legality
    ) -> None:
        self.graph = graph
        self.nodes = nodes
        self.legality = legality
        self.recomputed: set[HloInstruction] = set()
        self.repeated_in: dict[int, set[HloInstruction]] = {}
        self._made_before: dict[HloInstruction, int] = {}

    def prune(self, groups: list[Group]) -> int:
        """Prune all groups; return how many results were dropped."""
        dropped = 0
        self._made_before = self._bytes_made(groups)
        for group in groups:
            outputs = self.legality.outputs(group)
            is_whole = group.kind is FusionKind.LOOP and not group.has_row_reduction
            if group.kind in (FusionKind.CUSTOM, FusionKind.SCALAR) or len(outputs) < 2 - is_whole:
                continue
            position = {n: i for i, n in enumerate(group.nodes)}
            for instr in sorted(outputs, key=lambda n: -position[n]):
                dropped += self._try_drop(group, instr)
        return dropped

    def _bytes_made(self, groups: list[Group]) -> dict[HloInstruction, int]:
        """How many bytes of results are made before each instruction, in the order of the program."""
        results = {n for group in groups for n in self.legality.outputs(group)}
        found, total = {}, 0
        for instr in self.nodes:
            found[instr] = total
            if instr in results and leaf_is_array(instr):
                total += instr.array.byte_count
        return found

    def _try_drop(self, group: Group, instr: HloInstruction) -> bool:
        is_row = self._is_row(group, instr)
        if instr in self.legality.hard or not (is_row or instr.array.dims == group.box != ()):
            return False
        readers = [r for r in self.legality.readers[instr] if r not in group.nodes]
        results = {*self.legality.outputs(group)}
        for stored in (results, set[HloInstruction]()):
            recipe = self._recipe(group, instr, stored)
            if recipe is None or not self._is_worthwhile(group, instr, recipe, is_row=is_row):
                continue
            if all(self._can_recompute(r, instr, recipe) for r in readers):
                for reader in readers:
                    self._redirect(reader, instr, recipe)
                    twice = results.intersection(recipe.repeated) - {instr}
                    self.repeated_in.setdefault(self._group(reader).index, set()).update(twice)
                self.recomputed.update(recipe.repeated)
                return True
        return False

    def _recipe(
        self, group: Group, instr: HloInstruction, outputs: set[HloInstruction]
    ) -> _Recipe | None:
        """From those results of the group, which are stored, and from what the group reads."""
        recipe = _Recipe()
        pending, seen = [instr], {instr}
        while pending:
            current = pending.pop()
            is_stop = current is not instr and (
                current in outputs or current not in group.nodes or current in group.reads
            )
            node = self.nodes[current]
            if node.role is Role.VIRTUAL or self._is_dropped(current):
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

    def _is_dropped(self, instr: HloInstruction) -> bool:
        """Whether who reads the value computes it anew, as no one stores it."""
        if instr not in self.recomputed:
            return False
        group = self.graph.find(instr)
        return group is not None and instr not in self.legality.outputs(group)

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
        if is_turned_image(instr, self.nodes):
            return False
        is_little = recipe.op_count <= MAX_RECOMPUTED_OPS
        if is_row:  # where narrow, as many rows as fill its registers would be a step
            stored = {*self.legality.outputs(group), *group.reads} - {instr}
            return is_little and instr.array.dtype.bits < 32 and stored.issuperset(recipe.stored)
        if any(not leaf_is_array(s) for s in recipe.stored):
            return False
        size = instr.array.byte_count
        big = [s for s in recipe.stored if 4 * s.array.byte_count > size]
        if is_little and len(big) == 1 and big[0].array.byte_count <= size:
            return True
        return self._saves_time(group, instr, recipe)

    def _saves_time(self, group: Group, instr: HloInstruction, recipe: _Recipe) -> bool:
        """Whether all kernels take less time together where the readers of a large array compute it anew:
        each takes as long as its product and its operations or as what it moves, whichever is more."""
        outputs = self.legality.outputs(group)
        arrays = {*group.reads, *outputs}
        before = self._time(group, instr, arrays)
        is_gone = group.kind is FusionKind.LOOP and len(outputs) == 1
        after = 0.0 if is_gone else self._time(group, instr, arrays - {instr})
        outside = [r for r in self.legality.readers[instr] if r not in group.nodes]
        if any(self.graph.find(r) is None or self._waits(instr, r) for r in outside):
            return False
        for reader in {self._group(r): None for r in outside}:
            arrays = {*reader.reads, *self.legality.outputs(reader)}
            before += self._time(reader, instr, arrays)
            arrays = (arrays | recipe.stored.keys()) - {instr}
            after += self._time(reader, instr, arrays, recipe.op_count)
        return after < before

    def _waits(self, instr: HloInstruction, reader: HloInstruction) -> bool:
        """Whether a value can stay in VMEM until it is read, beside all that other kernels make between."""
        made = self._made_before[reader] - self._made_before[instr]
        made -= sum(
            other.array.byte_count
            for other in self._group(instr).results
            if leaf_is_array(other)
            and self._made_before[instr] <= self._made_before[other] < self._made_before[reader]
        )
        return instr.array.byte_count + made <= WAITING_SHARE * self.legality.chip.vmem_bytes

    def _time(
        self, group: Group, instr: HloInstruction, arrays: set[HloInstruction], more: int = 0
    ) -> float:
        """Cycles of a group that moves these arrays, and computes so many operations more for each register
        of `instr`."""
        chip = self.legality.chip
        moved = sum(a.array.byte_count for a in arrays if leaf_is_array(a))
        registers = instr.array.element_count / (SUBLANES * LANES)
        work = (group.repeat_count + more) * registers / WindowCosts.of(chip).operations
        if group.dot is not None:
            *_, depth = group.dot.operands[0].array.dims
            flops = 2 * depth * group.dot.array.element_count
            work += flops * chip.clock_hz / chip.peak_flops
        return max(work, moved / chip.hbm_bytes_per_cycle)

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

    def _group(self, reader: HloInstruction) -> Group:
        group = self.graph.find(reader)
        assert group is not None
        return group

    def _feeds_dot(self, dot: HloInstruction, instr: HloInstruction) -> bool:
        return instr in self.nodes[dot].leaves

    def _redirect(self, reader: HloInstruction, instr: HloInstruction, recipe: _Recipe) -> None:
        """Let `reader` read the recipe's stored values instead of `instr`."""
        group = self._group(reader)
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
