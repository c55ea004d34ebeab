"""What lies in the properties of operations that ``write_bytecode`` writes.

The attributes of an operation come in the order of their names. Those marked by ``?`` may be absent, which
a flag says; so may those marked by ``+``, which older versions do not have at all: how many numbers the
properties are tells. Only operations with attributes are listed.
"""

from __future__ import annotations

from compiler.frontends.mlir_bytecode.ir import SIZES

_GROUPS = "channel_handle? replica_groups"
_GLOBAL = f"{_GROUPS} use_global_device_ids?"
_CONV = """batch_group_count dimension_numbers feature_group_count lhs_dilation? precision_config?
rhs_dilation? window_reversal? window_strides?"""
_CUSTOM = """api_version? backend_config? call_target_name called_computations? has_side_effect?
operand_layouts? output_operand_aliases? result_layouts? result_tilings+"""
_BROADCAST = "broadcast_dimensions known_expanding_dimensions? known_nonexpanding_dimensions?"
_TRANSFER = "channel_handle is_host_transfer? source_target_pairs+"

_STABLEHLO = {
    "all_gather": f"all_gather_dim {_GLOBAL}",
    "all_reduce": _GLOBAL,
    "all_to_all": f"concat_dimension split_count split_dimension {_GROUPS}",
    "batch_norm_grad batch_norm_inference batch_norm_training": "epsilon feature_index",
    "broadcast": "broadcast_sizes",
    "broadcast_in_dim": "broadcast_dimensions",
    "cbrt cosine exponential exponential_minus_one log log_plus_one logistic rsqrt": "result_accuracy?",
    "sine sqrt tan tanh": "result_accuracy?",
    "cholesky": "lower?",
    "collective_broadcast": f"{_GROUPS} has_dynamic_root+",
    "collective_permute": "channel_handle? source_target_pairs",
    "collective_reduce": f"{_GLOBAL} has_dynamic_root+",
    "compare": "compare_type? comparison_direction",
    "composite": "composite_attributes? decomposition name version?",
    "concatenate get_dimension_size set_dimension_size": "dimension",
    "constant": "value",
    "convolution": f"{_CONV} padding?",
    "cross-replica-sum": "replica_groups",
    "custom_call": _CUSTOM,
    "dot": "precision_config?",
    "dot_general": "algorithm+ dot_dimension_numbers precision_config?",
    "dynamic_broadcast_in_dim": _BROADCAST,
    "dynamic_conv": _CONV,
    "dynamic_gather": "dimension_numbers indices_are_sorted?",
    "dynamic_iota iota": "iota_dimension",
    "dynamic_slice": "slice_sizes",
    "einsum unary_einsum": "einsum_config",
    "fft": "fft_length fft_type",
    "gather": "dimension_numbers indices_are_sorted? slice_sizes",
    "get_tuple_element": "index",
    "infeed": "infeed_config? layout?",
    "map reduce reverse": "dimensions",
    "outfeed": "outfeed_config?",
    "pad": "edge_padding_high edge_padding_low interior_padding",
    "recv send": _TRANSFER,
    "reduce_precision": "exponent_bits mantissa_bits",
    "reduce_scatter": f"scatter_dimension {_GLOBAL}",
    "reduce_window": "base_dilations? padding? window_dilations? window_dimensions window_strides?",
    "rng": "rng_distribution",
    "rng_bit_generator": "rng_algorithm",
    "scatter": "indices_are_sorted? scatter_dimension_numbers unique_indices?",
    "select_and_scatter": "padding? window_dimensions? window_strides?",
    "slice": "limit_indices start_indices strides",
    "sort": "dimension? is_stable?",
    "torch_index_select": "batch_dims dim",
    "transpose": "permutation",
    "triangular_solve": "left_side lower transpose_a unit_diagonal",
}
_CHLO = {
    """broadcast_add broadcast_and broadcast_atan2 broadcast_complex broadcast_divide broadcast_maximum
    broadcast_minimum broadcast_multiply broadcast_next_after broadcast_or broadcast_polygamma broadcast_power
    broadcast_remainder broadcast_shift_left broadcast_shift_right_arithmetic broadcast_shift_right_logical
    broadcast_subtract broadcast_xor broadcast_zeta""": "broadcast_dimensions?",
    "broadcast_compare": "broadcast_dimensions? compare_type? comparison_direction",
    "constant constant_like": "value",
    "ragged_dot": "precision_config? ragged_dot_dimension_numbers",
    "scan": f"dimension is_associative? is_reverse? scan_dim_size? {SIZES} {SIZES}",
    "top_k": "is_stable+ k",
}
_FUNC = {
    "call": "arg_attrs? callee no_inline? res_attrs?",
    "constant": "value",
    "func": "arg_attrs? function_type no_inline? res_attrs? sym_name sym_visibility?",
}
_DIALECTS = {"stablehlo": _STABLEHLO, "chlo": _CHLO, "func": _FUNC}

_PROPERTIES: dict[str, tuple[str, ...]] = {
    f"{dialect}.{name}": tuple(sorted(names.split(), key=lambda own: (own == SIZES, own)))
    for dialect, rows in _DIALECTS.items()
    for row, names in rows.items()
    for name in row.split()
}


def properties(name: str, count: int) -> tuple[str, ...] | None:
    """The attributes in an operation's `count` properties, one after another; None for another operation.

    Those that may be absent end in ``?``.
    """
    names = _PROPERTIES.get(name)
    if names is None:
        return None
    if len(names) != count:
        names = tuple(own for own in names if not own.endswith("+"))
    return tuple(own.replace("+", "?") for own in names)
