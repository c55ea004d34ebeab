"""Forms that shardings have no rules for, written as those that have, before they are propagated.

domain                   its operand
copy-start, copy-done    a copy
scaled-dot               what it always becomes, as any such operation of which nothing else is said
copy of a tuple          copies of its arrays
constant of a tuple      a tuple of constants
get-dimension-size       a constant
slice(pad(x))            one pad: a shift by a row is no longer array that is cut again
dynamic-slice(x, s32[2] starts)      dynamic-slice(x, s32[] i, s32[] j)
dot, convolution         of floats that have a zero: devices fill up with it, and share sums
dot, convolution, reduce to floats of 8 bits, which are rounded once: devices add up parts in f32
dot, reduce              along dimensions that a reshape merged: along these, which may be cut
gather, dynamic-slice    of the bits of floats without zero: devices add up what they have and zeros
gather, scatter          whose index counts rows: batching dimensions, each device has its rows
"""

from __future__ import annotations

from compiler.analysis.reducers import reducer_kind
from compiler.hlo.call_graph import reachable
from compiler.hlo.dtypes import BY_NAME, F32, DType
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import TupleShape
from compiler.passes.call_inliner import inline_calls
from compiler.passes.context import PassContext
from compiler.passes.control_unsharing import unshare
from compiler.passes.expanders.batched_places import gather_in_rows, scatter_in_rows
from compiler.passes.expanders.driver import Expansion, expand
from compiler.passes.expanders.float_products import of_floats
from compiler.passes.expanders.index_forms import plain_indices
from compiler.passes.expanders.merged_sums import SAID, dot_of_parts, reduce_of_parts
from compiler.passes.expanders.simple_expansions import COMPOSED
from compiler.passes.expanders.single_device import first_operand, size_of_dimension
from compiler.passes.loop_state import sink_constants
from compiler.passes.tuple_flattener import constant_parts
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit
from compiler.sharding.op_rules import NO_RULE, RULES

Instr = HloInstruction


def rewrite_global_forms(module: HloModule, context: PassContext) -> bool:
    """Rewrite them all; calls are inlined and constants of loops their own, so that forms are seen
    that a border cuts."""
    is_changed = inline_calls(module, context)
    is_changed |= bool(unshare(module))
    is_changed |= sink_constants(module) > 0
    is_changed |= expand(module, context, _TABLE)
    for computation in reachable(module):
        for instr in list(computation):
            if instr.opcode == "copy-start" and not instr.users:
                computation.remove(instr)
    return is_changed


def _copy_done(done: Instr) -> Instr | None:
    (start,) = done.operands
    return emit(done, "copy", done.shape, start.operands[:1], _said(done))


def _said(instr: Instr) -> dict[str, object]:
    """What an operation says of how its result lies."""
    return {name: instr.attrs[name] for name in SAID if name in instr.attrs}


def _saying(expansion: Expansion) -> Expansion:
    """The expansion, which says of its result what the operation says."""

    def expanded(instr: Instr) -> Instr | None:
        made = expansion(instr)
        if made in instr.operands:  # another value, which lies as it says itself
            made = emit(instr, "copy", instr.shape, [made])
        if made is not None:
            made.attrs.update(_said(instr))
        return made

    return expanded


def _copy(instr: Instr) -> Instr | None:
    if not isinstance(instr.shape, TupleShape):
        return None
    e, (whole,) = Emitter.at(instr), instr.operands
    parts = [
        e.instruction("copy", (e.get_tuple_element(whole, index),))
        for index in range(len(instr.shape.elements))
    ]
    return e.tuple(parts)


def _scalar_starts(instr: Instr) -> Instr | None:
    first = 1 if instr.opcode == "dynamic-slice" else 2
    return plain_indices(instr) if instr.operands[first:][0].array.rank == 1 else None


def _dynamic_slice(instr: Instr) -> Instr | None:
    return _scalar_starts(instr) or _of_bits(instr)


def _gather(gather: Instr) -> Instr | None:
    return gather_in_rows(gather) or _of_bits(gather)


def _of_bits(read: Instr) -> Instr | None:
    """The elements that are read as integers, where their type has nothing that adds nothing."""
    operand, *indices = read.operands
    dtype = read.array.dtype
    if not dtype.is_float or identity("add", dtype) is not None:
        return None
    e, bits = Emitter.at(read), BY_NAME[f"u{dtype.bits}"]
    given = (e.bitcast_convert(operand, bits), *indices)
    made = emit(read, read.opcode, read.array.with_dtype(bits), given, dict(read.attrs))
    return e.bitcast_convert(made, dtype)


def _slice(instr: Instr) -> Instr | None:
    """A part without steps of a padded array, as the array padded less."""
    (padded,) = instr.operands
    ranges, padding = instr.attrs["slice"], padded.attrs.get("padding")
    assert isinstance(ranges, tuple)
    if not isinstance(padding, tuple) or any(step != 1 for _, _, step in ranges):
        return None
    if 0 in instr.array.dims:
        return None
    cut = tuple(
        (low - start, high - (size - end), inside)
        for (low, high, inside), (start, end, _), size in zip(
            padding, ranges, padded.array.dims, strict=True
        )
    )
    return emit(instr, "pad", instr.array, padded.operands, _said(instr) | {"padding": cut})


def _product(instr: Instr) -> Instr | None:
    """Sums of products as floats that hold parts of them too."""
    if instr.opcode == "dot" and (parts := dot_of_parts(instr)) is not None:
        return parts
    made = of_floats(instr)
    if made is not None or not _is_narrow(instr.array.dtype):
        return made
    e, wide = Emitter.at(instr), instr.array.with_dtype(F32)
    summed = e.instruction(instr.opcode, instr.operands, dict(instr.attrs), wide)
    return e.cast(summed, instr.array.dtype)


def _reduce(instr: Instr) -> Instr | None:
    """The same for sums and products of one array's elements."""
    if (parts := reduce_of_parts(instr)) is not None:
        return parts
    kind = reducer_kind(_called(instr.to_apply))
    if kind not in ("add", "multiply") or len(instr.operands) != 2:
        return None
    if not _is_narrow(instr.array.dtype):
        return None
    e, wide = Emitter.at(instr), instr.array.with_dtype(F32)
    given = [e.cast(operand, F32) for operand in instr.operands]
    attrs = {**instr.attrs, "to_apply": e.scalar(kind, F32)}
    return e.cast(e.instruction("reduce", given, attrs, wide), instr.array.dtype)


def _called(computation: HloComputation) -> HloComputation:
    """What a computation comes to that does nothing but call another one."""
    root = computation.root_instruction
    while root.opcode == "call" and list(root.operands) == list(computation.parameters):
        computation = root.to_apply
        root = computation.root_instruction
    return computation


def _is_narrow(dtype: DType) -> bool:
    """Whether a part of a sum may be infinite although the sum is not, and is rounded coarsely."""
    return dtype.is_float and dtype.bits <= 8


_TABLE: dict[str, Expansion] = {
    **{name: _saying(COMPOSED[name]) for name in COMPOSED.keys() - RULES.keys() - NO_RULE.keys()},
    "constant": constant_parts,
    "convolution": _product,
    "copy": _copy,
    "copy-done": _copy_done,
    "domain": first_operand,
    "dot": _product,
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _scalar_starts,
    "gather": _gather,
    "get-dimension-size": size_of_dimension,
    "reduce": _reduce,
    "scatter": scatter_in_rows,
    "slice": _slice,
}
