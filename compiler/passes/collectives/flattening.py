"""Replicas of partitions become one row of devices: all later passes know partitions alone.

Device ``r * partitions + p`` runs replica r's partition p. Groups are listed, starts and dones are the
synchronous operation where the start stood, and a channel number, which identifies nothing, is 1.
"""

from __future__ import annotations

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import reachable
from compiler.hlo.dtypes import U32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.replica_groups import DeviceCounts, device_counts, device_groups, device_pairs
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import replace

Instr = HloInstruction

_GLOBAL = frozenset({"all-gather", "all-reduce", "reduce-scatter", "collective-reduce"})
_DONE = ("all-gather-done", "all-reduce-done", "collective-permute-done")


def flatten_replicas(module: HloModule, context: PassContext) -> bool:
    """Make a module of replicas and partitions one of partitions."""
    counts = device_counts(module)
    if counts.devices == 1:
        return False
    expand(module, context, dict.fromkeys(_DONE, _together) | _TRANSFERS)
    for computation in reachable(module):
        for instr in list(computation):
            _flatten(instr, counts)
        for instr in reversed(list(computation)):
            is_begun = instr.opcode.endswith("-start") or f"{instr.opcode}-done" in _TRANSFERS
            if is_begun and not instr.users:
                computation.remove(instr)
        computation.sort()
    module.attrs["num_partitions"], module.attrs["replica_count"] = counts.devices, 1
    return True


def _together(done: Instr) -> Instr | None:
    """The operation that a start began."""
    start = done.operands[0]
    if not start.opcode.endswith("-start"):
        return None
    opcode = start.opcode.removesuffix("-start")
    operands = start.operands
    if opcode == "collective-permute" and len(operands) > 1:
        raise UnsupportedError(
            f"%{start.name}: a permute into a given buffer; let it make its result", start.span
        )
    return Emitter.at(start).instruction(opcode, operands, dict(start.attrs), done.shape)


def _received(done: Instr) -> Instr | None:
    """What a recv waits for is what the send of its channel permutes."""
    recv = done.operands[0]
    channel = recv.attrs.get("channel_id")
    sends = [i for i in recv.home if i.opcode == "send" and i.attrs.get("channel_id") == channel]
    if len(sends) != 1:
        raise UnsupportedError(
            f"%{recv.name}: {len(sends)} sends of channel {channel} in its computation; want one",
            recv.span,
        )
    pairs = _stated_pairs(recv)
    attrs: dict[str, object] = {"source_target_pairs": pairs, "channel_id": channel}
    e = Emitter.at(done)
    moved = e.instruction("collective-permute", sends[0].operands[:1], attrs)
    return e.tuple([moved, recv.operands[0]])


def _stated_pairs(recv: Instr) -> tuple[tuple[int, int], ...]:
    """A recv's pairs as they are written."""
    try:
        return tuple(device_pairs(recv, DeviceCounts(1, 1)))
    except ValueError as error:
        raise UnsupportedError(f"%{recv.name}: {error}", recv.span) from error


def _sent(done: Instr) -> Instr | None:
    """The token of a send."""
    return done.operands[0].operands[1]


_TRANSFERS = {"recv-done": _received, "send-done": _sent}


def _flatten(instr: Instr, counts: DeviceCounts) -> None:
    if OPCODES[instr.opcode].has(Trait.GROUPED):
        groups = device_groups(instr, counts)
        instr.attrs["replica_groups"] = groups
        instr.attrs["channel_id"] = 1
        if instr.opcode in _GLOBAL:
            instr.attrs["use_global_device_ids"] = True
    elif instr.opcode == "collective-permute":
        instr.attrs["source_target_pairs"] = device_pairs(instr, counts)
        instr.attrs["channel_id"] = 1
    elif instr.opcode in ("partition-id", "replica-id") and counts.replicas > 1:
        _split_number(instr, counts)


def _split_number(instr: Instr, counts: DeviceCounts) -> None:
    """The replica's or the partition's number, from that of the device."""
    e = Emitter.at(instr)
    device = e.instruction("partition-id")
    partitions = e.constant(U32, counts.partitions)
    opcode = "divide" if instr.opcode == "replica-id" else "remainder"
    replace(instr, e.instruction(opcode, (device, partitions)))
