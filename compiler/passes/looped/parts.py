"""Results part by part: how large a part may be, where it begins, and the loop over the parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves
from compiler.rewrite.emitter import Emitter, result_of

Dims = tuple[int, ...]
Instr = HloInstruction
Fits = Callable[[HloInstruction], bool]
"""Whether an operation by itself has windows."""
Reads = tuple[tuple[int | None, ...], ...]
"""For each operand, which dimension of the result each of its dimensions is; None: none."""

_ROUNDINGS = (1024, 128, 32, 8)


def in_parts(e: Emitter, near: Instr, fits: Fits, reads: Reads, cut: Sequence[int]) -> Instr | None:
    """The operation part by part; `cut` are the dimensions of the result that are made shorter.

    Several results, of equal dimensions, come as a tuple. None where not even one element by itself fits.
    """
    shapes = leaves(near.shape)
    sizes = shapes[0].dims

    def is_small(chunk: Dims) -> bool:
        return fits(_part_of(near, reads, chunk)) and all(
            fits(update_of(shape, chunk)) for shape in dict.fromkeys(shapes)
        )

    chunk = small_enough(sizes, cut, is_small)
    if chunk is None:
        return None
    counts = part_counts(sizes, chunk)
    carried = [o for o in dict.fromkeys(near.operands) if not is_made_anew(o)]

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        given, totals = state[: len(carried)], state[len(carried) :]
        inside = dict(zip(carried, given, strict=True))
        starts = starts_of(b, number, sizes, chunk)
        parts = [
            _slice_at(b, inside[operand], read, starts, chunk)
            if operand in inside
            else _made_at(b, operand, read, starts, chunk)
            for operand, read in zip(near.operands, reads, strict=True)
        ]
        made = _again(b, near, parts, chunk)
        stored = [
            b.dynamic_update_slice(total, b.apart(result), starts)
            for total, result in zip(totals, made, strict=True)
        ]
        return [*given, *stored]

    empty = [e.full(shape.dtype, sizes, 0) for shape in shapes]
    found = e.loop(math.prod(counts), [*carried, *empty], step)[len(carried) :]
    return result_of(e, near, found)


def update_in_parts(e: Emitter, near: Instr, fits: Fits) -> Instr | None:
    """A dynamic-update-slice as one after another of parts of its update.

    The start is brought inside first: a part's own start never has to be.
    """
    target, update, *starts = near.operands
    sizes, rank = update.array.dims, update.array.rank
    cut = range(max(0, rank - 2), rank)
    chunk = small_enough(sizes, cut, lambda part: fits(update_of(target.array, part)))
    if chunk is None:
        return None
    firsts: list[Instr] = []
    for start, whole, size in zip(starts, target.array.dims, sizes, strict=True):
        inside = e.binary("maximum", e.cast(start, S32), e.constant(S32, 0))
        firsts.append(e.minimum(inside, e.constant(S32, whole - size)))

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        source, *first, total = state
        offsets = starts_of(b, number, sizes, chunk)
        part = b.apart(b.dynamic_slice(source, offsets, chunk))
        at = [b.add(start, offset) for start, offset in zip(first, offsets, strict=True)]
        return [source, *first, b.dynamic_update_slice(total, part, at)]

    return e.loop(math.prod(part_counts(sizes, chunk)), [update, *firsts, target], step)[-1]


def small_enough(sizes: Dims, cut: Sequence[int], is_small: Callable[[Dims], bool]) -> Dims | None:
    """The size of a part, halved until it is small: first in the dimensions `cut`, then in any.

    None where a part of one element is not.
    """
    chunk = list(sizes)
    while not is_small(tuple(chunk)):
        candidates = [d for d in cut if chunk[d] > 1] or [d for d, n in enumerate(chunk) if n > 1]
        if not candidates:
            return None
        longest = max(candidates, key=lambda d: chunk[d])
        chunk[longest] = half(chunk[longest])
    return tuple(chunk)


def half(size: int) -> int:
    """About half, in whole tiles where it is longer than some."""
    size = -(-size // 2)
    unit = next((unit for unit in _ROUNDINGS if size > unit), 1)
    return size // unit * unit


def part_counts(sizes: Dims, chunk: Dims) -> list[int]:
    """How many parts there are in each dimension."""
    return [-(-size // part) for size, part in zip(sizes, chunk, strict=True)]


def starts_of(b: Emitter, number: Instr, sizes: Dims, chunk: Dims) -> list[Instr]:
    """Where part `number` begins; the last one of a dimension ends with it."""
    starts: list[Instr] = []
    counts = part_counts(sizes, chunk)
    for d, (count, part, size) in enumerate(zip(counts, chunk, sizes, strict=True)):
        if count == 1:
            starts.append(b.constant(S32, 0))
            continue
        place = b.divide(number, b.constant(S32, math.prod(counts[d + 1 :])))
        place = b.binary("remainder", place, b.constant(S32, count))
        start = b.multiply(place, b.constant(S32, part))
        starts.append(b.minimum(start, b.constant(S32, size - part)))
    return starts


def value(shape: ArrayShape) -> Instr:
    """Some array in memory."""
    return HloInstruction("parameter", "value", shape, (), {})


def update_of(target: ArrayShape, part: Dims) -> Instr:
    """A part written into an array, by itself."""
    starts = [value(ArrayShape(S32, ())) for _ in part]
    operands = [value(target), value(target.with_dims(part)), *starts]
    return HloInstruction("dynamic-update-slice", "update", target, operands, {})


def _part_of(near: Instr, reads: Reads, chunk: Dims) -> Instr:
    """The operation on parts of its operands, by itself."""
    operands = [
        value(o.array.with_dims(_part_dims(o, read, chunk)))
        for o, read in zip(near.operands, reads, strict=True)
    ]
    return HloInstruction(near.opcode, near.name, _of(near, chunk), operands, dict(near.attrs))


def _of(near: Instr, dims: Dims) -> Shape:
    """What an operation of one or several results gives where those have other dimensions."""
    if isinstance(near.shape, TupleShape):
        return TupleShape(tuple(shape.with_dims(dims) for shape in leaves(near.shape)))
    return near.array.with_dims(dims)


def _part_dims(operand: Instr, read: tuple[int | None, ...], chunk: Dims) -> Dims:
    pairs = zip(operand.array.dims, read, strict=True)
    return tuple(size if d is None else chunk[d] for size, d in pairs)


def _slice_at(
    b: Emitter,
    operand: Instr,
    read: tuple[int | None, ...],
    starts: Sequence[Instr],
    chunk: Dims,
) -> Instr:
    if all(d is None for d in read):
        return operand
    at = [b.constant(S32, 0) if d is None else starts[d] for d in read]
    return b.dynamic_slice(operand, at, _part_dims(operand, read, chunk))


def is_made_anew(operand: Instr) -> bool:
    """Whether a part of an operand is made where it is needed: positions, or one number everywhere."""
    if operand.opcode == "broadcast":
        return operand.array.rank > 0 and is_made_anew(operand.operands[0])
    return operand.opcode == "iota" or (operand.opcode == "constant" and operand.array.rank == 0)


def _made_at(
    b: Emitter,
    operand: Instr,
    read: tuple[int | None, ...],
    starts: Sequence[Instr],
    chunk: Dims,
) -> Instr:
    """A part of such an operand."""
    shape = operand.array.with_dims(_part_dims(operand, read, chunk))
    if operand.opcode == "constant":
        return b.instruction("constant", (), dict(operand.attrs), operand.array)
    if operand.opcode == "broadcast":
        (source,) = operand.operands
        inner = tuple(read[d] for d in operand.dimensions)
        made = _made_at(b, source, inner, starts, chunk)
        return b.broadcast(made, shape.dims, operand.dimensions)
    place = read[operand.iota_dimension]
    if place is None:
        return b.iota(shape.dtype, shape.dims, operand.iota_dimension)
    number = b.iota(S32, shape.dims, operand.iota_dimension)
    return b.cast(b.add(number, b.broadcast(starts[place], shape.dims)), shape.dtype)


def _again(b: Emitter, near: Instr, operands: Sequence[Instr], dims: Dims) -> list[Instr]:
    """The results of the operation on parts of its operands."""
    attrs = {k: v for k, v in near.attrs.items() if k != "metadata"}
    made = b.instruction(near.opcode, operands, attrs, _of(near, dims))
    if not isinstance(near.shape, TupleShape):
        return [made]
    return [b.get_tuple_element(made, k) for k in range(len(near.shape.elements))]
