"""What a module header or custom call says of buffers, as text, both ways: aliases, layouts.

Malformed text raises ValueError.
"""

from __future__ import annotations

import re

from compiler.hlo.attributes import (
    BufferDonor,
    ComputationLayout,
    InputOutputAlias,
    OutputOperandAlias,
)
from compiler.hlo.shape import Shape, TupleShape
from compiler.hlo.shape_text import inside_braces, parse_shape, print_shape

_ALIAS = re.compile(
    r"\{([\d,\s]*)\}\s*:\s*\(\s*(-?\d+)\s*,\s*\{([\d,\s]*)\}\s*(?:,\s*([a-z-]+)\s*)?\)\s*,?\s*"
)
_DONOR = re.compile(r"\(\s*(\d+)\s*,\s*\{([\d,\s]*)\}\s*\)\s*,?\s*")


def _index(text: str) -> tuple[int, ...]:
    return tuple(int(n) for n in text.split(",")) if text.strip() else ()


def _entries(pattern: re.Pattern[str], text: str, example: str) -> list[tuple[str, ...]]:
    inside = inside_braces(text)
    if pattern.sub("", inside):
        raise ValueError(f"want entries like {example}, found {inside[:60]!r}")
    return [found.groups(default="") for found in pattern.finditer(inside)]


def decode_input_output_alias(text: str) -> tuple[InputOutputAlias, ...]:
    """Read ``{ {0}: (1, {}, may-alias) }``."""
    return tuple(
        InputOutputAlias(_index(out), int(number), _index(index), kind or "may-alias")
        for out, number, index, kind in _entries(_ALIAS, text, "{0}: (1, {}, may-alias)")
    )


def encode_input_output_alias(value: object) -> str:
    """Write the aliases of a module header."""
    assert isinstance(value, tuple), value
    parts = [
        f"{_braced(a.output_index)}: ({a.parameter_number}, {_braced(a.parameter_index)}, {a.kind})"
        for a in value
    ]
    return "{ " + ", ".join(parts) + " }"


def decode_output_operand(text: str) -> tuple[OutputOperandAlias, ...]:
    """Read ``{{0}: (1, {})}``."""
    return tuple(
        OutputOperandAlias(_index(out), int(number), _index(index))
        for out, number, index, _ in _entries(_ALIAS, text, "{0}: (1, {})")
    )


def encode_output_operand(value: object) -> str:
    """Write the aliases of a custom call."""
    assert isinstance(value, tuple), value
    parts = [
        f"{_braced(a.output_index)}: ({a.operand_number}, {_braced(a.operand_index)})"
        for a in value
    ]
    return "{" + ", ".join(parts) + "}"


def decode_buffer_donor(text: str) -> tuple[BufferDonor, ...]:
    """Read ``{ (0, {}) }``."""
    entries = _entries(_DONOR, text, "(0, {})")
    return tuple(BufferDonor(int(number), _index(index)) for number, index in entries)


def encode_buffer_donor(value: object) -> str:
    """Write the donors of a module header."""
    assert isinstance(value, tuple), value
    parts = [f"({d.parameter_number}, {_braced(d.parameter_index)})" for d in value]
    return "{ " + ", ".join(parts) + " }"


def _braced(index: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, index)) + "}"


def decode_layout(text: str) -> ComputationLayout:
    """Read ``{(parameter shapes)->result shape}``."""
    inside = inside_braces(text)
    parameters, arrow, result = inside.rpartition("->")
    shapes = parse_shape(parameters)
    if not arrow or not isinstance(shapes, TupleShape):
        raise ValueError(f"want {{(parameter shapes)->result shape}}, found {text[:60]!r}")
    return ComputationLayout(shapes.elements, parse_shape(result))


def encode_layout(value: object) -> str:
    """Write the entry computation's shapes with their layouts."""
    assert isinstance(value, ComputationLayout), value
    return f"{{{print_shape(TupleShape(value.parameters))}->{print_shape(value.result)}}}"


def decode_shapes(text: str) -> tuple[Shape, ...]:
    """Read ``{f32[2]{0}, s32[]}``."""
    shapes = parse_shape(f"({inside_braces(text)})")
    assert isinstance(shapes, TupleShape)
    return shapes.elements


def encode_shapes(value: object) -> str:
    """Write a list of shapes."""
    assert isinstance(value, tuple), value
    return "{" + ", ".join(print_shape(shape) for shape in value) + "}"
