"""What a stage reads, and how many elements of it share a word."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape


def reachable(
    nodes: Sequence[HloInstruction], stop: Collection[HloInstruction]
) -> dict[HloInstruction, None]:
    """Nodes a stage computes or reads, leaves in `stop` included, roots first."""
    seen: dict[HloInstruction, None] = dict.fromkeys(nodes)
    pending = list(nodes)
    while pending:
        node = pending.pop()
        if node in stop and node not in nodes:
            continue
        for operand in node.operands:
            if operand not in seen:
                seen[operand] = None
                pending.append(operand)
    return seen


def leaves_packing(
    nodes: Sequence[HloInstruction], bound: Mapping[HloInstruction, ArrayShape]
) -> int:
    """The largest packing among operands of about the results' size or more; 1 if none is packed.

    `bound` are the arrays that lie in VMEM, by the node they stand for.
    """
    packing = 1
    size = max(node.array.element_count for node in nodes)
    for leaf in reachable(nodes, bound.keys()):
        shape = bound.get(leaf)
        if shape is None or shape.rank == 0 or leaf.array.dtype.kind == "pred":
            continue
        if 2 * leaf.array.element_count >= size:
            packing = max(packing, shape.dtype.packing)
    return packing
