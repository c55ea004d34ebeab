"""The signature of a module once some leaves of its shapes are replaced by several, or by none.

    Replacement(parts)    `parts` says what stands for a leaf: a wide array's two words, no token
    s64[8]                u32[8], u32[8]                          as parameters of their own
    (s64[8], token[])     (u32[8], u32[8])

A tuple holds the parts of an element in its place; nested tuples stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from compiler.analysis.aliasing import donations
from compiler.hlo.attributes import BufferDonor, ComputationLayout, InputOutputAlias
from compiler.hlo.ir import HloModule
from compiler.hlo.shape import Shape, TupleShape

Path = tuple[int, ...]
Parts = tuple[Shape, ...]


@dataclass(frozen=True)
class Replacement:
    """`parts` gives what stands for a shape that is no tuple: itself where nothing is replaced."""

    parts: Callable[[Shape], Parts]

    def spread(self, shape: Shape) -> Parts:
        """The shapes that stand for one, each a parameter or an element of its own."""
        return (self.lowered(shape),) if isinstance(shape, TupleShape) else self.parts(shape)

    def lowered(self, shape: Shape) -> Shape:
        """The one shape that stands for a shape: a tuple where there are several parts, or none."""
        if isinstance(shape, TupleShape):
            return TupleShape(
                tuple(part for element in shape.elements for part in self.spread(element))
            )
        parts = self.parts(shape)
        return parts[0] if len(parts) == 1 else TupleShape(parts)

    def attributes(self, module: HloModule) -> dict[str, object]:
        """The header attributes of the module once it is rewritten; call this before."""
        attrs = dict(module.attrs)
        parameters = [p.shape for p in module.entry.parameters]
        layout = attrs.get("entry_computation_layout")
        if isinstance(layout, ComputationLayout):
            shapes = tuple(part for shape in layout.parameters for part in self.spread(shape))
            attrs["entry_computation_layout"] = ComputationLayout(
                shapes, self.lowered(layout.result)
            )
        if "input_output_alias" in attrs:
            result = module.entry.root_instruction.shape
            attrs["input_output_alias"] = tuple(
                new for alias in donations(module) for new in self._alias(alias, parameters, result)
            )
        donors = attrs.get("buffer_donor")
        if isinstance(donors, tuple):
            attrs["buffer_donor"] = tuple(
                BufferDonor(number, path)
                for donor in donors
                for number, path in self._places(
                    parameters, donor.parameter_number, donor.parameter_index
                )
            )
        return attrs

    def _alias(
        self, alias: InputOutputAlias, parameters: Sequence[Shape], result: Shape
    ) -> list[InputOutputAlias]:
        outputs = self._paths(result, alias.output_index)
        inputs = self._places(parameters, alias.parameter_number, alias.parameter_index)
        return [
            replace(alias, output_index=output, parameter_number=number, parameter_index=path)
            for output, (number, path) in zip(outputs, inputs, strict=True)
        ]

    def _paths(self, shape: Shape, path: Path) -> list[Path]:
        """Where the parts of the leaf (or the tuple) at `path` are in the lowered shape."""
        if not path:
            count = 1 if isinstance(shape, TupleShape) else len(self.parts(shape))
            return [()] if count == 1 else [(k,) for k in range(count)]
        assert isinstance(shape, TupleShape)
        index, *rest = path
        place = sum(len(self.spread(element)) for element in shape.elements[:index])
        element = shape.elements[index]
        if isinstance(element, TupleShape):
            return [(place, *found) for found in self._paths(element, tuple(rest))]
        return [(place + k,) for k in range(len(self.parts(element)))]

    def _places(
        self, parameters: Sequence[Shape], number: int, path: Path
    ) -> list[tuple[int, Path]]:
        """Where the parts of the leaf at `path` of a parameter are."""
        first = sum(len(self.spread(shape)) for shape in parameters[:number])
        shape = parameters[number]
        if isinstance(shape, TupleShape):
            return [(first, found) for found in self._paths(shape, path)]
        return [(first + k, ()) for k in range(len(self.parts(shape)))]
