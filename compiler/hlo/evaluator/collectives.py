"""Collectives: what each device of a run hands to the others of its group, and what it makes of it.

Both halves of an asynchronous collective are here; the work is done at the start. Sums are those
of `reduce` over the group's values in order. Who receives nothing gets zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from compiler.hlo.evaluator.context import Array, Context, Handler, Operands, Value, unsupported
from compiler.hlo.evaluator.monoid import monoid_of
from compiler.hlo.evaluator.numerics import cast_exactly_once
from compiler.hlo.ir import HloInstruction
from compiler.hlo.replica_groups import device_groups, device_pairs
from compiler.hlo.shape import ArrayShape, TupleShape

Group = tuple[int, ...]
Exchanged = Callable[[Context, HloInstruction, Operands], list[Array]]


def _group(ctx: Context, instr: HloInstruction) -> Group | None:
    """The group that this device is in; None when it is in none."""
    groups = device_groups(instr, ctx.device.counts)
    if any(number >= ctx.device.counts.devices for group in groups for number in group):
        raise unsupported(instr, "it has several participants; run it on a slice")
    return next((group for group in groups if ctx.device.number in group), None)


def _own_group(ctx: Context, instr: HloInstruction) -> Group:
    group = _group(ctx, instr)
    if group is None:
        raise unsupported(instr, f"device {ctx.device.number} is in none of its groups")
    return group


def _from_all(ctx: Context, instr: HloInstruction, group: Group, value: Any) -> list[Any]:
    """What every member of the group holds."""
    return ctx.device.share(instr, group, [value] * len(group))


def _dimension(instr: HloInstruction) -> int:
    return instr.dimensions[0]


def _combined(ctx: Context, instr: HloInstruction, values: Sequence[Array]) -> Array:
    """One array of the group's values, element by element by the computation."""
    body = instr.to_apply
    monoid = monoid_of(body)
    if monoid is not None:
        total = monoid.reduce(np.stack(values, axis=-1), (values[0].ndim,))
        return cast_exactly_once(total, values[0].dtype)
    result = values[0]
    for value in values[1:]:
        (result,) = ctx.call_batched(body, [result, value])
        result = np.asarray(result, values[0].dtype)
    return result


def _all_reduced(ctx: Context, instr: HloInstruction, operands: Operands) -> list[Array]:
    group = _own_group(ctx, instr)
    rows = [_from_all(ctx, instr, group, operand) for operand in operands]
    return [_combined(ctx, instr, values) for values in rows]


def _all_gathered(ctx: Context, instr: HloInstruction, operands: Operands) -> list[Array]:
    group = _own_group(ctx, instr)
    rows = [_from_all(ctx, instr, group, operand) for operand in operands]
    return [np.concatenate(values, axis=_dimension(instr)) for values in rows]


def _reduce_scattered(ctx: Context, instr: HloInstruction, operands: Operands) -> list[Array]:
    group = _own_group(ctx, instr)
    results = []
    for operand in operands:
        parts = np.split(operand, len(group), axis=_dimension(instr))
        results.append(_combined(ctx, instr, ctx.device.share(instr, group, parts)))
    return results


def _all_exchanged(ctx: Context, instr: HloInstruction, operands: Operands) -> list[Array]:
    """Part i of an array, or operand i of a tuple, goes to member i of the group."""
    group = _own_group(ctx, instr)
    if "dimensions" not in instr.attrs:
        return ctx.device.share(instr, group, list(operands))
    results = []
    for operand in operands:
        parts = np.split(operand, len(group), axis=_dimension(instr))
        received = ctx.device.share(instr, group, parts)
        results.append(np.concatenate(received, axis=_dimension(instr)))
    return results


def _broadcast(ctx: Context, instr: HloInstruction, operands: Operands) -> list[Array]:
    """The first of each group has what all of it get."""
    if instr.attrs.get("has_dynamic_root"):
        raise unsupported(instr, "its root is known only at run time; name it in replica_groups")
    group = _group(ctx, instr)
    if group is None:
        return [np.zeros_like(operand) for operand in operands]
    return [_from_all(ctx, instr, group, operand)[0] for operand in operands]


def _collective_reduced(ctx: Context, instr: HloInstruction, operands: Operands) -> list[Array]:
    group = _own_group(ctx, instr)
    if len(group) > 1:
        raise unsupported(instr, "of several participants; use all-reduce")
    return list(operands)


def _permuted(ctx: Context, instr: HloInstruction, operands: Operands) -> list[Array]:
    if "slice_sizes" in instr.attrs:
        raise unsupported(instr, "it permutes slices of buffers; permute arrays")
    pairs = device_pairs(instr, ctx.device.counts)
    if any(number >= ctx.device.counts.devices for pair in pairs for number in pair):
        raise unsupported(instr, "it has several participants; run it on a slice")
    return [_passed_on(ctx, instr, instr, pairs, operand) for operand in operands]


def _passed_on(
    ctx: Context,
    instr: HloInstruction,
    channel: object,
    pairs: Sequence[tuple[int, int]],
    value: Array,
) -> Array:
    """Send to every target of this device; what its source sends, or zeros."""
    _posted(ctx, channel, pairs, value)
    return _received(ctx, instr, channel, pairs, np.zeros_like(value))


def _posted(ctx: Context, channel: object, pairs: Sequence[tuple[int, int]], value: Array) -> None:
    number = ctx.device.number
    for source, target in pairs:
        if source == number:
            ctx.device.exchange.send(channel, number, target, value)


def _received(
    ctx: Context,
    instr: HloInstruction,
    channel: object,
    pairs: Sequence[tuple[int, int]],
    default: Array,
) -> Array:
    number = ctx.device.number
    source = next((source for source, target in pairs if target == number), None)
    if source is None:
        return default
    value: Array = ctx.device.exchange.receive(instr, channel, source, number)
    return value


def _ragged(ctx: Context, instr: HloInstruction, operands: Operands) -> list[Array]:
    """Rows ``input[offset : offset + size]`` go to a place in the output of each of the group.

    `offsets`, `sizes` and `places` have the same number of entries for every member in turn.
    """
    source, output, offsets, sizes, places, _ = operands
    group = _own_group(ctx, instr)
    rows = [
        (int(place), source[int(offset) : int(offset) + int(size)])
        for offset, size, place in zip(offsets, sizes, places, strict=True)
    ]
    each = len(rows) // len(group)
    parts = [rows[i * each : (i + 1) * each] for i in range(len(group))]
    result = np.array(output)
    for received in ctx.device.share(instr, group, parts):
        for place, piece in received:
            result[place : place + len(piece)] = piece
    return [result]


def _sync(exchanged: Exchanged) -> Handler:
    """The results: one array as it is, several as a tuple."""

    def handler(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
        results = exchanged(ctx, instr, operands)
        return tuple(results) if isinstance(instr.shape, TupleShape) else results[0]

    return handler


def _with_operands(exchanged: Exchanged) -> Handler:
    """(operands, results, contexts ...), as a start half returns them."""

    def handler(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
        results = exchanged(ctx, instr, operands)
        assert isinstance(instr.shape, TupleShape)
        contexts = [np.zeros((), np.uint32)] * (len(instr.shape.elements) - 2)
        if len(operands) == 1:
            return operands[0], results[0], *contexts
        return tuple(operands), tuple(results), *contexts

    return handler


def _second(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    value: Value = operands[0][1]
    return value


def _first(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    value: Value = operands[0]
    return value


def _partition(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    return np.array(ctx.device.number % ctx.device.counts.partitions, np.uint32)


def _replica(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    return np.array(ctx.device.number // ctx.device.counts.partitions, np.uint32)


# Between two devices.


def _transfer_pairs(ctx: Context, instr: HloInstruction) -> tuple[tuple[int, int], ...]:
    if instr.attrs.get("is_host_transfer"):
        raise unsupported(instr, "it needs a host; evaluate a module without it")
    try:
        return device_pairs(instr, ctx.device.counts)
    except ValueError as error:
        raise unsupported(instr, str(error)) from error


def _send(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """(data, context, token)."""
    pairs = _transfer_pairs(ctx, instr)
    _posted(ctx, ("channel", instr.attrs.get("channel_id")), pairs, operands[0])
    return operands[0], np.zeros((), np.uint32), ()


def _send_done(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    return ()


def _recv(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """(place for the data, context, token): the data is waited for when it is needed."""
    _transfer_pairs(ctx, instr)
    assert isinstance(instr.shape, TupleShape)
    shape = instr.shape.elements[0]
    assert isinstance(shape, ArrayShape)
    return np.zeros(shape.dims, shape.dtype.numpy), np.zeros((), np.uint32), ()


def _recv_done(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    """(data, token)."""
    start = instr.operands[0]
    pairs = _transfer_pairs(ctx, start)
    channel = ("channel", start.attrs.get("channel_id"))
    return _received(ctx, instr, channel, pairs, operands[0][0]), ()


COLLECTIVE_HANDLERS: dict[str, Handler] = {
    "all-gather": _sync(_all_gathered),
    "all-gather-done": _second,
    "all-gather-start": _with_operands(_all_gathered),
    "all-reduce": _sync(_all_reduced),
    "all-reduce-done": _first,
    "all-reduce-start": _sync(_all_reduced),
    "all-to-all": _sync(_all_exchanged),
    "collective-broadcast": _sync(_broadcast),
    "collective-permute": _sync(_permuted),
    "collective-permute-done": _second,
    "collective-permute-start": _with_operands(_permuted),
    "collective-reduce": _sync(_collective_reduced),
    "partition-id": _partition,
    "ragged-all-to-all": _sync(_ragged),
    "recv": _recv,
    "recv-done": _recv_done,
    "reduce-scatter": _sync(_reduce_scattered),
    "replica-id": _replica,
    "send": _send,
    "send-done": _send_done,
}
