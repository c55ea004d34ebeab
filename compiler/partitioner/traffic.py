"""The collectives of a module, as somebody who counts bytes wants to know them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.replica_groups import DeviceCounts, device_counts, device_groups
from compiler.hlo.shape import leaves


@dataclass(frozen=True)
class CollectiveTraffic:
    """One collective: its bytes on a device before and after, and how many devices a group has."""

    kind: str
    operand_bytes: int
    result_bytes: int
    group: int

    def to_json(self) -> dict[str, object]:
        """The JSON object of it."""
        return asdict(self)


def collectives_of(module: HloModule) -> list[CollectiveTraffic]:
    """The collectives of a module whose shapes are a device's own; what loops repeat counts once."""
    counts = device_counts(module)
    found = [
        _traffic(instr, counts)
        for computation in control_computations(module)
        for instr in computation
    ]
    return [traffic for traffic in found if traffic is not None]


def _traffic(instr: HloInstruction, counts: DeviceCounts) -> CollectiveTraffic | None:
    if instr.opcode == "async-start":
        return _traffic(instr.called_computations()[0].root_instruction, counts)
    kind = instr.opcode.removesuffix("-start")
    has_groups = "replica_groups" in instr.attrs
    if not has_groups and kind not in ("collective-permute", "send"):
        return None
    operands = instr.operands[:1] if kind in ("send", "ragged-all-to-all") else instr.operands
    given = sum(_bytes(operand) for operand in operands)
    made = given if instr.opcode.endswith("-start") or kind == "send" else _bytes(instr)
    group = 2
    if has_groups:
        group = max(map(len, device_groups(instr, counts)), default=1)
    if instr.opcode == "all-gather-start":
        made = given * group
    return CollectiveTraffic(kind, given, made, group)


def _bytes(instr: HloInstruction) -> int:
    return sum(leaf.byte_count for leaf in leaves(instr.shape))
