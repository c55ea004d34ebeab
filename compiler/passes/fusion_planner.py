"""Plans the fusions of one computation: which instructions go into which group.

One walk from operands to users places each instruction in the group of a producer where that
is legal and saves memory traffic, merging groups that meet in it; then producers are pulled
into dots and kInput reductions, and sibling groups that read the same array are merged.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.passes.fusion_decision import (
    MAX_ROW_ELEMENTS,
    FusionDecision,
    Legality,
    leaf_is_array,
)
from compiler.passes.fusion_groups import FusionKind, Group, GroupGraph
from compiler.passes.fusion_nodes import classify, start_leaves
from compiler.passes.fusion_roles import Access, FusionNode, Role, is_variadic_part
from tpu_sim.isa.chips import Chip

SIBLINGS_TRIED = 4
"""Readers of one array that are tried with each: pairs of all of hundreds would take long."""
_SCALAR_TYPES = frozenset({"s32", "u32", "pred", "f32"})


class FusionPlan:
    """The groups of one computation, with the decisions that led to them."""

    def __init__(self, computation: HloComputation, chip: Chip) -> None:
        self.computation = computation
        self.nodes = classify(computation, chip)
        self.readers = _readers(self.nodes)
        starts = start_leaves(self.nodes)
        self.hard = _memory_values(computation, self.nodes).union(*starts.values())
        self.graph = GroupGraph()
        self.legality = Legality(self.graph, self.nodes, self.readers, self.hard, starts, chip)
        self.refusals: Counter[str] = Counter()
        self.remarks: list[str] = []
        self._crowded: list[tuple[HloInstruction, HloInstruction]] = []

    def build(self) -> list[Group]:
        """Place every instruction; return the groups."""
        for instr, node in self.nodes.items():
            if node.role in (Role.REAL, Role.CUSTOM):
                self._place(instr, node)
            elif node.role is Role.FIXED:
                self.graph.add_barrier(instr, _producers(node, self.nodes))
        self._merge_crowded()
        self._pull_prologues()
        self._pull_reduce_producers()
        self._pull_update_producers()
        self._put_sums_beside()
        self._merge_siblings()
        return self.graph.groups()

    def _place(self, instr: HloInstruction, node: FusionNode) -> None:
        group = self._open(instr, node)
        if is_variadic_part(instr):
            self._merge(self._group(instr.operands[0]), group)
            return
        if (
            group.kind is FusionKind.CUSTOM
            or group.kind is FusionKind.INPUT
            or instr.opcode == "dot"
        ):
            return
        if instr.opcode == "reduce":
            self._place_row_reduce(instr, node, group)
        elif group.kind is FusionKind.SCALAR:
            self._merge_scalars(node, group)
        else:
            self._place_elementwise(instr, node, group)

    def _open(self, instr: HloInstruction, node: FusionNode) -> Group:
        """Put the instruction into a group of its own and connect it to what it reads."""
        kind, box = self._kind(instr, node)
        group = self.graph.new_group(kind, box, instr)
        group.op_count, group.repeat_count = node.op_count, node.repeat_count
        self.legality.open(group, instr)
        group.reads = {leaf for leaf in node.leaves if leaf not in group.nodes}
        if instr.opcode == "reduce":
            group.reduced = instr.dimensions
            group.has_row_reduction = kind is FusionKind.LOOP
        if instr.opcode == "dot":
            group.dot = instr
        for leaf in _producers(node, self.nodes):
            producer = self.graph.source(leaf)
            if producer is not None:
                self.graph.connect(producer, group)
        return group

    def _kind(self, instr: HloInstruction, node: FusionNode) -> tuple[FusionKind, tuple[int, ...]]:
        if node.role is Role.CUSTOM:
            return FusionKind.CUSTOM, ()
        if is_variadic_part(instr):
            producer = self._group(instr.operands[0])
            return producer.kind, producer.box
        if instr.opcode == "dot":
            return FusionKind.OUTPUT, instr.array.dims
        if instr.opcode == "reduce":
            box = instr.operands[0].array.dims
            return (FusionKind.LOOP if is_row_reduce(instr) else FusionKind.INPUT), box
        if is_scalar(instr) and all(is_scalar(o) for o in instr.operands):
            return FusionKind.SCALAR, ()
        return FusionKind.LOOP, instr.array.dims

    def _group(self, instr: HloInstruction) -> Group:
        group = self.graph.find(instr)
        assert group is not None, f"%{instr.name} is in no group"
        return group

    def _candidates(self, node: FusionNode) -> list[Group]:
        """The groups an instruction reads from, the most bytes first, dots before all."""
        saved: dict[int, int] = defaultdict(int)
        found: dict[int, Group] = {}
        for leaf in node.leaves:
            group = self.graph.find(leaf)
            if group is None or not leaf_is_array(leaf):
                continue
            saved[group.index] += leaf.array.byte_count
            found[group.index] = group
        order = sorted(found, key=lambda i: (found[i].kind is not FusionKind.OUTPUT, -saved[i], -i))
        return [found[i] for i in order]

    def _place_elementwise(self, instr: HloInstruction, node: FusionNode, group: Group) -> None:
        for producer in self._candidates(node):
            current = self._group(instr)
            producer = self._group(next(iter(producer.nodes)))
            if producer is current:
                continue
            joined = self.legality.can_join(instr, producer)
            if not joined.is_fused:
                self._refuse(joined, producer, instr)
                continue
            is_shifted = not self._is_aligned_join(instr, producer)
            if is_shifted:
                self._merge_shifted(producer, current, instr)
            else:
                self._try_merge(producer, current, instr)

    def _is_aligned_join(self, instr: HloInstruction, producer: Group) -> bool:
        leaves = self.nodes[instr].leaves
        return all(
            p in producer.aligned and how in (Access.SAME, Access.ROW)
            for p, how in leaves.items()
            if p in producer.nodes
        )

    def _merge_shifted(self, producer: Group, current: Group, instr: HloInstruction) -> None:
        decision = self.legality.fits(producer, current)
        if not decision.is_fused:
            self._refuse(decision, producer, instr)
            return
        aligned, box = set(current.aligned), current.box
        again = self.legality.repeats(instr, producer) - 1
        repeated, more = again * producer.op_count, again * producer.repeat_count
        merged = self._merge(producer, current)
        merged.aligned, merged.box = aligned, box
        merged.op_count += repeated
        merged.repeat_count += more

    def _place_row_reduce(self, instr: HloInstruction, node: FusionNode, group: Group) -> None:
        for producer in self._candidates(node):
            current = self._group(instr)
            producer = self._group(next(iter(producer.nodes)))
            if producer is current:
                continue
            leaves = [(p, how) for p, how in node.leaves.items() if p in producer.nodes]
            is_aligned = all(
                p in producer.aligned
                and (
                    (how is Access.SAME and p.array.dims == producer.box == group.box)
                    or (how is Access.ROW and p.array.dims == producer.row_box)
                )
                for p, how in leaves
                if leaf_is_array(p)
            )
            if producer.box != current.box or not is_aligned:
                self.refusals["row reduction of another box"] += 1
                continue
            held = self.legality.can_hold_rows(producer)
            if held.is_fused:
                self._try_merge(producer, current, instr)
            else:
                self._refuse(held, producer, instr)

    def _merge_scalars(self, node: FusionNode, group: Group) -> None:
        for producer in self._candidates(node):
            current = self._group(next(iter(group.nodes)))
            producer = self._group(next(iter(producer.nodes)))
            if producer is current or producer.kind is not FusionKind.SCALAR:
                continue
            if self.legality.fits(producer, current).is_fused:
                self._merge(producer, current)

    def _try_merge(self, producer: Group, consumer: Group, instr: HloInstruction) -> None:
        decision = self.legality.can_merge(producer, consumer)
        if decision.is_fused:
            self._merge(producer, consumer)
        else:
            self._refuse(decision, producer, instr)

    def _merge(self, kept: Group, gone: Group) -> Group:
        """Merge two groups into the one whose kind wins: a dot's, a reduce's, the wider box."""
        if (gone.kind is not kept.kind and kept.kind is FusionKind.LOOP) or (
            kept.kind is gone.kind and len(gone.box) > len(kept.box)
        ):
            kept, gone = gone, kept
        self.graph.merge(kept, gone)
        return kept

    def _refuse(self, decision: FusionDecision, producer: Group, instr: HloInstruction) -> None:
        self.refusals[decision.reason] += 1
        first = next(iter(producer.nodes))
        if decision.is_crowded:
            self._crowded.append((first, instr))
        self.remarks.append(f"%{instr.name} not into %{first.name}: {decision.reason}")

    def _merge_crowded(self) -> None:
        """Merge what had too many results while their readers had no place yet."""
        crowded, self._crowded = self._crowded, []
        for first, instr in crowded:
            producer, group = self._group(first), self._group(instr)
            if producer is not group and self.legality.can_merge(producer, group).is_fused:
                self._merge(producer, group)

    def _pull_prologues(self) -> None:
        for instr, node in self.nodes.items():
            if instr.opcode != "dot":
                continue
            for leaf in node.leaves:
                producer, dot = self.graph.find(leaf), self._group(instr)
                if producer is None or producer is dot:
                    continue
                decision = self.legality.can_be_prologue(producer, dot, leaf)
                if decision.is_fused:
                    self._merge_upstream(dot, producer)
                else:
                    self._refuse(decision, producer, instr)

    def _merge_upstream(self, consumer: Group, producer: Group) -> None:
        """Merge a producer whose values are read through index maps, not as aligned results."""
        aligned = set(consumer.aligned)
        self.graph.merge(consumer, producer)
        consumer.aligned = aligned

    def _pull_reduce_producers(self) -> None:
        for instr, node in reversed(self.nodes.items()):
            group = self.graph.find(instr)
            if instr.opcode != "reduce" or group is None or group.kind is not FusionKind.INPUT:
                continue
            for leaf in node.leaves:
                producer, group = self.graph.find(leaf), self._group(instr)
                if producer is None or producer is group:
                    continue
                decision = self.legality.can_feed_reduce(producer, group, leaf)
                if decision.is_fused:
                    self._merge_upstream(group, producer)
                else:
                    self._refuse(decision, producer, instr)

    def _put_sums_beside(self) -> None:
        """Reductions go where what they reduce is made, though it is stored as well."""
        for instr, node in self.nodes.items():
            group = self.graph.find(instr)
            if instr.opcode != "reduce" or group is None or group.kind is not FusionKind.INPUT:
                continue
            for leaf, how in node.leaves.items():
                producer, group = self.graph.find(leaf), self._group(instr)
                if producer is None or producer is group or how is not Access.SAME:
                    continue
                decision = self.legality.can_sum_beside(producer, group, leaf)
                if decision.is_fused:
                    self._merge_upstream(group, producer)
                else:
                    self._refuse(decision, producer, instr)

    def _pull_update_producers(self) -> None:
        """A dynamic-update-slice takes the elementwise work that makes its update."""
        for instr in self.nodes:
            if instr.opcode != "dynamic-update-slice":
                continue
            leaf = instr.operands[1]
            producer, group = self.graph.find(leaf), self._group(instr)
            if producer is None or producer.has_row_reduction or producer is group:
                continue
            if producer.kind is not FusionKind.LOOP or instr.operands[0] in producer.reads:
                continue
            if self.readers.get(leaf) != [instr] or self.legality.outputs(producer) != [leaf]:
                continue
            if self.legality.fits(producer, group).is_fused:
                self._merge_upstream(group, producer)

    def _merge_siblings(self) -> None:
        """Merge groups over the same box that read the same array from memory."""
        by_leaf: dict[HloInstruction, list[HloInstruction]] = defaultdict(list)
        for instr, node in self.nodes.items():
            if node.role is Role.REAL:
                for leaf, how in node.leaves.items():
                    if how is Access.SAME and leaf_is_array(leaf) and leaf.array.dims:
                        by_leaf[leaf].append(instr)
        for leaf, users in by_leaf.items():
            for position, user in enumerate(users):
                for other in users[position + 1 : position + 1 + SIBLINGS_TRIED]:
                    self._try_sibling(leaf, self._group(user), self._group(other))

    def _try_sibling(self, leaf: HloInstruction, a: Group, b: Group) -> None:
        if a is b or leaf in a.nodes or leaf in b.nodes or a.kind is not b.kind:
            return
        if leaf not in a.reads or leaf not in b.reads or a.box != b.box:
            return
        if a.kind is FusionKind.INPUT:
            is_legal = a.reduced == b.reduced and all(
                decision.is_fused
                for decision in (self.legality.fits(a, b), self.legality.can_hold_sums(a, b))
            )
        elif a.kind is FusionKind.LOOP and leaf.array.dims == a.box:
            is_legal = self.legality.can_merge(a, b).is_fused
        else:
            return
        if is_legal:
            self._merge(a, b)


def is_scalar(instr: HloInstruction) -> bool:
    """Whether the scalar unit can hold the value: rank 0 of s32, u32, pred or f32."""
    return leaf_is_array(instr) and not instr.array.dims and instr.array.dtype.name in _SCALAR_TYPES


def is_row_reduce(instr: HloInstruction) -> bool:
    """Whether a reduce combines whole rows (its operands' last dimension) that fit VMEM."""
    dims = instr.operands[0].array.dims
    return (
        instr.dimensions == (len(dims) - 1,) and 0 < dims[-1] <= MAX_ROW_ELEMENTS and len(dims) >= 2
    )


def _readers(nodes: dict[HloInstruction, FusionNode]) -> dict[HloInstruction, list[HloInstruction]]:
    """For each instruction, the non-virtual ones that read it, directly or through virtuals."""
    readers: dict[HloInstruction, list[HloInstruction]] = defaultdict(list)
    for instr, node in nodes.items():
        if node.role is Role.VIRTUAL:
            continue
        for leaf in _producers(node, nodes):
            readers[leaf].append(instr)
    return readers


def _producers(node: FusionNode, nodes: dict[HloInstruction, FusionNode]) -> list[HloInstruction]:
    """The non-virtual instructions a node depends on."""
    found: dict[HloInstruction, None] = {}
    for leaf in node.leaves:
        inner = nodes[leaf]
        if inner.role is Role.VIRTUAL:
            found.update(dict.fromkeys(_producers(inner, nodes)))
        else:
            found[leaf] = None
    return list(found)


def _memory_values(
    computation: HloComputation, nodes: dict[HloInstruction, FusionNode]
) -> set[HloInstruction]:
    """The values that a fixed instruction or the caller reads, so that they must be stored."""
    found: set[HloInstruction] = {computation.root_instruction}
    for instr, node in nodes.items():
        if node.role is Role.FIXED and not is_variadic_part(instr):
            found.update(instr.operands)
    for instr in [i for i in found if nodes[i].role is Role.VIRTUAL]:
        found.update(_producers(nodes[instr], nodes))
    return found
