"""Row chains: row reductions and all that is computed of them at the same place, in one pass over rows.

A softmax takes a maximum and a sum of each row, and computes with both at every element of it. Where
a stage for each of them would store and load the array in between, a chain computes a block of rows
at a time and keeps it in registers. Its *members* are reductions over the last dimension of arrays of
the same dimensions, dear nodes of these dimensions, and results of them; whatever a member reads of
another lies in the same row (a reduction), or at the same place.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from compiler.analysis.indexing import Var, var, variables
from compiler.analysis.indexing_maps import Index, operand_reads
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import SUBLANES


@dataclass(frozen=True)
class RowChain:
    """`members`: reductions and dear nodes, operands before users. `roots`: the results among it.

    `dims` are those of the elements. `left`: members that something outside of the chain reads;
    `after`: materialised nodes outside of it that are computed from members.
    """

    dims: tuple[int, ...]
    members: tuple[HloInstruction, ...]
    roots: tuple[HloInstruction, ...]
    left: frozenset[HloInstruction]
    after: frozenset[HloInstruction]


def row_chain(
    roots: Sequence[HloInstruction],
    materialised: Sequence[HloInstruction],
    leaves: frozenset[HloInstruction],
) -> RowChain | None:
    """The chain among a kernel's materialised nodes and roots; None where there is nothing to keep.

    `leaves` are the materialised nodes as they are read.
    """
    first = next((n for n in materialised if _is_row_reduce(n, n.operands[0].array.dims)), None)
    if first is None:
        return None
    dims = first.operands[0].array.dims
    made = [n for n in materialised if n.opcode == "reduce" and n in roots and n not in leaves]
    members = [n for n in materialised if _is_member(n, dims) and n not in made]
    results = list(dict.fromkeys(r for r in roots if r.array.dims == dims))
    search = _Search(dims, materialised, leaves, members, results)
    while search.drops_one():
        pass
    members, results = search.members, search.roots
    if len(members) + bool(results) < 2 or not any(n.opcode == "reduce" for n in members):
        return None
    outside = [o for n in materialised if n not in members for o in n.operands]
    outside += [r for r in roots if r not in results]
    left = leaves_behind(outside, leaves) & set(members)
    return RowChain(dims, tuple(members), tuple(results), frozenset(left), search.after())


def _is_row_reduce(node: HloInstruction, dims: tuple[int, ...]) -> bool:
    """Whether a node reduces the last dimension of one array of `dims`, and no other."""
    if node.opcode != "reduce" or not isinstance(node.shape, ArrayShape):
        return False
    rank = len(dims)
    return rank >= 2 and node.operands[0].array.dims == dims and node.dimensions == (rank - 1,)


def _is_member(node: HloInstruction, dims: tuple[int, ...]) -> bool:
    if OPCODES[node.opcode].has(Trait.STAGE):
        return _is_row_reduce(node, dims)
    return node.array.dims == dims


@dataclass
class _Search:
    """Members and roots that are still in; whatever cannot be is dropped, one after another."""

    dims: tuple[int, ...]
    materialised: Sequence[HloInstruction]
    leaves: frozenset[HloInstruction]
    members: list[HloInstruction]
    roots: list[HloInstruction]
    index: Index = field(init=False)

    def __post_init__(self) -> None:
        # Also the only row has a variable: code knows the value of a row, not the one at place 0. It
        # computes whole tiles: a row behind the last one is not what a merged dimension goes on with.
        lengths = [*self.dims]
        lengths[-2] = -(-lengths[-2] // self._tile_rows) * self._tile_rows
        self._variables = [Var(f"chain{d}", 0, max(1, n - 1)) for d, n in enumerate(lengths)]
        self.index = tuple([var(v) for v in self._variables])

    @property
    def _tile_rows(self) -> int:
        """Rows of a tile of the narrowest type in the fusion."""
        computation = self.materialised[0].home
        arrays = [n.array for n in computation if isinstance(n.shape, ArrayShape)]
        return SUBLANES * max(array.dtype.packing for array in arrays)

    def drops_one(self) -> bool:
        """Drop the first member or root that reads what it may not; whether there was one."""
        after = self.after()
        for found in (self.members, self.roots):
            for number, node in enumerate(found):
                if not self._is_row_by_row(node, after):
                    del found[number]
                    return True
        return False

    def after(self) -> frozenset[HloInstruction]:
        """The materialised nodes outside of the chain that are computed from its members."""
        known = set(self.members)
        for node in self.materialised:
            if node not in known and leaves_behind(node.operands, self.leaves, known) & known:
                known.update([node, *node.users] if node not in self.leaves else [node])
        return frozenset(known - set(self.members))

    def _is_row_by_row(self, node: HloInstruction, after: Collection[HloInstruction]) -> bool:
        """Whether all reads of a member or root lie in its row, or are of what is there before."""
        pending: list[tuple[HloInstruction, Index]]
        if node not in self.members:
            pending = [(node, self.index)]
        elif node.opcode == "reduce":
            pending = [(node.operands[0], self.index), (node.operands[1], ())]
        else:
            pending = operand_reads(node, self.index)
        seen = set(pending)
        while pending:
            current, at = pending.pop()
            if current in self.members:
                if at != (self.index[:-1] if current.opcode == "reduce" else self.index):
                    return False
                continue
            if current in self.leaves or current.opcode == "parameter":
                if current in after or self._is_turned(at):
                    return False
                continue
            try:
                reads = operand_reads(current, at)
            except UnsupportedError:
                return False
            fresh = [read for read in reads if read not in seen]
            seen.update(fresh)
            pending += fresh
        return True

    def _is_turned(self, at: Index) -> bool:
        """Whether an array is read with rows of the chain along its lanes: blocks are transposed then."""
        row, lane = self._variables[-2:]
        return bool(at) and row in variables(at[-1]) and any(lane in variables(e) for e in at[:-1])


def leaves_behind(
    nodes: Sequence[HloInstruction],
    leaves: Collection[HloInstruction],
    more: Collection[HloInstruction] = (),
) -> set[HloInstruction]:
    """The nodes of `leaves` and `more` that nodes are, or are computed from without others of them."""
    found: set[HloInstruction] = set()
    seen: set[HloInstruction] = set()
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node in leaves or node in more:
            found.add(node)
        elif node not in seen:
            seen.add(node)
            pending += node.operands
    return found
