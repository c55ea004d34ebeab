"""A `scan` as a counted loop over slices of its inputs, which stacks its outputs."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import TupleShape, leaves
from compiler.rewrite.emitter import Emitter, result_of

Instr = HloInstruction


def scan_expansion(instr: Instr) -> Instr | None:
    """Step i reads slice i of every input along the dimension and writes slice i of the outputs.

    Operands are the inputs, then the initial carries; results the outputs, then the last carries.
    A reverse scan goes through the same slices from the last to the first.
    """
    e = Emitter.at(instr)
    (dim,) = instr.dimensions
    carry_count = instr.num_carries
    body = instr.to_apply
    split = len(instr.operands) - carry_count
    inputs, carries = instr.operands[:split], instr.operands[split:]
    shapes = leaves(instr.shape)
    stacked = shapes[: len(shapes) - carry_count]
    count = (inputs[0].array if inputs else stacked[0]).dims[dim]
    outputs = [e.full(shape.dtype, shape.dims, 0) for shape in stacked]
    if not count:
        return result_of(e, instr, [*outputs, *carries])
    is_reverse, stop = instr.is_reverse, len(instr.operands)

    def step(b: Emitter, i: Instr, state: list[Instr]) -> list[Instr]:
        inner, kept, made = state[:split], state[split:stop], state[stop:]
        at = b.subtract(b.constant(S32, count - 1), i) if is_reverse else i
        slices = [slice_at(b, value, dim, at) for value in inner]
        results = called(b, body, [*slices, *kept])
        parts, ahead = results[: len(made)], results[len(made) :]
        written = [with_slice(b, o, p, dim, at) for o, p in zip(made, parts, strict=True)]
        return [*inner, *ahead, *written]

    final = e.loop(count, [*inputs, *carries, *outputs], step)[split:]
    return result_of(e, instr, [*final[carry_count:], *final[:carry_count]])


def called(b: Emitter, body: HloComputation, arguments: Sequence[Instr]) -> list[Instr]:
    """The results of a call, a tuple taken apart."""
    result = b.call(body, arguments)
    if not isinstance(result.shape, TupleShape):
        return [result]
    return [b.get_tuple_element(result, n) for n in range(len(result.shape.elements))]


def _starts(b: Emitter, rank: int, dim: int, at: Instr) -> list[Instr]:
    zero = b.constant(S32, 0)
    return [at if d == dim else zero for d in range(rank)]


def slice_at(b: Emitter, value: Instr, dim: int, at: Instr) -> Instr:
    """Slice `at` of an array, without the dimension."""
    dims = value.array.dims
    sizes = (*dims[:dim], 1, *dims[dim + 1 :])
    slab = b.dynamic_slice(value, _starts(b, len(dims), dim, at), sizes)
    return b.reshape(slab, (*dims[:dim], *dims[dim + 1 :]))


def with_slice(b: Emitter, target: Instr, part: Instr, dim: int, at: Instr) -> Instr:
    """The array with its slice `at` replaced."""
    dims = target.array.dims
    slab = b.reshape(part, (*dims[:dim], 1, *dims[dim + 1 :]))
    return b.dynamic_update_slice(target, slab, _starts(b, len(dims), dim, at))
