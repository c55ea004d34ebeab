"""What a turn of a loop computes on elements, how much of it waits for no turn before, and how long its test
is: for advice."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.kernel_work import operations
from compiler.analysis.loop_invariants import invariant_elements, is_invariant
from compiler.analysis.trip_count import is_counter
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.origins import inside
from compiler.hlo.shape import ArrayShape

_SAME_ELEMENTS = with_trait(Trait.FORWARDS) | {"copy", "reshape"}


@dataclass(frozen=True)
class LookUp:
    """A part of an array that no turn changes, cut out by `cut` where data say: `array` is the whole."""

    cut: HloInstruction
    array: HloInstruction


@dataclass(frozen=True)
class TurnWork:
    """Operations on elements of a turn; `free` are those that all turns could do at once."""

    total: int
    free: int


@dataclass(frozen=True)
class TurnChains:
    """Operations that wait for each other, one after another: of the test of a loop's end, and of a turn with
    it."""

    test: int
    turn: int


def turn_chains(loop: HloInstruction) -> TurnChains:
    """The longest chains of a ``while``; none of a test where a turn has loops of its own: they take most."""
    test = _longest_chain(loop.condition)
    is_nested = any(node.opcode == "while" for node in (*loop.body, *inside(loop)))
    return TurnChains(0 if is_nested else test, test + _longest_chain(loop.body))


def _longest_chain(computation: HloComputation) -> int:
    """Operations of the longest chain, in fusions and branches too; what only moves elements is none."""
    depths: dict[HloInstruction, int] = {}
    for node in computation:
        called = () if _computes(node) else node.called_computations()
        own = max(map(_longest_chain, called), default=int(_computes(node)))
        depths[node] = max((depths[o] for o in node.operands), default=0) + own
    return max(depths.values(), default=0)


def _computes(node: HloInstruction) -> bool:
    return OPCODES[node.opcode].has(Trait.CONTRACTION) or operations(node) > 0


def turn_work(loop: HloInstruction) -> TurnWork:
    """The work of a turn of a ``while``."""
    body = loop.body
    bound = {node for node in body if _waits(body, node)}
    counts = list(_work(body, bound))
    return TurnWork(sum(n for n, _ in counts), sum(n for n, is_bound in counts if not is_bound))


def _work(computation: HloComputation, bound: set[HloInstruction]) -> Iterator[tuple[int, bool]]:
    """The operations of each instruction, in fusions too, and whether they wait for another turn; `bound` are
    those known to."""
    for node in computation:
        if not bound.isdisjoint(node.operands):
            bound.add(node)
        if node.opcode == "fusion":
            parameters = zip(node.calls.parameters, node.operands, strict=True)
            yield from _work(node.calls, {p for p, operand in parameters if operand in bound})
        else:
            yield sum(map(operations, (node, *inside(node)))), node in bound


def _waits(body: HloComputation, node: HloInstruction) -> bool:
    """Whether a turn reads there what the one before made: not what all share, nor the number of the turn."""
    if node.opcode != "get-tuple-element" or node.operands[0] is not body.parameters[0]:
        return False
    return not is_invariant(body, node.index) and not is_counter(body, node.index)


def look_ups(loop: HloInstruction) -> Iterator[LookUp]:
    """What turns of a ``while`` look up: places that depend on elements of arrays, or on what the turn before
    made, not on the turn's number alone."""
    reads = invariant_elements(loop.body)
    tables = {read: read for read in reads if isinstance(read.shape, ArrayShape)}
    yield from _look_ups(loop.body, tables, {node for node in loop.body if _waits(loop.body, node)})


def _look_ups(
    computation: HloComputation,
    tables: dict[HloInstruction, HloInstruction],
    data: set[HloInstruction],
) -> Iterator[LookUp]:
    """In a computation of which some values are `tables`, or `data` that steer."""
    for node in computation:
        if node.opcode == "fusion":
            pairs = list(zip(node.calls.parameters, node.operands, strict=True))
            inner = {p: tables[operand] for p, operand in pairs if operand in tables}
            yield from _look_ups(node.calls, inner, {p for p, operand in pairs if operand in data})
        is_cut = node.opcode == "dynamic-slice" and node.operands[0] in tables
        if is_cut and not data.isdisjoint(node.operands[1:]):
            yield LookUp(node, tables[node.operands[0]])
        if node.opcode in _SAME_ELEMENTS and node.operands and node.operands[0] in tables:
            tables[node] = tables[node.operands[0]]
        if any(o in data or (o in tables and o.array.rank) for o in node.operands):
            data.add(node)
