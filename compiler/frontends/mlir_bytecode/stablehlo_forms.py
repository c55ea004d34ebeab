"""StableHLO's and CHLO's attributes and types as ``write_bytecode`` writes them, by the codes of
``StablehloBytecode.cpp`` and ``ChloBytecode.cpp``."""

from __future__ import annotations

from collections.abc import Callable

from compiler.frontends.mlir_bytecode.container import Forms, Source
from compiler.frontends.mlir_bytecode.vhlo_forms import (
    accuracy,
    alias,
    axis_part,
    bounds,
    enumerator,
    listed,
)
from compiler.frontends.stablehlo.syntax import Attribute, Dense, Raw, Symbol
from compiler.hlo.escapes import quote

_DIRECTION = enumerator(0, "EQ", "NE", "GE", "GT", "LE", "LT")
_COMPARISON = enumerator(0, "NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED")
_SIGNED, _LIST = Source.signed, Source.signed_numbers


def _record(
    **fields: Callable[[Source], int | tuple[int, ...]],
) -> Callable[[Source], Attribute]:
    """A reader of numbers and lists of numbers, one after another, under these names."""

    def read(source: Source) -> Attribute:
        return {name: field(source) for name, field in fields.items()}

    return read


def _algorithm(source: Source) -> Attribute:
    names = "lhs_precision_type", "rhs_precision_type", "accumulation_type"
    found: dict[str, Attribute] = {name: Raw(source.type()) for name in names}
    for name in "lhs_component_count", "rhs_component_count", "num_primitive_operations":
        found[name] = source.signed()
    return found | {"allow_imprecise_accumulation": bool(source.byte())}


def _axis(source: Source) -> Attribute:
    name = quote(source.string())
    part = source.attribute() if source.byte() else None
    inside = f", sub_axis_info = {part.text}" if isinstance(part, Raw) else ""
    return Raw(f"#stablehlo.axis_ref<name = {name}{inside}>")


def _mesh_axis(source: Source) -> Attribute:
    return Raw(f"#stablehlo.mesh_axis<name = {quote(source.string())}, size = {source.signed()}>")


def _mesh(source: Source) -> Attribute:
    axes, devices = listed(source.attribute()), source.attribute() if source.byte() else None
    if isinstance(devices, Dense):
        raise ValueError(f"a mesh of devices in an order of its own ({devices.type_text})")
    return Raw(f"#stablehlo.mesh<axes = {axes}>")


def _mesh_groups(source: Source) -> Attribute:
    mesh, axes = source.attribute(), listed(source.attributes())
    named = f"@{quote(mesh.name)}" if isinstance(mesh, Symbol) else getattr(mesh, "text", "")
    return Raw(f"#stablehlo.replica_group_mesh_axes<mesh = {named}, axes = {axes}>")


FORMS = Forms(
    attributes={
        1: _record(handle=_SIGNED, type=_SIGNED),
        2: _DIRECTION,
        3: _COMPARISON,
        4: _record(
            input_batch_dimension=_SIGNED, input_feature_dimension=_SIGNED,
            input_spatial_dimensions=_LIST,
            kernel_input_feature_dimension=_SIGNED, kernel_output_feature_dimension=_SIGNED,
            kernel_spatial_dimensions=_LIST,
            output_batch_dimension=_SIGNED, output_feature_dimension=_SIGNED,
            output_spatial_dimensions=_LIST,
        ),
        5: _record(
            lhs_batching_dimensions=_LIST, rhs_batching_dimensions=_LIST,
            lhs_contracting_dimensions=_LIST, rhs_contracting_dimensions=_LIST,
        ),
        6: enumerator(0, "FFT", "IFFT", "RFFT", "IRFFT"),
        7: _record(
            offset_dims=_LIST, collapsed_slice_dims=_LIST, operand_batching_dims=_LIST,
            start_indices_batching_dims=_LIST, start_index_map=_LIST, index_vector_dim=_SIGNED,
        ),
        8: enumerator(0, "DEFAULT", "HIGH", "HIGHEST"),
        9: enumerator(0, "DEFAULT", "THREE_FRY", "PHILOX"),
        10: enumerator(1, "UNIFORM", "NORMAL"),
        11: _record(
            update_window_dims=_LIST, inserted_window_dims=_LIST, input_batching_dims=_LIST,
            scatter_indices_batching_dims=_LIST, scatter_dims_to_operand_dims=_LIST,
            index_vector_dim=_SIGNED,
        ),
        12: enumerator(0, "TRANSPOSE_INVALID", "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"),
        13: bounds,
        14: alias,
        15: _algorithm,
        16: enumerator(0, "DEFAULT", "HIGHEST", "TOLERANCE"),
        17: accuracy,
        18: _mesh_groups,
        19: axis_part,
        20: _axis,
        21: _mesh_axis,
        22: _mesh,
    },
    types={
        0: lambda source: "!stablehlo.token",
        1: lambda source: f"!stablehlo.future<{', '.join(source.types())}>",
    },
)  # fmt: skip
CHLO_FORMS = Forms(attributes={0: _DIRECTION, 1: _COMPARISON}, types={})
