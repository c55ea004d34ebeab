"""Layout stripping: forget the layouts of the input text.

A frontend's layouts (``{3,1,2,0}`` on a transpose's result) are another backend's choice.
Passes up to layout assignment compare bare shapes; `entry_computation_layout` is kept, since
it is what the caller hands in.
"""

from __future__ import annotations

from compiler.hlo.ir import HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.context import PassContext


def strip_layouts(module: HloModule, context: PassContext) -> bool:
    """Remove the layout of every instruction's shape."""
    for computation in module.computations.values():
        for instr in computation:
            bare = without_layout(instr.shape)
            if bare != instr.shape:
                instr.shape = bare
                context.counts["shapes"] += 1
    return bool(context.counts)


def without_layout(shape: Shape) -> Shape:
    """The shape with no layout at any tuple level."""
    if isinstance(shape, ArrayShape):
        return shape.with_layout(None)
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(without_layout(e) for e in shape.elements))
    return shape
