"""Collectives on one device: with a single participant they move nothing.

More participants need a slice; such an instruction is refused by name.
"""

from __future__ import annotations

import numpy as np

from compiler.hlo.attributes import IotaReplicaGroups
from compiler.hlo.evaluator.context import Context, Handler, Operands, Value, unsupported
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import TupleShape


def _require_one_participant(instr: HloInstruction) -> None:
    groups = instr.attrs.get("replica_groups", ())
    if isinstance(groups, IotaReplicaGroups):
        groups = groups.groups()
    if isinstance(groups, tuple) and any(len(group) > 1 for group in groups):
        raise unsupported(instr, "it has several participants; run it on a slice")


def _alone(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    _require_one_participant(instr)
    return tuple(operands) if isinstance(instr.shape, TupleShape) else operands[0]


def _gather_start(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """(operands, results): with one participant the results are the operands."""
    _require_one_participant(instr)
    value: Value = operands[0] if len(operands) == 1 else tuple(operands)
    return value, value


def _second(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    value: Value = operands[0][1]
    return value


def _first(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    value: Value = operands[0]
    return value


def _permute(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """Device 0 keeps its data when {0,0} is a pair, and gets zeros when nothing is sent to it."""
    pairs = instr.source_target_pairs
    if not isinstance(pairs, tuple) or any(set(pair) != {0} for pair in pairs):
        raise unsupported(instr, "it has several participants; run it on a slice")
    value: Value = operands[0] if pairs else np.zeros_like(operands[0])
    return value


def _permute_start(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """(operand, result, context ...)."""
    context = np.zeros((), np.uint32)
    return operands[0], _permute(ctx, instr, operands), context, context


def _device_zero(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    return np.zeros((), np.uint32)


def _refuse(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    raise unsupported(instr, "it exchanges data between devices; run it on a slice")


COLLECTIVE_HANDLERS: dict[str, Handler] = {
    "all-gather": _alone,
    "all-gather-done": _second,
    "all-gather-start": _gather_start,
    "all-reduce": _alone,
    "all-reduce-done": _first,
    "all-reduce-start": _alone,
    "all-to-all": _alone,
    "collective-broadcast": _alone,
    "collective-permute": _permute,
    "collective-permute-done": _second,
    "collective-permute-start": _permute_start,
    "collective-reduce": _alone,
    "partition-id": _device_zero,
    "ragged-all-to-all": _refuse,
    "reduce-scatter": _alone,
    "replica-id": _device_zero,
}
