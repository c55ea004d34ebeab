"""Groups of instructions that become fusions, and the graph between them.

Merging two groups must not close a cycle: no path may leave one and enter the other through a
third. Every group keeps the set of groups it depends on as a bit set, so the question is a
few AND operations; a merge hands new ancestors down to its descendants only where they are new.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from compiler.hlo.ir import HloInstruction

Dims = tuple[int, ...]


class FusionKind(enum.Enum):
    """What a fusion will be; the value is XLA's name of the fusion kind."""

    LOOP = "kLoop"
    OUTPUT = "kOutput"
    INPUT = "kInput"
    CUSTOM = "kCustom"
    SCALAR = "kScalar"

    @property
    def fusion_kind(self) -> str:
        """The `kind=` attribute (scalar fusions are loop fusions)."""
        return "kLoop" if self is FusionKind.SCALAR else self.value


@dataclass(eq=False)
class Group:
    """Instructions that will be one fusion.

    `box` is the index space of its results; an `aligned` instruction has those dimensions, or
    all but the last (one value per row). Others are upstream and read through index maps.

    What a merge is asked about is kept with the group, so that it costs what lies at the group's
    edges, however many instructions are inside: `results` holds all that somebody outside reads (and
    maybe more), `reduces` the reductions, `starts` and `inits` the values at which slices and
    reductions start.
    """

    index: int
    kind: FusionKind
    box: Dims
    nodes: dict[HloInstruction, None] = field(default_factory=dict)
    aligned: set[HloInstruction] = field(default_factory=set)
    reads: set[HloInstruction] = field(default_factory=set)
    has_row_reduction: bool = False
    reduced: Dims = ()  # of an INPUT group
    dot: HloInstruction | None = None
    op_count: int = 0
    repeat_count: int = 0  # operations per element where it is all computed anew
    results: dict[HloInstruction, None] = field(default_factory=dict)
    reduces: list[HloInstruction] = field(default_factory=list)
    starts: set[HloInstruction] = field(default_factory=set)
    inits: set[HloInstruction] = field(default_factory=set)
    bits: int = 0
    ancestors: int = 0
    predecessors: set[int] = field(default_factory=set)
    successors: set[int] = field(default_factory=set)

    @property
    def row_box(self) -> Dims:
        """Dimensions of a value per row."""
        return self.box[:-1]


class GroupGraph:
    """All groups of a computation. Group numbers stay valid after a merge (`find`)."""

    def __init__(self) -> None:
        self._parent: list[int] = []
        self._groups: list[Group] = []
        self.group_of: dict[HloInstruction, int] = {}
        self._barriers: dict[HloInstruction, Group] = {}

    def new_group(self, kind: FusionKind, box: Dims, node: HloInstruction) -> Group:
        """Open a group with one instruction."""
        group = Group(len(self._groups), kind, box, {node: None}, {node})
        group.results[node] = None
        group.bits = 1 << group.index
        self._parent.append(group.index)
        self._groups.append(group)
        self.group_of[node] = group.index
        return group

    def add_barrier(self, node: HloInstruction, before: list[HloInstruction]) -> None:
        """Record an instruction that is never fused (a loop, say) and what it depends on.

        It lies between its producers and its users, so no fusion may hold both.
        """
        producers = [g for g in map(self.source, before) if g is not None]
        if not producers:
            return
        barrier = Group(len(self._groups), FusionKind.CUSTOM, ())
        barrier.bits = 1 << barrier.index
        self._parent.append(barrier.index)
        self._groups.append(barrier)
        self._barriers[node] = barrier
        for producer in producers:
            self.connect(producer, barrier)

    def source(self, node: HloInstruction) -> Group | None:
        """The group or barrier a value comes from, or None for one that is there from the start."""
        return self.find(node) or self._barriers.get(node)

    def find(self, node: HloInstruction) -> Group | None:
        """The group an instruction belongs to, or None."""
        number = self.group_of.get(node)
        return None if number is None else self._groups[self._root(number)]

    def groups(self) -> list[Group]:
        """The groups that were not merged into another."""
        return [g for g in self._groups if self._parent[g.index] == g.index and g.nodes]

    def predecessors(self, group: Group) -> list[Group]:
        """The groups this one reads from."""
        roots = group.predecessors = self._roots(group.predecessors, group)
        return [self._groups[r] for r in sorted(roots)]

    def _roots(self, numbers: set[int], group: Group) -> set[int]:
        """The present groups of those numbers, without `group` itself."""
        roots = {self._root(number) for number in numbers}
        roots.discard(group.index)
        return roots

    def connect(self, producer: Group, consumer: Group) -> None:
        """Record that `consumer` reads a value of `producer`."""
        if producer is consumer:
            return
        consumer.predecessors.add(producer.index)
        producer.successors.add(consumer.index)
        self._add_ancestors(consumer, producer.ancestors | producer.bits)

    def would_cycle(self, a: Group, b: Group) -> bool:
        """Whether a third group lies on a path between the two."""
        return self._passes_through_third(a, b) or self._passes_through_third(b, a)

    def _passes_through_third(self, source: Group, target: Group) -> bool:
        if not target.ancestors & source.bits:
            return False
        return any(p is not source and p.ancestors & source.bits for p in self.predecessors(target))

    def merge(self, kept: Group, gone: Group) -> None:
        """Put the instructions of `gone` into `kept`; the caller knows it to be legal."""
        self._parent[gone.index] = kept.index
        kept.nodes.update(gone.nodes)
        kept.aligned |= gone.aligned
        kept.reads = {leaf for leaf in kept.reads | gone.reads if leaf not in kept.nodes}
        kept.results.update(gone.results)
        kept.reduces += gone.reduces
        kept.starts |= gone.starts
        kept.inits |= gone.inits
        kept.has_row_reduction |= gone.has_row_reduction
        kept.dot = kept.dot or gone.dot
        kept.op_count += gone.op_count
        kept.repeat_count += gone.repeat_count
        kept.bits |= gone.bits
        kept.predecessors |= gone.predecessors
        kept.successors |= gone.successors
        both = (kept.ancestors | gone.ancestors) & ~kept.bits
        kept.ancestors = both
        kept.successors = self._roots(kept.successors, kept)
        for successor in kept.successors:
            self._add_ancestors(self._groups[successor], both | kept.bits)

    def _add_ancestors(self, group: Group, ancestors: int) -> None:
        pending = [(group, ancestors)]
        while pending:
            current, added = pending.pop()
            new = (current.ancestors | added) & ~current.bits
            if new == current.ancestors:
                continue
            current.ancestors = new
            current.successors = self._roots(current.successors, current)
            for number in current.successors:
                pending.append((self._groups[number], new | current.bits))

    def _root(self, number: int) -> int:
        while self._parent[number] != number:
            self._parent[number] = self._parent[self._parent[number]]
            number = self._parent[number]
        return number
