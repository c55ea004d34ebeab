"""Where a long fusion is thinnest: the cut near its middle that stores the fewest bytes.

A chain that carries two values from link to link, as a walk over the taps of a window does with
the best element and its place, is not cut by storing one of them: the other would be computed
again from the start. So all that is computed before some node and read behind it is stored.
"""

from __future__ import annotations

from collections import defaultdict

from compiler.analysis.tiled_layout import byte_size
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.fusion_parts import FusionPart

_EDGE = 4
"""The first and the last of so many equal stretches of nodes hold no cut."""


def cut_at_waist(part: FusionPart) -> tuple[FusionPart, FusionPart] | None:
    """The two parts of the thinnest cut; None where none stores arrays and leaves something to do.

    What depends on no input (positions, masks of them) is computed on both sides.
    """
    worked = _worked_out(part)
    if len(worked) < _EDGE:
        return None
    stored = _thinnest(worked, frozenset(part.outputs))
    return part.cut_at(stored) if stored else None


def _worked_out(part: FusionPart) -> list[HloInstruction]:
    """The nodes that depend on some array that the part reads, operands before users."""
    found: dict[HloInstruction, None] = {n: None for n in part.inputs if n.array.rank > 0}
    for node in part.nodes:
        if any(operand in found for operand in node.operands):
            found[node] = None
    return [n for n in found if n not in part.inputs]


def _thinnest(
    nodes: list[HloInstruction], results: frozenset[HloInstruction]
) -> tuple[HloInstruction, ...]:
    """What is stored by the cut of fewest bytes that is not near an end."""
    place = {node: number for number, node in enumerate(nodes)}
    ends: dict[int, list[HloInstruction]] = defaultdict(list)
    for number, node in enumerate(nodes):
        last = max((place[u] for u in node.users if u in place), default=number)
        ends[len(nodes) if node in results else last].append(node)
    live: dict[HloInstruction, int] = {}
    best: tuple[int, tuple[HloInstruction, ...]] | None = None
    size = others = 0  # bytes of what is live, and how much of it no kernel can store
    edge = len(nodes) // _EDGE
    for number, node in enumerate(nodes):
        live[node] = byte_size(node.array) if _is_array(node) else 0
        size, others = size + live[node], others + (not _is_array(node))
        for dead in ends[number]:
            size, others = size - live.pop(dead), others - (not _is_array(dead))
        is_near_middle = edge <= number < len(nodes) - edge
        if is_near_middle and not others and (best is None or size < best[0]):
            best = size, tuple(live)
    return best[1] if best else ()


def _is_array(node: HloInstruction) -> bool:
    return isinstance(node.shape, ArrayShape) and node.array.rank > 0
