"""Reduces of one kernel over the same elements, in one pass.

    sums of d and of d * x               d is computed once for each tile, and both sums take it in
    a depthwise kernel's gradient        a sum for each tap: registers of both sides are loaded and widened
                                         once, for neighbouring taps meet neighbouring tiles of the image

A stage of its own for each of them would load and compute again what they share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile

from compiler.analysis.indexing_boxes import Box
from compiler.analysis.row_chain import leaves_behind
from compiler.backend.vector.reduce_plan import ReducedBox
from compiler.backend.vector.reduce_stage import tile_operations
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.hlo.ir import HloInstruction
from compiler.kernels.plan import ReduceStage, Stage

_SHARED = 0.95
"""Of the operations of two reduces by themselves, those of both in one pass at most."""
_MOST_OPERATIONS = 800
"""Of a tile of all reduces: a body of more holds more values than there are registers."""
_MOST = 24
"""Running states: each takes a register, and what the tiles hold takes as many again."""


def reduced_together(
    emitter: VectorEmitter,
    stage: ReduceStage,
    later: Sequence[Stage],
    box_of: Callable[[ReduceStage], Box],
    part_of: Callable[[ReduceStage], ReducedBox | None],
) -> list[ReduceStage]:
    """A reduce, and those right after it that had better be done in the same pass.

    `box_of` is the box of a reduce's results, `part_of` what a grid step covers of what is reduced.
    """
    box, part = box_of(stage), part_of(stage)
    together = [stage]
    first = total = 0
    for other in takewhile(lambda s: isinstance(s, ReduceStage), later):
        assert isinstance(other, ReduceStage)
        is_alike = _is_alike(stage, other) and box_of(other) == box and part_of(other) == part
        if not is_alike or _reads_any(other, together):
            break
        first = first or tile_operations(emitter, [stage.node], box, part)
        total = total or first
        alone = tile_operations(emitter, [other.node], box, part)
        more = tile_operations(emitter, [stage.node, other.node], box, part) - first
        if first + more > _SHARED * (first + alone):
            break
        together.append(other)
        total += more
    states = sum(len(one.results) for one in together)
    passes = max(-(-states // _MOST), -(-total // _MOST_OPERATIONS))
    return together[: -(-len(together) // passes)] if passes else together


def _is_alike(a: ReduceStage, b: ReduceStage) -> bool:
    """Whether both go over elements of the same dimensions, and keep the same."""
    first, second = a.node.operands[0].array.dims, b.node.operands[0].array.dims
    return (first, a.node.dimensions, a.is_cut) == (second, b.node.dimensions, b.is_cut)


def _reads_any(stage: ReduceStage, others: Sequence[ReduceStage]) -> bool:
    made = {node for other in others for node in (other.node, *other.results)}
    operands: list[HloInstruction] = list(stage.node.operands)
    return bool(leaves_behind(operands, made))
