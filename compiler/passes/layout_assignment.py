"""Layout assignment: every array outside fusions gets an order of dimensions and tiles.

The order is always descending (the last dimension minor), with the default tiles of its type and
size. So it is for parameters and results, whatever order `entry_computation_layout` states: the host
gives and takes logical arrays, device arrays pass from one program to the next, and the same model
states other orders in one form than in another.
"""

from __future__ import annotations

from dataclasses import replace as with_fields

from compiler.analysis.tiled_layout import default_layout
from compiler.hlo.attributes import ComputationLayout
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.context import PassContext


def assign_layouts(module: HloModule, context: PassContext) -> bool:
    """Give every array outside fusions its layout."""
    is_changed = False
    for computation in control_computations(module):
        for instr in computation:
            shape = with_default_layout(instr.shape)
            is_changed |= shape != instr.shape
            instr.shape = shape
            context.counts["instructions"] += 1
    entry = ComputationLayout(
        tuple(p.shape for p in module.entry.parameters), module.entry.root_instruction.shape
    )
    is_changed |= module.attrs.get("entry_computation_layout") != entry
    module.attrs["entry_computation_layout"] = entry
    return is_changed


def with_default_layout(shape: Shape) -> Shape:
    """The shape with default layouts at every tuple level."""
    if isinstance(shape, ArrayShape):
        return shape.with_layout(default_layout(shape))
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(with_default_layout(e) for e in shape.elements))
    return shape


def in_space(shape: ArrayShape, memory_space: int) -> ArrayShape:
    """The shape with its layout in another memory space."""
    layout = shape.layout or default_layout(shape)
    return shape.with_layout(with_fields(layout, memory_space=memory_space))
