"""Shardy's attributes, which artifacts of sharded programs keep, as ``sdy/ir/bytecode.td`` numbers them."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.frontends.mlir_bytecode.container import Forms, Source
from compiler.frontends.mlir_bytecode.vhlo_forms import axis_part
from compiler.frontends.stablehlo.syntax import Attribute, Raw, Symbol
from compiler.hlo.escapes import quote

_SHARDING, _PER_VALUE = "#sdy.sharding", "#sdy.sharding_per_value"


def _texts(values: Iterable[Attribute]) -> str:
    return ", ".join(value.text for value in values if isinstance(value, Raw))


def _manual_axes(source: Source) -> Attribute:
    names = ", ".join(quote(str(name)) for name in source.attributes())
    return Raw(f"#sdy<manual_axes{{{names}}}>")


def _mesh_axis(source: Source) -> Attribute:
    return Raw(f"{quote(source.string())}={source.signed()}")


def _mesh(source: Source) -> Attribute:
    axes, devices = _texts(source.attributes()), source.signed_numbers()
    order = f", device_ids={list(devices)}" if devices else ""
    return Raw(f"#sdy.mesh<[{axes}]{order}>")


def _axis(source: Source) -> Attribute:
    name, part = quote(source.string()), source.optional_attribute()
    return Raw(f"{name}:{part.text}" if isinstance(part, Raw) else name)


def _dimension(source: Source) -> Attribute:
    axes = [value for value in source.attributes() if isinstance(value, Raw)]
    names = [axis.text for axis in axes] + ([] if source.byte() else ["?"])
    number, is_there = source.flagged()
    return Raw(f"{{{', '.join(names)}}}" + (f"p{number}" if is_there else ""))


def _sharding(source: Source) -> str:
    mesh = source.attribute()
    if isinstance(mesh, Symbol):
        name = f"@{mesh.name}" if mesh.name.isidentifier() else f"@{quote(mesh.name)}"
    else:
        name = _texts([mesh]).removeprefix("#sdy.")
    dims, replicated = _texts(source.attributes()), _texts(source.attributes())
    return f"{name}, [{dims}]" + (f", replicated={{{replicated}}}" if replicated else "")


def _sharding_1(source: Source) -> Attribute:
    return Raw(f"{_SHARDING}<{_sharding(source)}>")


def _sharding_2(source: Source) -> Attribute:
    text, unreduced = _sharding(source), _texts(source.attributes())
    return Raw(f"{_SHARDING}<{text}, unreduced={{{unreduced}}}>")


def _per_value(source: Source) -> Attribute:
    parts = [v.text.removeprefix(_SHARDING) for v in source.attributes() if isinstance(v, Raw)]
    return Raw(f"{_PER_VALUE}<[{', '.join(parts)}]>")


def _factor(number: int) -> str:
    """The name of a factor in texts: i to z, then z_1, z_2 .."""
    most = ord("z") - ord("i")
    return chr(ord("i") + number) if number <= most else f"z_{number - most}"


def _dim_mapping(source: Source) -> Attribute:
    return Raw("".join(map(_factor, source.signed_numbers())))


def _tensor_mapping(source: Source) -> Attribute:
    return Raw(f"[{_texts(source.attributes())}]")


def _sharding_rule(source: Source) -> Attribute:
    """How the dimensions of an operation's operands and results go together, by factors."""
    sizes = source.signed_numbers()
    operands, results = _texts(source.attributes()), _texts(source.attributes())
    factors = ", ".join(f"{_factor(n)}={size}" for n, size in enumerate(sizes))
    text = f"({operands})->({results}) {{{factors}}}"
    for kind in ("reduction", "need_replication", "permutation", "blocked_propagation"):
        names = ", ".join(map(_factor, source.signed_numbers()))
        text += f" {kind}={{{names}}}" if names else ""
    return Raw(f"#sdy.op_sharding_rule<{text}{', custom' if source.byte() else ''}>")


FORMS = Forms(
    attributes={
        0: _manual_axes,
        1: _mesh_axis,
        2: _mesh,
        3: axis_part,
        4: _axis,
        5: _dimension,
        6: _sharding_1,
        7: _per_value,
        8: _dim_mapping,
        9: _tensor_mapping,
        10: _sharding_rule,
        15: _sharding_2,
        16: _per_value,
    },
    types={},
)
