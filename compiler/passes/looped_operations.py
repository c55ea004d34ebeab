"""Operations as loops over parts of their result: the form that always has windows.

Where not even an operation by itself has windows that fit VMEM, a step of its kernel needs more
than VMEM holds: a transpose of four dimensions whose tiles cross, a reshape whose rows begin
anywhere, K of a dot in many passes. Then the operation becomes a module of its own that makes
the result in parts small enough, one after the other. A part may be one element.

    transpose, reduce, ..  a part of the result from the part of each operand behind it
    dot                    the same, or the sum of products of parts of K
    concatenate            of halves of its operands
    reshape                through one dimension: rows are laid end to end, then cut anew
    dynamic-update-slice   the update part by part

The module is HLO before fusion. It costs what its kernels cost: two or three a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import F32, S32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.passes.expanders.emitter import Emitter
from compiler.rewrite.make import dims_attr

Dims = tuple[int, ...]
Instr = HloInstruction
Fits = Callable[[HloInstruction], bool]
"""Whether an operation by itself has windows."""
Reads = tuple[tuple[int | None, ...], ...]
"""For each operand, which dimension of the result each of its dimensions is; None: none."""

_MINOR_ELEMENTS = 1024
_ROUNDINGS = (1024, 128, 32, 8)


def looped_module(node: HloInstruction, fits: Fits) -> HloModule | None:
    """A module that computes `node` of its operands that are no constants, as loops.

    None where there is no such form of the operation.
    """
    make = _FORMS.get(node.opcode)
    if make is None or not isinstance(node.shape, ArrayShape):
        return None
    builder = HloBuilder(f"looped_{node.opcode}")
    made: dict[HloInstruction, HloInstruction] = {}
    for operand in dict.fromkeys(node.operands):
        made[operand] = _input(builder, operand)
    near = HloInstruction(node.opcode, node.name, _bare(node.array), (), dict(node.attrs))
    near.location = node.location
    near.computation = builder.computation
    emitter = Emitter(near, builder.computation)
    for key, value in node.attrs.items():
        if isinstance(value, HloComputation):
            near.attrs[key] = _copied(value, builder.module)
    near.operands = [made[o] for o in node.operands]
    result = make(emitter, near, fits)
    return None if result is None else builder.build_entry(result)


def _input(builder: HloBuilder, operand: HloInstruction) -> HloInstruction:
    """An operand in the new module: a constant as it is, else a parameter."""
    if operand.opcode == "constant":
        attrs = dict(operand.attrs)
        return builder.computation.add(
            HloInstruction("constant", operand.name, _bare(operand.array), (), attrs)
        )
    return builder.parameter(_bare(operand.array))


def inputs_of(node: HloInstruction) -> list[HloInstruction]:
    """The operands that are parameters of the node's looped module, in their order."""
    return [o for o in dict.fromkeys(node.operands) if o.opcode != "constant"]


def _bare(shape: ArrayShape) -> ArrayShape:
    return ArrayShape(shape.dtype, shape.dims)


def _copied(called: HloComputation, module: HloModule) -> HloComputation:
    copy = HloComputation(called.name)
    made: dict[HloInstruction, HloInstruction] = {}
    for instr in called:
        operands = [made[o] for o in instr.operands]
        made[instr] = copy.add(
            HloInstruction(instr.opcode, instr.name, instr.shape, operands, dict(instr.attrs))
        )
    copy.root = made[called.root_instruction]
    return module.add_computation(copy)


# Parts of the result.


def _in_parts(e: Emitter, near: Instr, fits: Fits, reads: Reads, cut: Sequence[int]) -> Instr:
    """The operation part by part; `cut` are the dimensions of the result that are made shorter."""
    sizes = near.array.dims
    chunk = list(sizes)
    while not (
        fits(_part_of(near, reads, tuple(chunk))) and fits(_update_of(near.array, tuple(chunk)))
    ):
        candidates = [d for d in cut if chunk[d] > 1] or [d for d, n in enumerate(chunk) if n > 1]
        if not candidates:
            break
        longest = max(candidates, key=lambda d: chunk[d])
        chunk[longest] = _half(chunk[longest])
    counts = [-(-size // part) for size, part in zip(sizes, chunk, strict=True)]

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        *operands, total = state
        starts = _starts(b, number, counts, chunk, sizes)
        parts = [
            _slice_at(b, operand, read, starts, chunk)
            for operand, read in zip(operands, reads, strict=True)
        ]
        made = _again(b, near, parts, tuple(chunk))
        return [*operands, b.dynamic_update_slice(total, _apart(b, made), starts)]

    empty = e.full(near.array.dtype, sizes, 0)
    return e.loop(math.prod(counts), [*near.operands, empty], step)[-1]


def _half(size: int) -> int:
    """About half, in whole tiles where it is longer than some."""
    half = -(-size // 2)
    unit = next((unit for unit in _ROUNDINGS if half > unit), 1)
    return half // unit * unit


def _part_dims(operand: Instr, read: tuple[int | None, ...], chunk: Sequence[int]) -> Dims:
    pairs = zip(operand.array.dims, read, strict=True)
    return tuple(size if d is None else chunk[d] for size, d in pairs)


def _value(shape: ArrayShape) -> Instr:
    """Some array in memory."""
    return HloInstruction("parameter", "value", shape, (), {})


def _update_of(target: ArrayShape, part: Dims) -> Instr:
    """A part written into an array, by itself."""
    starts = [_value(ArrayShape(S32, ())) for _ in part]
    operands = [_value(target), _value(target.with_dims(part)), *starts]
    return HloInstruction("dynamic-update-slice", "update", target, operands, {})


def _part_of(near: Instr, reads: Reads, chunk: Dims) -> Instr:
    """The operation on parts of its operands, by itself."""
    operands = [
        _value(o.array.with_dims(_part_dims(o, read, chunk)))
        for o, read in zip(near.operands, reads, strict=True)
    ]
    shape = near.array.with_dims(chunk)
    return HloInstruction(near.opcode, near.name, shape, operands, dict(near.attrs))


def _starts(
    b: Emitter, number: Instr, counts: Sequence[int], chunk: Sequence[int], sizes: Dims
) -> list[Instr]:
    """Where part `number` begins; the last one of a dimension ends with it."""
    starts: list[Instr] = []
    for d, (count, part, size) in enumerate(zip(counts, chunk, sizes, strict=True)):
        if count == 1:
            starts.append(b.constant(S32, 0))
            continue
        place = b.divide(number, b.constant(S32, math.prod(counts[d + 1 :])))
        place = b.binary("remainder", place, b.constant(S32, count))
        start = b.multiply(place, b.constant(S32, part))
        starts.append(b.minimum(start, b.constant(S32, size - part)))
    return starts


def _slice_at(
    b: Emitter,
    operand: Instr,
    read: tuple[int | None, ...],
    starts: Sequence[Instr],
    chunk: Sequence[int],
) -> Instr:
    if all(d is None for d in read):
        return operand
    at = [b.constant(S32, 0) if d is None else starts[d] for d in read]
    return b.dynamic_slice(operand, at, _part_dims(operand, read, chunk))


def _again(b: Emitter, near: Instr, operands: Sequence[Instr], dims: Dims) -> Instr:
    attrs = {k: v for k, v in near.attrs.items() if k != "metadata"}
    return b.instruction(near.opcode, operands, attrs, near.array.with_dims(dims))


def _transpose(e: Emitter, near: Instr, fits: Fits) -> Instr:
    order = dims_attr(near)
    rank = len(order)
    read = tuple(order.index(d) for d in range(rank))
    minor = {*range(max(0, rank - 2), rank), *read[-2:]}
    return _in_parts(e, near, fits, (read,), sorted(minor))


def _reduce(e: Emitter, near: Instr, fits: Fits) -> Instr | None:
    if len(near.operands) != 2 or near.array.rank == 0:
        return None
    kept = iter(range(near.array.rank))
    reduced = dims_attr(near)
    read = tuple(None if d in reduced else next(kept) for d in range(near.operands[0].array.rank))
    return _in_parts(e, near, fits, (read, ()), range(near.array.rank))


def _broadcast(e: Emitter, near: Instr, fits: Fits) -> Instr:
    return _in_parts(e, near, fits, (dims_attr(near),), range(near.array.rank))


def _dot(e: Emitter, near: Instr, fits: Fits) -> Instr:
    """Sums of products of parts of K where those have windows, else part by part."""
    lhs, rhs = near.operands
    sides = [
        (dims_attr(near, f"{s}_batch_dims"), dims_attr(near, f"{s}_contracting_dims"))
        for s in ("lhs", "rhs")
    ]
    reads: list[tuple[int | None, ...]] = []
    number = len(sides[0][0])
    for operand, (batch, contracted) in zip((lhs, rhs), sides, strict=True):
        read: list[int | None] = []
        for d in range(operand.array.rank):
            if d in batch:
                read.append(batch.index(d))
            elif d in contracted:
                read.append(None)
            else:
                read.append(number)
                number += 1
        reads.append(tuple(read))
    axes = [contracted[0] for _, contracted in sides if contracted]
    if not axes or not fits(_shorter(near, axes, 1)):
        return _in_parts(e, near, fits, tuple(reads), range(near.array.rank))
    return _sum_of_parts(e, near, fits, axes)


def _sum_of_parts(e: Emitter, near: Instr, fits: Fits, axes: Sequence[int]) -> Instr:
    """A dot as a sum over parts of K, which are added in f32 (integers in their own type)."""
    depth = near.operands[0].array.dims[axes[0]]
    dtype = F32 if near.array.dtype.is_float else near.array.dtype
    part = depth
    while part > 1 and not fits(_shorter(near, axes, part)):
        part = _half(part)

    def product(b: Emitter, pair: Sequence[Instr]) -> Instr:
        attrs = {k: v for k, v in near.attrs.items() if k != "metadata"}
        return b.instruction("dot", pair, attrs, ArrayShape(dtype, near.array.dims))

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        *operands, total = state
        zero, start = b.constant(S32, 0), b.multiply(number, b.constant(S32, part))
        pair = [
            b.dynamic_slice(
                o,
                [start if d == axis else zero for d in range(o.array.rank)],
                tuple(part if d == axis else n for d, n in enumerate(o.array.dims)),
            )
            for o, axis in zip(operands, axes, strict=True)
        ]
        return [*operands, b.add(total, product(b, pair))]

    empty = e.full(dtype, near.array.dims, 0)
    total = e.loop(depth // part, [*near.operands, empty], step)[-1]
    if depth % part:
        ends = [
            e.part(o, axis, depth - depth % part, depth)
            for o, axis in zip(near.operands, axes, strict=True)
        ]
        total = e.add(total, product(e, ends))
    return e.cast(total, near.array.dtype)


def _shorter(near: Instr, axes: Sequence[int], part: int) -> Instr:
    operands = [
        _value(
            o.array.with_dims(tuple(part if d == axis else n for d, n in enumerate(o.array.dims)))
        )
        for o, axis in zip(near.operands, axes, strict=True)
    ]
    return HloInstruction("dot", near.name, near.array, operands, dict(near.attrs))


def _concatenate(e: Emitter, near: Instr, _: Fits) -> Instr | None:
    """One half of the operands, the other half, and both together."""
    count = len(near.operands)
    if count < 3:
        return None
    (axis,) = dims_attr(near)
    halves = [near.operands[: count // 2], near.operands[count // 2 :]]
    return e.join([_apart(e, e.join(half, axis)) for half in halves], axis)


def _update(e: Emitter, near: Instr, fits: Fits) -> Instr | None:
    """The parts of the update one after the other, each where it belongs."""
    operand, update, *starts = near.operands
    sizes, chunk = update.array.dims, list(update.array.dims)
    while not fits(_update_of(near.array, tuple(chunk))):
        longest = max(range(len(chunk)), key=lambda d: chunk[d])
        if chunk[longest] == 1:
            return None
        chunk[longest] = _half(chunk[longest])
    counts = [-(-size // part) for size, part in zip(sizes, chunk, strict=True)]
    zero = e.constant(S32, 0)
    first = [
        e.maximum(zero, e.minimum(e.cast(start, S32), e.constant(S32, whole - size)))
        for start, whole, size in zip(starts, near.array.dims, sizes, strict=True)
    ]

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        source, *origin, total = state
        places = _starts(b, number, counts, chunk, sizes)
        part = _apart(b, b.dynamic_slice(source, places, tuple(chunk)))
        at = [b.add(a, c) for a, c in zip(origin, places, strict=True)]
        return [source, *origin, b.dynamic_update_slice(total, part, at)]

    return e.loop(math.prod(counts), [update, *first, operand], step)[-1]


# Reshapes.


def _reshape(e: Emitter, near: Instr, fits: Fits) -> Instr:
    """Through one dimension; short minor dimensions are joined before and parted after."""
    (value,) = near.operands
    wanted = near.array.dims
    for dims in (_joined(value.array.dims), (value.array.element_count,), _joined(wanted), wanted):
        if dims != value.array.dims:
            value = _apart(e, _reshaped(e, value, dims, fits))
    return value


def _joined(dims: Dims) -> Dims:
    """The dimensions with the last ones as one, which is not short."""
    first = next(
        (d for d in reversed(range(len(dims))) if math.prod(dims[d:]) >= _MINOR_ELEMENTS), 0
    )
    return (*dims[:first], math.prod(dims[first:]))


def _apart(e: Emitter, value: Instr) -> Instr:
    """The value, not to be fused with what reads it."""
    return e.instruction("opt-barrier", (value,), None, value.shape)


def _reshaped(e: Emitter, value: Instr, dims: Dims, fits: Fits) -> Instr:
    """To or from one dimension row by row, unless the reshape has windows as it is."""
    shape = value.array.with_dims(dims)
    if fits(HloInstruction("reshape", "reshape", shape, (_value(value.array),), {})):
        return e.reshape(value, dims)
    if len(dims) == 1:
        return _laid_out(e, value, fits)
    if value.array.rank == 1:
        return _cut_anew(e, value, dims, fits)
    flat = _apart(e, _reshaped(e, value, (value.array.element_count,), fits))
    return _reshaped(e, flat, dims, fits)


def _rows_at_once(dims: Dims, value: ArrayShape, fits: Fits, *, is_cut: bool) -> Dims:
    """How many rows and columns of an array of `dims` are moved at once: the most that have
    windows, as one block with its rows laid end to end."""
    rows, columns = (dims[-2] if len(dims) > 1 else 1), dims[-1]
    while rows * columns > 1:
        block = value.with_dims((*(1 for _ in dims[:-2]), rows, columns)[-len(dims) :])
        line = value.with_dims((rows * columns,))
        source, target = (line, block) if is_cut else (block, line)
        whole = value.with_dims(dims if is_cut else (math.prod(dims),))
        moved = HloInstruction("reshape", "reshape", target, (_value(source),), {})
        if fits(moved) and fits(_update_of(whole, target.dims)):
            break
        if rows > 1:
            rows = _half(rows)
        else:
            columns = _half(columns)
    return rows, columns


def _row_starts(b: Emitter, number: Instr, dims: Dims, block: Dims) -> tuple[list[Instr], Instr]:
    """Where block `number` begins in an array of `dims`, and among all elements in a line."""
    chunk = (*(1 for _ in dims[:-2]), *block)[-len(dims) :]
    counts = [-(-size // part) for size, part in zip(dims, chunk, strict=True)]
    starts = _starts(b, number, counts, chunk, dims)
    place = b.constant(S32, 0)
    for d, start in enumerate(starts):
        stride = b.constant(S32, math.prod(dims[d + 1 :]))
        place = b.add(place, b.multiply(start, stride))
    return starts, place


def _block_count(dims: Dims, block: Dims) -> int:
    chunk = (*(1 for _ in dims[:-2]), *block)[-len(dims) :]
    return math.prod(-(-size // part) for size, part in zip(dims, chunk, strict=True))


def _laid_out(e: Emitter, value: Instr, fits: Fits) -> Instr:
    """All rows of an array end to end."""
    dims = value.array.dims
    block = _rows_at_once(dims, value.array, fits, is_cut=False)
    sizes = (*(1 for _ in dims[:-2]), *block)[-len(dims) :]

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        source, line = state
        starts, place = _row_starts(b, number, dims, block)
        rows = b.reshape(b.dynamic_slice(source, starts, sizes), (math.prod(block),))
        return [source, b.dynamic_update_slice(line, _apart(b, rows), [place])]

    empty = e.full(value.array.dtype, (value.array.element_count,), 0)
    return e.loop(_block_count(dims, block), [value, empty], step)[-1]


def _cut_anew(e: Emitter, value: Instr, dims: Dims, fits: Fits) -> Instr:
    """An array of one dimension as rows of `dims`."""
    block = _rows_at_once(dims, value.array, fits, is_cut=True)
    sizes = (*(1 for _ in dims[:-2]), *block)[-len(dims) :]

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        line, target = state
        starts, place = _row_starts(b, number, dims, block)
        rows = b.reshape(b.dynamic_slice(line, [place], (math.prod(block),)), sizes)
        return [line, b.dynamic_update_slice(target, _apart(b, rows), starts)]

    empty = e.full(value.array.dtype, dims, 0)
    return e.loop(_block_count(dims, block), [value, empty], step)[-1]


_FORMS: dict[str, Callable[[Emitter, Instr, Fits], Instr | None]] = {
    "transpose": _transpose,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "dot": _dot,
    "concatenate": _concatenate,
    "reshape": _reshape,
    "dynamic-update-slice": _update,
}
LOOPED_KERNELS = frozenset({"dynamic-update-slice"})
"""Those of them that have a kernel of their own."""
