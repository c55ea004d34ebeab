"""Sums of many terms, such as the taps of a depthwise convolution, for several tiles side by side.

    tile 0: a0 = x0 * w0; a0 += x1 * w1; ..      tile 1: a1 = x1 * w0; a1 += x2 * w1; ..

One tile after the other, each sum waits for its own additions, and what tiles share, their weights and
what neighbouring terms read of neighbouring tiles, lives until the last tile. Term after term, a body has a
register for each sum, few for what they share, and as many chains of additions as tiles. So it is with
the greatest of many, and whatever else is associative.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from compiler.analysis.indexing_boxes import leaf_indices
from compiler.analysis.indexing_maps import Index
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.row_splits import split_rows
from compiler.backend.vector.tile_loops import TileLoops, TilePoint, TileSpace
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.kernels.stage_leaves import reachable

_LONG = 8
"""Terms from which a sum is gone over so."""
_SUMS = 16
"""Of them side by side: a quarter of a register file, as what neighbours read takes as much again."""
_MOST = 8000
"""Operations of a body, before what its tiles share."""

Sums = Sequence[Sequence[HloInstruction]]
Wanted = tuple[HloInstruction, Index]


def long_sums(emitter: ElementEmitter, nodes: Sequence[HloInstruction]) -> Sums:
    """The additions of each sum of many terms that a stage of `nodes` computes, the first ones first."""
    held = emitter.bindings.keys()
    adds = [n for n in reachable(nodes, held) if _is_associative(n) and n not in held]
    inner = {n.operands[0] for n in adds if n.operands[0].opcode == n.opcode}
    found: list[list[HloInstruction]] = []
    for node in adds:
        if node in inner:
            continue
        spine = [node]
        while (first := spine[-1].operands[0]).opcode == node.opcode and first not in held:
            spine.append(first)
        if len(spine) >= _LONG and not _reads_reduction(node, held):
            found.append(spine[::-1])
    return found


def _is_associative(node: HloInstruction) -> bool:
    return OPCODES[node.opcode].has(Trait.ASSOCIATIVE)


def _reads_reduction(node: HloInstruction, held: Collection[HloInstruction]) -> bool:
    """Whether a sum reads what a chain has reduced before it, and so cannot come first."""
    return any(n.opcode == "reduce" and n not in held for n in reachable([node], held))


def run_side_by_side(
    emitter: ElementEmitter,
    sums: Sums,
    space: TileSpace,
    factors: tuple[int, ...],
    operations: int,
    wanted: Callable[[TilePoint], Iterable[Wanted]],
    body: Callable[[TilePoint], None],
    registers: int = 1,
    body_ops: int = 0,
) -> None:
    """Loops over the tiles of a space, in bodies of several that compute long sums term by term.

    `wanted` is what a tile computes, with its indices, in `registers` for each phase; `operations` are
    those of a tile, of which a body has `body_ops` or more.
    """
    waiting: list[TilePoint] = []

    @contextmanager
    def together() -> Iterator[None]:
        waiting.clear()
        yield
        _add_term_by_term(emitter, sums, [one for point in waiting for one in wanted(point)])
        for point in waiting:
            body(point)

    places, collect = split_rows(space, factors, waiting.append)
    beside = max(1, _SUMS // (space.packing * registers * len(sums)))
    loops = TileLoops(emitter.builder, emitter.sregs, together)
    loops.run(places, operations, collect, max(body_ops, min(beside * operations, _MOST)))


def _add_term_by_term(emitter: ElementEmitter, sums: Sums, wanted: Sequence[Wanted]) -> None:
    """Compute sums at all indices at which the `wanted` nodes at theirs read them, term after term.

    The emitter remembers them for the rest of the block.
    """
    nodes = reachable([node for node, _ in wanted], emitter.bindings.keys())
    reductions = [n for n in nodes if n.opcode == "reduce"]
    for spine in sums:
        places: dict[Index, None] = {}
        for node, index in wanted:
            at = leaf_indices(node, index, {*emitter.bindings, *reductions, spine[-1]})
            places.update(dict.fromkeys(at.get(spine[-1], ())))
        for addition in spine:
            for place in places:
                emitter.emit(addition, place)
