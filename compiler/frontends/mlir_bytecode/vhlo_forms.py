"""VHLO's attributes and types as StableHLO's, by the codes of ``VhloBytecode.cpp``, which never change."""

from __future__ import annotations

from collections.abc import Callable

from compiler.frontends.mlir_bytecode.builtin_forms import (
    dense_attribute,
    dictionary,
    float_attribute,
    function_type,
    integer_attribute,
    ranked,
    ranked_with_encoding,
)
from compiler.frontends.mlir_bytecode.container import Forms, Source
from compiler.frontends.stablehlo.syntax import Attribute, Dense, Raw
from compiler.hlo.escapes import quote

NO_TYPE = "none"
"""What stands where an attribute has nothing to say."""
_QUANTIZED = "!quant.uniform<..>"
"""Refused where it is met, by that name."""


def enumerator(first: int, *names: str) -> Callable[[Source], Attribute]:
    """A reader of one of these words, the first of which has number `first`."""

    def read(source: Source) -> Attribute:
        number = source.number() - first
        if not 0 <= number < len(names):
            raise ValueError(f"enumerator {number + first}; {', '.join(names)} are known")
        return Raw(names[number])

    return read


def _boolean(source: Source) -> Attribute:
    return bool(source.number())


def _api_version(source: Source) -> Attribute:
    return source.number()


def alias(source: Source) -> Attribute:
    """A result that shares the memory of an operand."""
    output, operand, inner = source.signed_numbers(), source.signed(), source.signed_numbers()
    return Raw(
        f"#stablehlo.output_operand_alias<output_tuple_indices = {list(output)}, "
        f"operand_index = {operand}, operand_tuple_indices = {list(inner)}>"
    )


def bounds(source: Source) -> Attribute:
    """The bounds of dimensions whose size is not known."""
    return Raw(f"#stablehlo.bounds<{', '.join(map(str, source.signed_numbers()))}>")


def accuracy(source: Source) -> Attribute:
    """The mode of an operation's accuracy; its tolerances are passed over."""
    for _ in range(2):
        source.integer(64)  # tolerances, absolute and relative
    source.signed()
    return source.attribute()


def axis_part(source: Source) -> Attribute:
    """A part of a mesh's axis: what is before it, and its size."""
    return Raw(f"({source.signed()}){source.signed()}")


def _axis(source: Source) -> Attribute:
    name = quote(str(source.attribute()))
    part = source.attribute() if source.number() else None
    inside = f", sub_axis_info = {part.text}" if isinstance(part, Raw) else ""
    return Raw(f"#stablehlo.axis_ref<name = {name}{inside}>")


def _mesh_axis(source: Source) -> Attribute:
    return Raw(
        f"#stablehlo.mesh_axis<name = {quote(str(source.attribute()))}, size = {source.signed()}>"
    )


def listed(value: Attribute) -> str:
    """The texts of an array's attributes, in brackets."""
    texts = [a.text for a in value if isinstance(a, Raw)] if isinstance(value, tuple) else []
    return f"[{', '.join(texts)}]"


def _mesh(source: Source) -> Attribute:
    axes, devices = listed(source.attribute()), source.optional_attribute()
    if isinstance(devices, Dense):
        kind = devices.type_text
        raise ValueError(f"a mesh of devices in an order of its own ({kind})")
    return Raw(f"#stablehlo.mesh<axes = {axes}>")


def _mesh_groups(source: Source) -> Attribute:
    mesh, axes = source.attribute(), listed(source.attribute())
    named = mesh.text if isinstance(mesh, Raw) else f"@{quote(str(mesh))}"
    return Raw(f"#stablehlo.replica_group_mesh_axes<mesh = {named}, axes = {axes}>")


def _named(name: str) -> Callable[[Source], str]:
    return lambda source: name


_PLAIN_TYPES = {
    0: "i1", 2: "bf16", 3: "f16", 4: "f32", 5: "f64", 6: "f8E4M3FN", 7: "f8E5M2", 9: "index",
    10: "i4", 11: "i8", 12: "i16", 13: "i32", 14: "i64", 15: "ui4", 16: "ui8", 17: "ui16",
    18: "ui32", 19: "ui64", 22: "!stablehlo.token", 24: _QUANTIZED, 26: "!shape.witness",
    27: "f8E4M3FNUZ", 28: "f8E5M2FNUZ", 29: "f8E4M3B11FNUZ", 30: _QUANTIZED, 31: "i2", 32: "ui2",
    33: NO_TYPE, 34: "tf32", 35: "f8E4M3", 36: "f8E3M4", 37: "f4E2M1FN", 38: "f6E2M3FN",
    39: "f6E3M2FN", 40: "f8E8M0FNU",
}  # fmt: skip

FORMS = Forms(
    attributes={
        1: Source.attributes,
        2: _boolean,
        3: enumerator(0, "EQ", "NE", "GE", "GT", "LE", "LT"),
        4: enumerator(0, "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"),
        5: _api_version,
        6: dictionary,
        7: enumerator(0, "FFT", "IFFT", "RFFT", "IRFFT"),
        8: float_attribute,
        9: integer_attribute,
        10: alias,
        11: enumerator(0, "DEFAULT", "HIGH", "HIGHEST"),
        12: enumerator(0, "DEFAULT", "THREE_FRY", "PHILOX"),
        13: enumerator(1, "UNIFORM", "NORMAL"),
        14: Source.string,
        15: dense_attribute,
        16: enumerator(0, "TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
        17: lambda source: Raw(source.type()),
        18: bounds,
        19: enumerator(0, "DEFAULT", "HIGHEST", "TOLERANCE"),
        20: accuracy,
        21: axis_part,
        22: _axis,
        23: _mesh_groups,
        24: _mesh_axis,
        25: _mesh,
    },
    types={
        **{code: _named(name) for code, name in _PLAIN_TYPES.items()},
        1: lambda source: f"complex<{source.type()}>",
        8: lambda source: function_type(source.types(), source.types()),
        20: ranked,
        21: ranked_with_encoding,
        23: lambda source: f"tuple<{', '.join(source.types())}>",
        25: lambda source: f"tensor<*x{source.type()}>",
        41: lambda source: f"memref{ranked(source).removeprefix('tensor')}",
        42: lambda source: f"!stablehlo.future<{', '.join(source.types())}>",
    },
)
