"""What VHLO's operations have, by name and version, and how StableHLO has it.

The attributes of an operation lie in its properties in the order of their names. Names of operations are
without the dialect; only what has attributes is listed.
"""

from __future__ import annotations

import re

from compiler.frontends.mlir_bytecode.vhlo_forms import NO_TYPE
from compiler.frontends.stablehlo.dense import parse_dense
from compiler.frontends.stablehlo.syntax import Attribute, Dense, Raw, Symbol
from compiler.frontends.stablehlo.types import Types
from compiler.hlo.shape import ArrayShape

_CONV_SIDES = """input_batch_dimension input_feature_dimension input_spatial_dimensions
kernel_input_feature_dimension kernel_output_feature_dimension kernel_spatial_dimensions
output_batch_dimension output_feature_dimension output_spatial_dimensions"""
_CONV = f"""window_strides lhs_dilation rhs_dilation window_reversal {_CONV_SIDES} feature_group_count
batch_group_count precision_config"""
_CUSTOM = """call_target_name has_side_effect backend_config api_version called_computations operand_layouts
result_layouts output_operand_aliases"""
_DOT_SIDES = """lhs_batching_dimensions rhs_batching_dimensions lhs_contracting_dimensions
rhs_contracting_dimensions"""
_ALGORITHM = """lhs_precision_type rhs_precision_type accumulation_type lhs_component_count
rhs_component_count num_primitive_operations allow_imprecise_accumulation"""
_GATHER_V1 = "offset_dims collapsed_slice_dims start_index_map index_vector_dim"
_GATHER = f"{_GATHER_V1} operand_batching_dims start_indices_batching_dims"
_SCATTER_V1 = (
    "update_window_dims inserted_window_dims scatter_dims_to_operand_dims index_vector_dim"
)
_SCATTER = f"{_SCATTER_V1} input_batching_dims scatter_indices_batching_dims"
_BROADCAST = "broadcast_dimensions known_expanding_dimensions known_nonexpanding_dimensions"
_COMPOSITE = "name composite_attributes decomposition version"
_GROUPS = "replica_groups channel_id"

_ROWS = {
    "all_gather_v1 all_gather_v2": f"all_gather_dim use_global_device_ids {_GROUPS}",
    "all_reduce_v1 all_reduce_v2": f"use_global_device_ids {_GROUPS}",
    "all_to_all_v1 all_to_all_v2": f"split_dimension concat_dimension split_count {_GROUPS}",
    "batch_norm_grad_v1 batch_norm_inference_v1 batch_norm_training_v1": "epsilon feature_index",
    "broadcast_in_dim_v1": "broadcast_dimensions",
    "broadcast_v1": "broadcast_sizes",
    "call_v1": "callee",
    "cbrt_v2 cosine_v2 exponential_minus_one_v2 exponential_v2 log_plus_one_v2 log_v2": "result_accuracy",
    "logistic_v2 rsqrt_v2 sine_v2 sqrt_v2 tan_v2 tanh_v2": "result_accuracy",
    "cholesky_v1": "lower",
    "collective_broadcast_v1": _GROUPS,
    "collective_broadcast_v2": f"{_GROUPS} has_dynamic_root",
    "collective_reduce_v1": f"{_GROUPS} use_global_device_ids has_dynamic_root",
    "collective_permute_v1": "source_target_pairs channel_id",
    "compare_v1": "comparison_direction compare_type",
    "composite_v1 composite_v2": _COMPOSITE,
    "concatenate_v1": "dimension",
    "constant_v1": "value",
    "convolution_v1 dynamic_conv_v1": f"{_CONV} padding",
    "dynamic_conv_v2": _CONV,
    "cross-replica-sum_v1": "replica_groups",
    "custom_call_v1": _CUSTOM,
    "custom_call_v2": f"{_CUSTOM} result_tilings",
    "dot_general_v1": f"{_DOT_SIDES} precision_config",
    "dot_general_v2": f"{_DOT_SIDES} precision_config {_ALGORITHM}",
    "dot_v1": "precision_config",
    "dynamic_broadcast_in_dim_v1": _BROADCAST,
    "dynamic_gather_v1": f"{_GATHER_V1} indices_are_sorted",
    "dynamic_gather_v2": f"{_GATHER} indices_are_sorted",
    "dynamic_iota_v1 iota_v1": "iota_dimension",
    "dynamic_slice_v1": "slice_sizes",
    "einsum_v1 unary_einsum_v1": "einsum_config",
    "fft_v1": "fft_type fft_length",
    "func_v1": "sym_name function_type sym_visibility arg_attrs res_attrs",
    "gather_v1": f"{_GATHER_V1} slice_sizes indices_are_sorted",
    "gather_v2": f"{_GATHER} slice_sizes indices_are_sorted",
    "get_dimension_size_v1 set_dimension_size_v1": "dimension",
    "get_tuple_element_v1": "index",
    "infeed_v1": "infeed_config layout",
    "map_v1 reduce_v1 reverse_v1": "dimensions",
    "outfeed_v1": "outfeed_config",
    "pad_v1": "edge_padding_low edge_padding_high interior_padding",
    "recv_v1 send_v1": "channel_id channel_type is_host_transfer",
    "recv_v2 send_v2": "channel_id channel_type is_host_transfer source_target_pairs",
    "reduce_precision_v1": "exponent_bits mantissa_bits",
    "reduce_scatter_v1": f"scatter_dimension use_global_device_ids {_GROUPS}",
    "reduce_window_v1": "window_dimensions window_strides base_dilations window_dilations padding",
    "rng_bit_generator_v1": "rng_algorithm",
    "rng_v1": "rng_distribution",
    "scatter_v1": f"{_SCATTER_V1} indices_are_sorted unique_indices",
    "scatter_v2": f"{_SCATTER} indices_are_sorted unique_indices",
    "select_and_scatter_v1": "window_dimensions window_strides padding",
    "slice_v1": "start_indices limit_indices strides",
    "sort_v1": "dimension is_stable",
    "torch_index_select_v1": "dim batch_dims",
    "transpose_v1": "permutation",
    "triangular_solve_v1": "left_side lower unit_diagonal transpose_a",
}
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    name: tuple(sorted(names.split())) for row, names in _ROWS.items() for name in row.split()
}
"""The names of an operation's attributes, as its properties have them one after another."""
_RECORDS: dict[str, tuple[str, str]] = {
    "convolution": ("dimension_numbers", _CONV_SIDES),
    "dynamic_conv": ("dimension_numbers", _CONV_SIDES),
    "dot_general": ("dot_dimension_numbers", _DOT_SIDES),
    "gather": ("dimension_numbers", _GATHER),
    "dynamic_gather": ("dimension_numbers", _GATHER),
    "scatter": ("scatter_dimension_numbers", _SCATTER),
}
"""The attribute that holds several of VHLO's, and which."""
_DEFAULTS: dict[str, Attribute] = {
    "sym_visibility": "",
    "compare_type": Raw("NOTYPE"),
    "result_accuracy": Raw("DEFAULT"),
    "dimension": -1,
    "version": 0,
}
_VERSION = re.compile(r"_v\d+$")
_TYPES = Types({})


def plain_name(name: str) -> str:
    """``dot_general_v2`` -> ``dot_general``."""
    return _VERSION.sub("", name)


def as_stablehlo(name: str, found: dict[str, Attribute]) -> dict[str, Attribute]:
    """The attributes of StableHLO's operation of that (plain) name, defaults left out."""
    made = {key: value for key, value in found.items() if not _is_default(key, value)}
    if name in _RECORDS:
        key, fields = _RECORDS[name]
        made[key] = {f: _numbers(found[f]) for f in fields.split() if f in found}
        made = {k: v for k, v in made.items() if k not in fields.split()}
    if name == "dot_general":
        made = _with_algorithm(made)
    if "channel_id" in found:
        made.pop("channel_id", None)
        handle = {"handle": found["channel_id"], "type": found.get("channel_type", 0)}
        if found["channel_id"] != 0:
            made["channel_handle"] = handle
    for symbol in ("callee", "decomposition"):
        value = made.get(symbol)
        if isinstance(value, str):
            made[symbol] = Symbol(value)
    called = made.get("called_computations")
    if isinstance(called, tuple):
        made["called_computations"] = tuple(Symbol(str(name)) for name in called)
    return made


def _is_default(key: str, value: Attribute) -> bool:
    """Whether an attribute says what is so without it."""
    if key in _DEFAULTS:
        return value == _DEFAULTS[key]
    if key == "precision_config":
        return isinstance(value, tuple) and all(v == Raw("DEFAULT") for v in value)
    return value in ((), {})


def _with_algorithm(made: dict[str, Attribute]) -> dict[str, Attribute]:
    algorithm = {name: made.pop(name) for name in _ALGORITHM.split() if name in made}
    if algorithm and algorithm.get("lhs_component_count") != Raw(NO_TYPE):
        algorithm.setdefault("allow_imprecise_accumulation", False)
        made["algorithm"] = algorithm
    return made


def _numbers(value: Attribute) -> Attribute:
    """A literal's numbers, as records have them."""
    if not isinstance(value, Dense):
        return value
    shape = _TYPES.type(value.type_text)
    if not isinstance(shape, ArrayShape):
        raise ValueError(f"numbers of type {value.type_text}")
    return tuple(int(n) for n in parse_dense(value.text, shape).reshape(-1).tolist())
