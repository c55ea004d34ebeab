"""A product part by part, or as a sum of products of parts of K."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.hlo.dtypes import F32, S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.looped.parts import Fits, Instr, half, in_parts, value
from compiler.rewrite.emitter import Emitter


def dot_in_parts(e: Emitter, near: Instr, fits: Fits) -> Instr | None:
    """Sums of products of parts of K where those have windows, else part by part."""
    lhs, rhs = near.operands
    sides = [
        (near.ints(f"{s}_batch_dims"), near.ints(f"{s}_contracting_dims")) for s in ("lhs", "rhs")
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
        return in_parts(e, near, fits, tuple(reads), range(near.array.rank))
    return _sum_of_parts(e, near, fits, axes)


def _sum_of_parts(e: Emitter, near: Instr, fits: Fits, axes: Sequence[int]) -> Instr:
    """A dot as a sum over parts of K, which are added in f32 (integers in their own type)."""
    depth = near.operands[0].array.dims[axes[0]]
    dtype = F32 if near.array.dtype.is_float else near.array.dtype
    part = depth
    while part > 1 and not fits(_shorter(near, axes, part)):
        part = half(part)

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
        value(
            o.array.with_dims(tuple(part if d == axis else n for d, n in enumerate(o.array.dims)))
        )
        for o, axis in zip(near.operands, axes, strict=True)
    ]
    return HloInstruction("dot", near.name, near.array, operands, dict(near.attrs))
