"""In which memory arrays lie, as their layouts say."""

from __future__ import annotations

from compiler.analysis.aliasing import Slot, leaf_count
from compiler.hlo.shape import ArrayShape, Shape, TupleShape
from compiler.passes.layout_assignment import in_space


def move_arrays(slots: list[Slot], space: int) -> None:
    """Let the layouts of arrays say that they lie in another memory space."""
    for instr, leaf in slots:
        instr.shape = _with_space(instr.shape, leaf, space)


def _with_space(shape: Shape, leaf: int, space: int) -> Shape:
    """The shape with one of its arrays in another memory space."""
    if isinstance(shape, ArrayShape):
        return in_space(shape, space)
    assert isinstance(shape, TupleShape)
    elements = list(shape.elements)
    for number, element in enumerate(elements):
        count = leaf_count(element)
        if leaf < count:
            elements[number] = _with_space(element, leaf, space)
            break
        leaf -= count
    return TupleShape(tuple(elements))
