"""Operations as loops over parts of their result: the form that always has windows.

Where not even an operation by itself has windows that fit VMEM, a step of its kernel needs more
than VMEM holds: a transpose of four dimensions whose tiles cross, a reshape whose rows begin
anywhere, K of a dot in many passes. Then the operation becomes a module of its own that makes
the result in parts small enough, one after the other. A part may be one element.

    transpose, reduce, ..  a part of the result from the part of each operand behind it
    reduce of predicates   of numbers
    dot                    the same, or the sum of products of parts of K
    concatenate            of halves of its operands
    reshape                through one dimension: rows are laid end to end, then cut anew
    dynamic-update-slice   of parts of the update
    gather                 with one dimension that numbers slices, in parts of its kernel's own

The module is HLO before fusion. It costs what its kernels cost: two or three a part. There is none
where not even one element fits.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.analysis.gather_dims import gather_dims, is_flat
from compiler.hlo.builder import HloBuilder
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.expanders.predicate_reductions import reduced_as_numbers
from compiler.passes.gather_canonicalizer import flat_gather
from compiler.passes.looped.dots import dot_in_parts
from compiler.passes.looped.parts import Fits, Instr, in_parts, is_made_anew, update_in_parts
from compiler.passes.looped.reshapes import reshape_in_parts
from compiler.rewrite.emitter import Emitter


def looped_module(node: HloInstruction, fits: Fits) -> HloModule | None:
    """A module that computes `node` of its operands that are no constants, as loops.

    None where there is no such form of the operation.
    """
    make = _FORMS.get(node.opcode)
    if make is None:
        return None
    builder = HloBuilder(f"looped_{node.opcode}")
    made: dict[HloInstruction, HloInstruction] = {}
    for operand in dict.fromkeys(node.operands):
        made[operand] = _input(builder, operand)
    near = HloInstruction(node.opcode, node.name, _bare(node.shape), (), dict(node.attrs))
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
    """An operand in the new module: a constant or positions as they are, else a parameter."""
    if not is_given(operand):
        attrs, shape = dict(operand.attrs), _bare(operand.shape)
        sources = [_input(builder, source) for source in operand.operands]
        return builder.computation.add(
            HloInstruction(operand.opcode, operand.name, shape, sources, attrs)
        )
    return builder.parameter(_bare(operand.shape))


def inputs_of(node: HloInstruction) -> list[HloInstruction]:
    """The operands that are parameters of the node's looped module, in their order."""
    return [o for o in dict.fromkeys(node.operands) if is_given(o)]


def is_given(operand: HloInstruction) -> bool:
    """Whether an operand is an input of loops, none that they make themselves where they need it."""
    return operand.opcode != "constant" and not is_made_anew(operand)


def _bare(shape: Shape) -> Shape:
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(map(_bare, shape.elements)))
    return ArrayShape(shape.dtype, shape.dims) if isinstance(shape, ArrayShape) else shape


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


def _transpose(e: Emitter, near: Instr, fits: Fits) -> Instr | None:
    order = near.dimensions
    rank = len(order)
    read = tuple(order.index(d) for d in range(rank))
    minor = {*range(max(0, rank - 2), rank), *read[-2:]}
    return in_parts(e, near, fits, (read,), sorted(minor))


def _reduce(e: Emitter, near: Instr, fits: Fits) -> Instr | None:
    count = len(near.operands) // 2
    numbers = reduced_as_numbers(e, near) if count == 1 else None
    reduced, rank = near.dimensions, near.operands[0].array.rank
    if numbers is not None or len(reduced) == rank:
        return numbers
    kept = iter(range(rank))
    read = tuple(None if d in reduced else next(kept) for d in range(rank))
    return in_parts(e, near, fits, (read,) * count + ((),) * count, range(rank - len(reduced)))


def _broadcast(e: Emitter, near: Instr, fits: Fits) -> Instr | None:
    return in_parts(e, near, fits, (near.dimensions,), range(near.array.rank))


def _concatenate(e: Emitter, near: Instr, _: Fits) -> Instr | None:
    """One half of the operands, the other half, and both together."""
    count = len(near.operands)
    if count < 3:
        return None
    (axis,) = near.dimensions
    halves = [near.operands[: count // 2], near.operands[count // 2 :]]
    return e.join([e.apart(e.join(half, axis)) for half in halves], axis)


def _gather(_: Emitter, near: Instr, fits: Fits) -> Instr | None:
    """With slices that one dimension numbers: an operand of any size is read slice by slice then."""
    dims = gather_dims(near)
    return None if is_flat(dims) else flat_gather(dims)


_FORMS: dict[str, Callable[[Emitter, Instr, Fits], Instr | None]] = {
    "transpose": _transpose,
    "reduce": _reduce,
    "broadcast": _broadcast,
    "dot": dot_in_parts,
    "dynamic-update-slice": update_in_parts,
    "concatenate": _concatenate,
    "gather": _gather,
    "reshape": reshape_in_parts,
}
