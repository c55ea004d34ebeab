"""What a kernel computes: a fusion's parameters, roots, and the nodes that stages leave in VMEM.

Reduces and the dot are *materialised*: a stage computes them over a box into scratch memory, and
later stages read that. So are dear elementwise nodes that several stages read (a softmax's
exponential, a depthwise convolution that is normalised). Everything else is recomputed from leaves
wherever it is needed.

Last results that are parameters as they are, from HBM to VMEM, are *carried*: the kernel computes
nothing of them, transfers bring them in while it does its own work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compiler.analysis.lane_costs import LONG, STAGED, lane_ops
from compiler.analysis.row_chain import RowChain, row_chain
from compiler.analysis.tiled_layout import memory_space
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any, with_trait
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.program import HBM, VMEM

MATERIALISED_OPCODES = with_trait(Trait.STAGE)
_FREE = with_any(Trait.GIVEN | Trait.INDEX_MAP | Trait.SYMBOLIC | Trait.FORWARDS | Trait.STAGE)
_MOST_COUNTED = 1000
"""Operations: what is shared counts for each of its readers."""


@dataclass(frozen=True)
class FusionBody:
    """The nodes of a fusion by role.

    `roots`: one node per result array but the `carried` ones, which are parameters and come last.
    `materialised`: reduces and the dot, operands before users; a variadic reduce stands once, its
    results are read by get-tuple-element.
    """

    computation: HloComputation
    parameters: tuple[HloInstruction, ...]
    roots: tuple[HloInstruction, ...]
    materialised: tuple[HloInstruction, ...]
    carried: tuple[HloInstruction, ...] = ()

    @cached_property
    def leaves(self) -> frozenset[HloInstruction]:
        """What later stages read from VMEM: materialised nodes, a variadic reduce by its parts."""
        found: set[HloInstruction] = set()
        for node in self.materialised:
            found.update([node] if isinstance(node.shape, ArrayShape) else node.users)
        return frozenset(found)

    @cached_property
    def dot(self) -> HloInstruction | None:
        """The fusion's dot, if it has one."""
        return next((n for n in self.materialised if n.opcode == "dot"), None)

    @cached_property
    def chain(self) -> RowChain | None:
        """What one pass over rows computes in registers, if there is such a thing."""
        return row_chain(self.roots, self.materialised, self.leaves)

    @cached_property
    def reduces(self) -> tuple[HloInstruction, ...]:
        """The reduces, operands before users."""
        return tuple(n for n in self.materialised if n.opcode == "reduce")

    @cached_property
    def operations(self) -> int:
        """VALU operations per element, EUP ones weighted."""
        return 1 + sum(max(lane_ops(n), 1) for n in self.computation if n.opcode not in _FREE)


def fusion_body(fusion: HloInstruction) -> FusionBody:
    """Sort the nodes of a fusion's computation by role."""
    computation = fusion.calls
    root = computation.root_instruction
    roots = tuple(computation.results)
    if root.opcode == "reduce" and not isinstance(root.shape, ArrayShape):
        raise UnsupportedError(
            f"%{root.name}: a variadic reduce as root; want its results in a tuple", root.span
        )
    first = len(roots) - carried_count(fusion)
    roots, carried = roots[:first], roots[first:]
    live = _live(roots)
    dear = _dear_nodes(computation, live, roots)
    materialised = tuple(
        n for n in computation if n in live and (n.opcode in MATERIALISED_OPCODES or n in dear)
    )
    dots = [n for n in materialised if n.opcode == "dot"]
    if len(dots) > 1:
        raise UnsupportedError(f"%{fusion.name}: {len(dots)} dots in one fusion", fusion.span)
    return FusionBody(computation, tuple(computation.parameters), roots, materialised, carried)


def is_carried(instr: HloInstruction, leaf: int) -> bool:
    """Whether a result of an instruction is an array that a kernel carries."""
    if instr.opcode != "fusion" or not isinstance(instr.shape, TupleShape):
        return False
    return leaf >= len(leaves(instr.shape)) - carried_count(instr)


def carried_count(fusion: HloInstruction) -> int:
    """How many last results of a fusion, all but one at most, are arrays that it brings from HBM to VMEM."""
    root = fusion.calls.root_instruction
    if root.opcode != "tuple" or root.operands[-1].opcode != "parameter":
        return 0
    first = len(root.operands)
    results = leaves(fusion.shape)
    while first > 1 and root.operands[first - 1].opcode == "parameter":
        operand = fusion.operands[root.operands[first - 1].parameter_number]
        if memory_space(results[first - 1]) != VMEM or memory_space(operand.array) != HBM:
            break
        first -= 1
    return len(root.operands) - first


def _live(roots: Iterable[HloInstruction]) -> set[HloInstruction]:
    found: set[HloInstruction] = set()
    pending = list(roots)
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.operands)
    return found


def _dear_nodes(
    computation: HloComputation, live: set[HloInstruction], roots: Iterable[HloInstruction]
) -> set[HloInstruction]:
    """Transcendental nodes with dimensions that more than one stage computes with.

    A stage is a reduce or dot, or the one that makes the roots.
    """
    order = [n for n in computation if n in live]
    costs = _costs(order)
    stages: dict[HloInstruction, set[HloInstruction | None]] = {n: set() for n in order}
    for root in roots:
        stages[root].add(None)
    dear: set[HloInstruction] = set()
    for node in reversed(order):
        if node.opcode in MATERIALISED_OPCODES:
            reading: set[HloInstruction | None] = {node}
        else:
            reading = stages[node]
            is_read_twice = len(reading) > 1 and _is_dear(node, costs[node])
            if is_read_twice or (node not in roots and _is_turned_and_regrouped(node)):
                dear.add(node)
                reading = {node}
        for operand in node.operands:
            stages[operand] |= reading
    return dear


def _is_turned_and_regrouped(node: HloInstruction) -> bool:
    """Whether sums are taken over other rows of what comes out of transposes than lie together.

    The transpose unit gives back registers of neighbouring rows.
    """
    if node.array.rank < 2 or node.array.dtype.bits != 32 or node.opcode == "parameter":
        return False
    if not any(_sums_other_rows(user) for user in node.users):
        return False
    return any(turns_lanes(n) for n in _cone(node))


def _sums_other_rows(reshape: HloInstruction) -> bool:
    if reshape.opcode != "reshape":
        return False
    before, after = reshape.operands[0].array.dims, reshape.array.dims
    is_same_lane = before[-1:] == after[-1:] and len(after) > 1
    return is_same_lane and any(
        u.opcode == "reduce" and len(after) - 2 in u.dimensions for u in reshape.users
    )


def turns_lanes(node: HloInstruction) -> bool:
    """Whether another dimension comes to lie along the lanes."""
    return node.opcode == "transpose" and node.dimensions[-1] != node.array.rank - 1


def _cone(node: HloInstruction) -> set[HloInstruction]:
    """A node and what it is recomputed from."""
    found: set[HloInstruction] = set()
    pending = [node]
    while pending:
        last = pending.pop()
        if last not in found:
            found.add(last)
            pending.extend(o for o in last.operands if o.opcode not in MATERIALISED_OPCODES)
    return found


def _costs(order: Sequence[HloInstruction]) -> dict[HloInstruction, int]:
    """Operations per vreg to make each node from what stages leave; operands before users."""
    costs: dict[HloInstruction, int] = {}
    for node in order:
        below = 0 if node.opcode in MATERIALISED_OPCODES else sum(costs[o] for o in node.operands)
        is_wide = isinstance(node.shape, ArrayShape) and node.array.rank > 1
        is_counted = is_wide and not OPCODES[node.opcode].has(Trait.SYMBOLIC)
        costs[node] = min(below + lane_ops(node), _MOST_COUNTED) if is_counted else 0
    return costs


def _is_dear(node: HloInstruction, cost: int) -> bool:
    """Whether recomputing the node costs more than storing and loading it."""
    if node.array.rank < 2 or node.array.dtype.bits != 32:
        return False
    is_slow = OPCODES[node.opcode].has(Trait.ELEMENTWISE) and lane_ops(node) >= STAGED
    return is_slow or (OPCODES[node.opcode].has(Trait.ELEMENTWISE) and cost >= LONG)
