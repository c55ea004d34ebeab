"""What a stage reads, about how much work it is, and which packing it needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from compiler.backend.vector.arrays import VmemArray
from compiler.backend.vector.ops import value_class
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait


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


_WEIGHTS: dict[str, int] = {
    "convert": 2,
    "concatenate": 4,
    "cosine": 120,
    "divide": 7,
    "dynamic-update-slice": 6,
    "erf": 25,
    "exponential": 9,
    "exponential-minus-one": 18,
    "log": 3,
    "log-plus-one": 12,
    "logistic": 12,
    "pad": 4,
    "power": 85,
    "remainder": 180,
    "sine": 120,
    "tan": 140,
    "tanh": 2,
}


def operation_count(
    nodes: Sequence[HloInstruction], bindings: Mapping[HloInstruction, VmemArray]
) -> int:
    """An estimate of the vector operations for one vreg of each of `nodes`.

    It takes every node for read at one index only; `probe` counts what is really emitted.
    """
    total = len(nodes)
    for node in reachable(nodes, bindings.keys()):
        info = OPCODES.get(node.opcode)
        if node in bindings:
            total += 2
        elif node.opcode in _WEIGHTS:
            total += _WEIGHTS[node.opcode]
        elif info is not None and info.has(Trait.ELEMENTWISE):
            total += 1
    return total


def stage_packing(
    nodes: Sequence[HloInstruction],
    targets: Sequence[VmemArray],
    bindings: Mapping[HloInstruction, VmemArray],
) -> int:
    """The largest packing among results and operands of about the results' size or more."""
    packing = max((target.packing for target in targets), default=1)
    size = max(node.array.element_count for node in nodes)
    for leaf in reachable(nodes, bindings.keys()):
        array = bindings.get(leaf)
        if array is None or array.shape.rank == 0:
            continue
        is_large = 2 * leaf.array.element_count >= size and value_class(leaf.array.dtype) != "m"
        if is_large:
            packing = max(packing, array.packing)
    return packing
