"""What a stage reads, about how much work it is, and which packing it needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.backend.vector.arrays import VmemArray
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.kernels.stage_leaves import leaves_packing, reachable

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
    return max(packing, leaves_packing(nodes, {n: array.shape for n, array in bindings.items()}))
