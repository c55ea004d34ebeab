"""Fields of HloInstructionProto -> attributes as text, by the names that HLO's text has for them.

Which of them an opcode has, and in which order they stand, its declaration says (`compiler.hlo.ops`);
here each name has one function from the instruction to the text of its value. None stands for an
attribute that is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.frontends.hlo_proto.shapes import dtype_of, shape_text
from compiler.frontends.hlo_proto.shardings import mesh_groups_text, metadata_text, sharding_text
from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.escapes import quote
from compiler.hlo.json_text import is_json_object
from compiler.hlo.window_text import encode_dim_labels, encode_padding, encode_window
from compiler.protobuf import Message

OPCODE, SHAPE, METADATA, LITERAL, PARAMETER_NUMBER = 2, 3, 7, 8, 9
_DIMENSIONS, _WINDOW, _CONV_DIMS, _CALLED, _OPERANDS = 14, 15, 16, 38, 36
_GATHER, _SCATTER, _DOT, _RAGGED, _TRIANGULAR = 33, 48, 30, 90, 59
_BODY, _CONDITION = 0, 1
_SELECT, _SCATTER_BODY = 0, 1
"""Places in the list of called computations, by the opcode."""


@dataclass(frozen=True)
class Site:
    """An instruction, the names of the computations of its module and the messages of its operands."""

    message: Message
    computations: Mapping[int, str]
    operands: tuple[Message, ...]

    def called(self) -> tuple[str, ...]:
        """The names of the computations that it calls."""
        return tuple(f"%{self.computations[i]}" for i in self.message.integers(_CALLED))


Maker = Callable[[Site], "str | None"]


def _integer(number: int, unless: int | None = None) -> Maker:
    def made(site: Site) -> str | None:
        value = site.message.integer(number)
        return None if value == unless else str(value)

    return made


def _flag(number: int) -> Maker:
    return lambda site: "true" if site.message.integer(number) else None


def _within(outer: int, number: int, inner: int = 0) -> Maker:
    """A list of numbers of a message within the instruction, or of one within that."""

    def made(site: Site) -> str | None:
        if outer not in site.message:
            return None
        part = site.message.message(outer)
        return _braced((part.message(inner) if inner else part).integers(number))

    return made


def _filled(maker: Maker) -> Maker:
    """A list that is left out when it is empty."""
    return lambda site: None if (text := maker(site)) == "{}" else text


def _list(number: int) -> Maker:
    return _filled(lambda site: _braced(site.message.integers(number)))


def _word(number: int, words: Mapping[int, str]) -> Maker:
    def made(site: Site) -> str | None:
        value = site.message.integer(number)
        if value not in words and value:
            message = f"value {value} of field {number} of HloInstructionProto is not known"
            raise ValueError(message)
        return words.get(value) or None

    return made


def _text(number: int, quoted: bool = False) -> Maker:
    def made(site: Site) -> str | None:
        value = site.message.text(number)
        return None if not value else quote(value) if quoted else value

    return made


def _braced(numbers: tuple[int, ...]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def index_text(numbers: tuple[int, ...]) -> str:
    """A place in a tuple, ``{1, 0}``."""
    return "{" + ", ".join(map(str, numbers)) + "}"


def _dimensions(site: Site) -> str | None:
    return _braced(site.message.integers(_DIMENSIONS))


def _first_dimension(site: Site) -> str | None:
    dims = site.message.integers(_DIMENSIONS)
    return str(dims[0]) if dims else None


def _called(place: int) -> Maker:
    return lambda site: site.called()[place]


def _all_called(site: Site) -> str | None:
    return "{" + ", ".join(site.called()) + "}" if site.called() else None


def _is_predicated(site: Site) -> bool:
    return dtype_of(site.operands[0].message(SHAPE)) == "pred"


def _branch(place: int) -> Maker:
    return lambda site: site.called()[place] if _is_predicated(site) else None


def _branches(site: Site) -> str | None:
    return None if _is_predicated(site) else _all_called(site)


def _slices(site: Site) -> str | None:
    parts = (part.integers_of(1, 2, 3) for part in site.message.messages(17))
    return "{" + ", ".join(f"[{a}:{b}:{stride}]" for a, b, stride in parts) + "}"


def _padding(site: Site) -> str | None:
    dims = site.message.message(21).messages(1)
    return encode_padding(tuple(dim.integers_of(1, 2, 3) for dim in dims)) or None


def _window(site: Site) -> str | None:
    dims = []
    for dim in site.message.message(_WINDOW).messages(1):
        size, stride, low, high, rhs, lhs, reversal = dim.integers_of(1, 2, 3, 4, 5, 6, 7)
        dims.append(WindowDim(size, stride, low, high, lhs, rhs, bool(reversal)))
    return encode_window(Window(tuple(dims))) if dims else None


def _dim_labels(site: Site) -> str | None:
    if _CONV_DIMS not in site.message:
        return None
    m = site.message.message(_CONV_DIMS)
    input_batch, input_feature, kernel_input, kernel_output = m.integers_of(7, 8, 3, 4)
    labels = ConvDims(
        input_batch, input_feature, m.integers(11), kernel_input, kernel_output, m.integers(6),
        m.integer(9), m.integer(10), m.integers(12),
    )  # fmt: skip
    return encode_dim_labels(labels)


_PRECISIONS = ("default", "high", "highest")
_ALGORITHMS = (
    "", "dot_any_f8_any_f8_f32", "dot_any_f8_any_f8_f32_fast_accum", "dot_f16_f16_f16", "dot_f16_f16_f32",
    "dot_bf16_bf16_bf16", "dot_bf16_bf16_f32", "dot_bf16_bf16_f32_x3", "dot_bf16_bf16_f32_x6",
    "dot_tf32_tf32_f32", "dot_tf32_tf32_f32_x3", "dot_f32_f32_f32", "dot_f64_f64_f64",
    "dot_bf16_bf16_f32_x9",
)  # fmt: skip


def _precision(site: Site) -> str | None:
    given = site.message.message(51).integers(1)
    return "{" + ",".join(_PRECISIONS[p] for p in given) + "}" if any(given) else None


def _algorithm(site: Site) -> str | None:
    if site.message.text(OPCODE) == "rng-bit-generator":
        return ("rng_default", "rng_three_fry", "rng_philox")[site.message.integer(70)]
    return _ALGORITHMS[site.message.message(51).integer(2)] or None


def _slice_sizes(site: Site) -> str | None:
    return _braced(site.message.integers(34)) if site.message.text(OPCODE) == "gather" else None


def _vector_dim(site: Site) -> str | None:
    is_gather = site.message.text(OPCODE) == "gather"
    return str(site.message.message(_GATHER if is_gather else _SCATTER).integer(4))


def _lower(site: Site) -> str | None:
    is_triangular = _TRIANGULAR in site.message
    options = site.message.message(_TRIANGULAR).integer(2) if is_triangular else None
    value = site.message.message(62).integer(1) if options is None else options
    return "true" if value else None


def _triangular(number: int) -> Maker:
    return lambda site: "true" if site.message.message(_TRIANGULAR).integer(number) else None


def _transpose_a(site: Site) -> str | None:
    value = site.message.message(_TRIANGULAR).integer(4)
    return (None, "NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")[value]


def _groups(site: Site) -> str | None:
    """Axes of a mesh (field 93), a transposed iota (92, or within 87), or lists (49, or within 87)."""
    message, listed = site.message, site.message.message(87)
    if 93 in message:
        return mesh_groups_text(message.message(93))
    if 92 in message or 2 in listed:
        return _iota_groups(message.message(92) if 92 in message else listed.message(2))
    groups = listed.messages(1) or message.messages(49)
    return "{" + ",".join(_braced(group.integers(1)) for group in groups) + "}"


def _iota_groups(iota: Message) -> str:
    count, size = iota.integers_of(1, 2)
    order = iota.integers(4)
    transposed = f"T({','.join(map(str, order))})" if len(order) > 1 else ""
    return f"[{count},{size}]<=[{','.join(map(str, iota.integers(3)))}]{transposed}"


def _pairs(site: Site) -> str | None:
    pairs = (pair.integers_of(1, 2) for pair in site.message.messages(52))
    return "{" + ",".join(map(_braced, pairs)) + "}"


def _channel(site: Site) -> str | None:
    return str(site.message.integer(26)) if site.message.integer(26) > 0 else None


def _groups_of_features(number: int) -> Maker:
    """A count of groups; older writers leave it at zero, which means one."""
    return lambda site: str(n) if (n := site.message.integer(number)) > 1 else None


def _aliasing(site: Site) -> str | None:
    parts = [
        f"{index_text(entry.integers(1))}: ({entry.integer(2)}, {index_text(entry.integers(3))})"
        for entry in site.message.messages(74)
    ]
    return "{" + ", ".join(parts) + "}" if parts else None


def _operand_layouts(site: Site) -> str | None:
    if not site.message.integer(56) or site.message.text(OPCODE) != "custom-call":
        return None
    return "{" + ", ".join(map(shape_text, site.message.messages(57))) + "}"


def _constrain_layout(site: Site) -> str | None:
    return "true" if site.message.integer(56) else None


def _domain(site: Site) -> str | None:
    """The fields are named from the operand's side (54) to the users' (55), the text the other way."""
    operand, users = map(sharding_text, (site.message.message(54), site.message.message(55)))
    return f'{{kind="sharding", entry={users}, exit={operand}}}'


def _outfeed_shape(site: Site) -> str | None:
    return shape_text(site.message.message(29)) if 29 in site.message else None


def _replication(site: Site) -> str | None:
    flags = site.message.message(61).integers(1)
    return "{" + ",".join("true" if flag else "false" for flag in flags) + "}" if flags else None


def _prefetch_index(site: Site) -> str | None:
    return str(site.message.integer(80)) if 80 in site.message else None


def _accuracy(site: Site) -> str | None:
    accuracy = site.message.message(91)
    if 2 in accuracy:
        given = accuracy.message(2)
        bounds = f"atol={given.float64(1):g},rtol={given.float64(2):g},ulps={given.integer(3)}"
        return f"{{tolerance={{{bounds}}}}}"
    return "{mode=highest}" if accuracy.integer(1) else None


_SCHEDULES = {1: "SCHEDULE_LATEST", 2: "SCHEDULE_EARLIEST"}
_API_VERSIONS = {
    1: "", 2: "API_VERSION_STATUS_RETURNING", 3: "API_VERSION_STATUS_RETURNING_UNIFIED",
    4: "API_VERSION_TYPED_FFI",
}  # fmt: skip
_FFTS = {0: "FFT", 1: "IFFT", 2: "RFFT", 3: "IRFFT"}
_DISTRIBUTIONS = {1: "rng_uniform", 2: "rng_normal"}

MAKERS: dict[str, Maker] = {
    "direction": _text(63),
    "type": _text(72),
    "exponent_bits": _integer(18),
    "mantissa_bits": _integer(19),
    "dimensions": _dimensions,
    "iota_dimension": _first_dimension,
    "inferred_dimension": lambda site: None,
    "padding": _padding,
    "parameter_replication": _replication,
    "slice": _slices,
    "dynamic_slice_sizes": lambda site: _braced(site.message.integers(20)),
    "offset_dims": _within(_GATHER, 1),
    "collapsed_slice_dims": _within(_GATHER, 2),
    "start_index_map": _within(_GATHER, 3),
    "operand_batching_dims": _filled(_within(_GATHER, 5)),
    "start_indices_batching_dims": _filled(_within(_GATHER, 6)),
    "index_vector_dim": _vector_dim,
    "slice_sizes": _slice_sizes,
    "indices_are_sorted": _flag(67),
    "update_window_dims": _within(_SCATTER, 1),
    "inserted_window_dims": _within(_SCATTER, 2),
    "scatter_dims_to_operand_dims": _within(_SCATTER, 3),
    "input_batching_dims": _filled(_within(_SCATTER, 5)),
    "scatter_indices_batching_dims": _filled(_within(_SCATTER, 6)),
    "unique_indices": _flag(69),
    "to_apply": _called(0),
    "window": _window,
    "dim_labels": _dim_labels,
    "feature_group_count": _groups_of_features(50),
    "batch_group_count": _groups_of_features(58),
    "convolution_kind": _word(97, {1: "fprop", 2: "dgrad", 3: "wgrad"}),
    "operand_precision": _precision,
    "algorithm": _algorithm,
    "lhs_contracting_dims": _filled(_within(_DOT, 1)),
    "rhs_contracting_dims": _filled(_within(_DOT, 2)),
    "lhs_batch_dims": _filled(_within(_DOT, 3)),
    "rhs_batch_dims": _filled(_within(_DOT, 4)),
    "lhs_ragged_dims": _within(_RAGGED, 2),
    "rhs_group_dims": _filled(_within(_RAGGED, 3)),
    "epsilon": lambda site: format(site.message.float32(24), ".9g"),
    "feature_index": _integer(25),
    "lower": _lower,
    "fft_type": _word(31, _FFTS),
    "fft_length": lambda site: _braced(site.message.integers(32)),
    "distribution": _word(23, _DISTRIBUTIONS),
    "delta": _integer(66),
    "select": _called(_SELECT),
    "scatter": _called(_SCATTER_BODY),
    "num_carries": _integer(95),
    "is_reverse": _flag(94),
    "is_associative": _word(96, {1: "true", 2: ""}),
    "is_stable": _flag(60),
    "k": _integer(81),
    "largest": lambda site: "true" if site.message.integer(85) else "false",
    "left_side": _triangular(1),
    "unit_diagonal": _triangular(3),
    "transpose_a": _transpose_a,
    "async_execution_thread": _text(79, quoted=True),
    "output_to_operand_aliasing": _aliasing,
    "calls": _called(0),
    "is_composite": _flag(89),
    "true_computation": _branch(0),
    "false_computation": _branch(1),
    "branch_computations": _branches,
    "cross_program_prefetch_index": _prefetch_index,
    "padding_type": _word(75, {1: "PADDING_VALID", 2: "PADDING_SAME"}),
    "custom_call_target": _text(28, quoted=True),
    "operand_layout_constraints": _operand_layouts,
    "custom_call_has_side_effect": _flag(65),
    "schedule": _word(76, _SCHEDULES),
    "api_version": _word(77, _API_VERSIONS),
    "called_computations": _all_called,
    "domain": _domain,
    "kind": _text(11),
    "index": _integer(13),
    "infeed_config": _text(27, quoted=True),
    "outfeed_shape": _outfeed_shape,
    "outfeed_config": _text(22, quoted=True),
    "channel_id": _channel,
    "is_host_transfer": _flag(47),
    "condition": _called(_CONDITION),
    "body": _called(_BODY),
    "replica_groups": _groups,
    "constrain_layout": _constrain_layout,
    "use_global_device_ids": _flag(71),
    "source_target_pairs": _pairs,
    "result_accuracy": _accuracy,
}
"""The text of each attribute of an opcode's own, by its name."""

UNNAMED = {
    "literal": "stands between the parentheses of a constant; of a custom call the printer writes none",
    "custom_call_schedule": "an older name of schedule",
    "sparsity_config": "refused",
    "has_dynamic_root": "has no field",
    "line_lanes": "of network-sort, which passes alone make",
    "num_keys": "the same",
    "results": "the same",
}
"""Attributes of the text that nothing here writes, and why."""


def common_attributes(site: Site, names: Mapping[int, str]) -> list[tuple[str, str]]:
    """What any instruction may have; `names` are those of the instructions beside it."""
    message = site.message
    found: list[tuple[str, str]] = []
    if 40 in message:
        found.append(("sharding", sharding_text(message.message(40))))
    attributes = frontend_text(message.message(68))
    if attributes:
        found.append(("frontend_attributes", attributes))
    before = message.integers(37)
    if before:
        found.append(
            ("control-predecessors", "{" + ", ".join(f"%{names[i]}" for i in before) + "}")
        )
    metadata = metadata_text(message.message(METADATA))
    if metadata:
        found.append(("metadata", metadata))
    config = message.text(43)
    if config:
        found.append(("backend_config", config if is_json_object(config) else quote(config)))
    return found


def frontend_text(attributes: Message) -> str:
    """``{key="value",other={...}}``; empty without any."""
    pairs = sorted((entry.text(1), entry.text(2)) for entry in attributes.messages(1))
    shown = (f"{key}={text if is_json_object(text) else quote(text)}" for key, text in pairs)
    return "{" + ",".join(shown) + "}" if pairs else ""
