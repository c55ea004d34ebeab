"""The entry's signature after wide arrays became pairs: layout, aliases, donors, host types."""

from __future__ import annotations

from dataclasses import replace

from compiler.analysis.aliasing import donations
from compiler.analysis.host_ports import HostPorts, changed_ports
from compiler.hlo.attributes import BufferDonor, ComputationLayout, InputOutputAlias
from compiler.hlo.ir import HloModule
from compiler.hlo.shape import Shape, TupleShape
from compiler.passes.pair_types.values import is_wide, lowered, spread

Path = tuple[int, ...]


def new_host_ports(module: HloModule) -> HostPorts:
    """The ports of the module once it is rewritten; call this before."""
    return changed_ports(module, lambda shape: 2 if is_wide(shape) else 0)


def new_attributes(module: HloModule) -> dict[str, object]:
    """The header attributes of the module once it is rewritten; call this before."""
    attrs = dict(module.attrs)
    parameters = [p.shape for p in module.entry.parameters]
    layout = attrs.get("entry_computation_layout")
    if isinstance(layout, ComputationLayout):
        shapes = tuple(part for shape in layout.parameters for part in spread(shape))
        attrs["entry_computation_layout"] = ComputationLayout(shapes, lowered(layout.result))
    aliases = donations(module)
    if "input_output_alias" in attrs:
        result = module.entry.root_instruction.shape
        attrs["input_output_alias"] = tuple(
            new for alias in aliases for new in _aliases(alias, parameters, result)
        )
    donors = attrs.get("buffer_donor")
    if isinstance(donors, tuple):
        attrs["buffer_donor"] = tuple(
            BufferDonor(number, path)
            for donor in donors
            for number, path in _parameter_parts(
                parameters, donor.parameter_number, donor.parameter_index
            )
        )
    return attrs


def _aliases(
    alias: InputOutputAlias, parameters: list[Shape], result: Shape
) -> list[InputOutputAlias]:
    outputs = paths(result, alias.output_index)
    inputs = _parameter_parts(parameters, alias.parameter_number, alias.parameter_index)
    return [
        replace(alias, output_index=output, parameter_number=number, parameter_index=path)
        for output, (number, path) in zip(outputs, inputs, strict=True)
    ]


def paths(shape: Shape, path: Path) -> list[Path]:
    """Where the parts of the array at `path` are in the lowered shape."""
    if not path:
        return [(0,), (1,)] if is_wide(shape) else [()]
    assert isinstance(shape, TupleShape)
    index = path[0]
    place = sum(len(spread(element)) for element in shape.elements[:index])
    element = shape.elements[index]
    if is_wide(element):
        return [(place,), (place + 1,)]
    return [(place, *rest) for rest in paths(element, path[1:])]


def _parameter_parts(parameters: list[Shape], number: int, path: Path) -> list[tuple[int, Path]]:
    """Where the parts of the array at `path` of a parameter are."""
    first = sum(len(spread(shape)) for shape in parameters[:number])
    if is_wide(parameters[number]):
        return [(first, ()), (first + 1, ())]
    return [(first, found) for found in paths(parameters[number], path)]
