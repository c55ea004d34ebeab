"""Change element types everywhere at once: shapes, literals, the entry's layout, the host's view."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from compiler.analysis.host_ports import changed_ports, set_host_ports
from compiler.hlo.attributes import ComputationLayout
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves

Retype = Callable[[DType], DType]


def has_type(shape: Shape, retype: Retype) -> bool:
    """Whether any array of the shape has a type that changes."""
    return any(retype(leaf.dtype) != leaf.dtype for leaf in leaves(shape))


def retyped(shape: Shape, retype: Retype) -> Shape:
    """The shape with every element type changed."""
    if isinstance(shape, TupleShape):
        return TupleShape(tuple(retyped(element, retype) for element in shape.elements))
    if isinstance(shape, ArrayShape) and retype(shape.dtype) != shape.dtype:
        return shape.with_dtype(retype(shape.dtype))
    return shape


def retype_instruction(instr: HloInstruction, retype: Retype) -> None:
    """Change an instruction's result type, and its literal."""
    if not has_type(instr.shape, retype):
        return
    instr.shape = retyped(instr.shape, retype)
    if instr.opcode == "constant":
        instr.attrs["literal"] = _literal(instr.attrs["literal"], instr.shape)


def retype_entry(module: HloModule, retype: Retype) -> None:
    """Change the declared layout and note what the host sees; call this before the rest."""
    ports = changed_ports(module, lambda shape: int(retype(shape.dtype) != shape.dtype))
    set_host_ports(module, ports)
    layout = module.attrs.get("entry_computation_layout")
    if isinstance(layout, ComputationLayout):
        parameters = tuple(retyped(shape, retype) for shape in layout.parameters)
        result = retyped(layout.result, retype)
        module.attrs["entry_computation_layout"] = ComputationLayout(parameters, result)


def _literal(value: object, shape: Shape) -> object:
    if isinstance(shape, TupleShape):
        assert isinstance(value, tuple)
        return tuple(_literal(v, s) for v, s in zip(value, shape.elements, strict=True))
    assert isinstance(value, np.ndarray)
    assert isinstance(shape, ArrayShape)
    with np.errstate(over="ignore"):
        return value.astype(shape.dtype.numpy)
