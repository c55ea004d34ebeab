"""Layout assignment: every array outside fusions gets an order of dimensions and tiles.

Inside the program the order is always descending (the last dimension minor), with the default
tiles of its type and size. Parameters and results keep the order that
`entry_computation_layout` states; a `copy` stands where the two differ.
"""

from __future__ import annotations

from dataclasses import replace as with_fields

from compiler.analysis.call_graph import control_computations
from compiler.analysis.tiled_layout import default_layout, default_tiles
from compiler.hlo.attributes import ComputationLayout
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, Layout, Shape, TupleShape
from compiler.passes.context import PassContext
from compiler.rewrite.graph import emit


def assign_layouts(module: HloModule, context: PassContext) -> bool:
    """Give every array outside fusions its layout."""
    for computation in control_computations(module):
        for instr in computation:
            instr.shape = with_default_layout(instr.shape)
            context.counts["instructions"] += 1
    stated = module.attrs.get("entry_computation_layout")
    if isinstance(stated, ComputationLayout):
        _settle_parameters(module.entry, stated.parameters, context)
        _settle_result(module.entry, stated.result, context)
    module.attrs["entry_computation_layout"] = ComputationLayout(
        tuple(p.shape for p in module.entry.parameters), module.entry.root_instruction.shape
    )
    module.entry.sort()
    return True


def with_default_layout(shape: Shape) -> Shape:
    """The shape with default layouts at every tuple level."""
    if isinstance(shape, ArrayShape):
        return shape.with_layout(default_layout(shape))
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(with_default_layout(e) for e in shape.elements))
    return shape


def _in_stated_order(shape: ArrayShape, stated: Shape) -> ArrayShape:
    """`shape` in the dimension order of `stated`, tiled in that order."""
    assert isinstance(stated, ArrayShape), f"want an array layout, found {stated}"
    order = stated.minor_to_major
    physical = tuple(shape.dims[d] for d in reversed(order))
    return shape.with_layout(Layout(order, default_tiles(shape.dtype, physical)))


def _settle_parameters(
    entry: HloComputation, stated: tuple[Shape, ...], context: PassContext
) -> None:
    for parameter, wanted in zip(entry.parameters, stated, strict=True):
        if not isinstance(parameter.shape, ArrayShape):
            continue
        outside = _in_stated_order(parameter.shape, wanted)
        if outside == parameter.shape:
            continue
        users = list(parameter.users)
        copy = emit(parameter, "copy", parameter.shape, (parameter,))
        for user in users:
            user.set_operands([copy if o is parameter else o for o in user.operands])
        if entry.root is parameter:
            entry.root = copy
        parameter.shape = outside
        context.counts["copies"] += 1


def _settle_result(entry: HloComputation, stated: Shape, context: PassContext) -> None:
    root = entry.root_instruction
    if isinstance(root.shape, ArrayShape):
        entry.root = _copied_to(root, stated, context)
        return
    if not isinstance(stated, TupleShape) or not isinstance(root.shape, TupleShape):
        return
    parts = _elements(root)
    copies = [_copied_to(p, s, context) for p, s in zip(parts, stated.elements, strict=True)]
    if copies == parts and root.opcode == "tuple":
        return
    shape = TupleShape(tuple(c.shape for c in copies))
    entry.root = emit(root, "tuple", shape, copies)
    if root.opcode == "tuple" and not root.users:
        entry.remove(root)


def _elements(root: HloInstruction) -> list[HloInstruction]:
    """The parts of a tuple-shaped instruction, as instructions."""
    if root.opcode == "tuple":
        return list(root.operands)
    assert isinstance(root.shape, TupleShape)
    return [
        emit(root, "get-tuple-element", shape, (root,), {"index": index})
        for index, shape in enumerate(root.shape.elements)
    ]


def _copied_to(instr: HloInstruction, stated: Shape, context: PassContext) -> HloInstruction:
    if not isinstance(instr.shape, ArrayShape):
        return instr
    wanted = _in_stated_order(instr.shape, stated)
    if wanted == instr.shape:
        return instr
    context.counts["copies"] += 1
    return emit(instr, "copy", wanted, (instr,))


def in_space(shape: ArrayShape, memory_space: int) -> ArrayShape:
    """The shape with its layout in another memory space."""
    layout = shape.layout or default_layout(shape)
    return shape.with_layout(with_fields(layout, memory_space=memory_space))
