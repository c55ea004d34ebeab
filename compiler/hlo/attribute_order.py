"""In which order XLA prints the attributes of each opcode, and what it leaves out or fills in.

The order is part of the text form: two tools that agree on it can compare texts byte for byte.
`printed_attributes` gives what is printed for one instruction, in that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from compiler.hlo.attributes import RawText, Window
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape, Shape
from compiler.hlo.shape_text import parse_shape, print_shape, with_default_layouts


@dataclass(frozen=True)
class Row:
    """One attribute: `omitted` is the value that is not printed, `filled` stands for absence."""

    name: str
    omitted: object = None
    filled: object = None


def _plain(names: str) -> tuple[Row, ...]:
    return tuple(Row(name) for name in names.split())


def _flags(names: str) -> tuple[Row, ...]:
    return tuple(Row(name, omitted=False) for name in names.split())


_DIMENSIONS = (Row("dimensions", filled=()),)
_APPLY = _plain("to_apply")
_PRECISION = _plain("operand_precision algorithm")
_CHANNEL = _plain("channel_id")
_TRANSFER = (*_CHANNEL, *_flags("is_host_transfer"))
_GROUPS = (*_CHANNEL, Row("replica_groups", filled=()))
_COLLECTIVE = (*_GROUPS, *_flags("constrain_layout"))
_GLOBAL_IDS = _flags("use_global_device_ids")
_ALL_REDUCE = (*_COLLECTIVE, *_GLOBAL_IDS, *_APPLY)
_ALL_GATHER = (*_COLLECTIVE, *_DIMENSIONS, *_GLOBAL_IDS)
_PERMUTE = (*_CHANNEL, *_plain("source_target_pairs slice_sizes"))
_BATCH_NORM = _plain("epsilon feature_index")
_WINDOW = (Row("window", omitted=Window(())),)
_CONV_GROUPS = (Row("feature_group_count", omitted=1), Row("batch_group_count", omitted=1))
_CONV = (*_WINDOW, *_plain("dim_labels"), *_CONV_GROUPS)
_DOT = (
    *(Row(f"{side}_{kind}_dims", omitted=() if kind == "batch" else None, filled=())
      for side in ("lhs", "rhs") for kind in ("batch", "contracting")),
)  # fmt: skip

_ROWS: dict[str, tuple[Row, ...]] = {
    "all-gather": _ALL_GATHER,
    "all-gather-start": _ALL_GATHER,
    "all-reduce": _ALL_REDUCE,
    "all-reduce-start": _ALL_REDUCE,
    "all-to-all": (*_COLLECTIVE, *_plain("dimensions")),
    "async-start": _plain("async_execution_thread output_to_operand_aliasing calls"),
    "async-update": (),
    "async-done": (),
    "batch-norm-grad": _BATCH_NORM,
    "batch-norm-inference": _BATCH_NORM,
    "batch-norm-training": _BATCH_NORM,
    "broadcast": _DIMENSIONS,
    "call": (*_APPLY, *_flags("is_composite")),
    "cholesky": _plain("lower"),
    "collective-broadcast": (*_COLLECTIVE, *_plain("has_dynamic_root")),
    "collective-permute": _PERMUTE,
    "collective-permute-start": _PERMUTE,
    "collective-reduce": _ALL_REDUCE,
    "compare": _plain("direction type"),
    "concatenate": _DIMENSIONS,
    "conditional": _plain("true_computation false_computation branch_computations"),
    "convolution": (
        *_CONV,
        *_plain("convolution_kind operand_precision"),
        *_plain("sparsity_config"),
    ),
    "copy-start": _plain("cross_program_prefetch_index"),
    "custom-call": (
        *_plain("window dim_labels"),
        *_CONV_GROUPS,
        *_PRECISION,
        *_plain("padding_type custom_call_target operand_layout_constraints"),
        *_flags("custom_call_has_side_effect"),
        *_plain("literal output_to_operand_aliasing"),
        Row("schedule", omitted="SCHEDULE_NONE"),
        Row("custom_call_schedule", omitted="SCHEDULE_NONE"),
        Row("api_version", omitted="API_VERSION_ORIGINAL"),
        *_plain("called_computations"),
    ),
    "domain": _plain("domain"),
    "dot": (*_DOT, *_PRECISION),
    "dynamic-slice": _plain("dynamic_slice_sizes"),
    "fft": _plain("fft_type fft_length"),
    "pair-fft": (*_plain("fft_type fft_length"), *_DIMENSIONS),
    "fusion": _plain("kind output_to_operand_aliasing calls"),
    "gather": (
        *_plain("offset_dims collapsed_slice_dims start_index_map"),
        Row("operand_batching_dims", omitted=()),
        Row("start_indices_batching_dims", omitted=()),
        *_plain("index_vector_dim slice_sizes"),
        *_flags("indices_are_sorted"),
    ),
    "get-dimension-size": _DIMENSIONS,
    "get-tuple-element": _plain("index"),
    "infeed": (Row("infeed_config", omitted=""),),
    "iota": _plain("iota_dimension"),
    "map": (*_DIMENSIONS, *_APPLY),
    "outfeed": (*_plain("outfeed_shape"), Row("outfeed_config", omitted="")),
    "pad": _plain("padding"),
    "parameter": _plain("parameter_replication"),
    "ragged-all-to-all": _COLLECTIVE,
    "ragged-dot": (
        *_DOT,
        Row("lhs_ragged_dims", omitted=()),
        Row("rhs_group_dims", omitted=()),
        *_PRECISION,
    ),
    "recv": _TRANSFER,
    "recv-done": _TRANSFER,
    "reduce": (*_DIMENSIONS, *_APPLY),
    "reduce-precision": _plain("exponent_bits mantissa_bits"),
    "reduce-scatter": (*_COLLECTIVE, *_GLOBAL_IDS, *_DIMENSIONS, *_APPLY),
    "reduce-window": (*_WINDOW, *_APPLY),
    "reshape": (Row("inferred_dimension", omitted=-1),),
    "reverse": _DIMENSIONS,
    "rng": _plain("distribution"),
    "rng-bit-generator": _plain("algorithm"),
    "rng-get-and-update-state": _plain("delta"),
    "scaled-dot": (*_DOT, *_PRECISION),
    "scan": (
        *_DIMENSIONS,
        *_plain("num_carries"),
        *_flags("is_reverse"),
        Row("is_associative", filled="false"),
        *_APPLY,
    ),
    "scatter": (
        *_plain("update_window_dims inserted_window_dims scatter_dims_to_operand_dims"),
        Row("input_batching_dims", omitted=()),
        Row("scatter_indices_batching_dims", omitted=()),
        *_plain("index_vector_dim"),
        *_flags("indices_are_sorted unique_indices"),
        *_APPLY,
    ),
    "select-and-scatter": (*_WINDOW, *_plain("select scatter")),
    "send": _TRANSFER,
    "send-done": _TRANSFER,
    "set-dimension-size": _DIMENSIONS,
    "slice": _plain("slice"),
    "sort": (*_DIMENSIONS, *_flags("is_stable"), *_APPLY),
    "topk": (*_plain("k"), Row("largest", filled=True), *_plain("is_stable")),
    "transpose": _DIMENSIONS,
    "triangular-solve": _plain("left_side lower unit_diagonal transpose_a"),
    "while": _plain("condition body"),
}

COMMON = ("sharding", "frontend_attributes", "control-predecessors", "statistics",
          "result_accuracy", "origin", "metadata", "backend_config")  # fmt: skip
"""What any instruction may have, in the order in which it follows the opcode's own attributes."""

_READ_ONLY = {  # read, but never printed
    "async-done": ("async_execution_thread", "calls"),
    "async-update": ("async_execution_thread", "calls"),
    "custom-call": ("to_apply",),
    "ragged-all-to-all": ("dimensions",),
}
_OF_ANY = frozenset((*COMMON, "parameter_number", "parameter_replication"))
_ACCURATE = frozenset(
    ("acos", "acosh", "asin", "asinh", "atanh", "cbrt", "cosine", "cosh", "erf", "exponential",
     "exponential-minus-one", "log", "log-plus-one", "logistic", "rsqrt", "sine", "sinh", "sqrt",
     "tan", "tanh")
)  # fmt: skip

KNOWN_NAMES = frozenset(row.name for rows in _ROWS.values() for row in rows) | {"result_accuracy"}
"""Every attribute that XLA reads of some opcode."""


@cache
def allowed_names(opcode: str) -> frozenset[str]:
    """The attributes that XLA reads of an opcode."""
    names = {row.name for row in _ROWS.get(opcode, ())} | set(_READ_ONLY.get(opcode, ()))
    names |= {"literal"} if opcode == "constant" else set()
    found = _OF_ANY | names
    return found if opcode in _ACCURATE else found - {"result_accuracy"}


_BETWEEN_PARENTHESES = ("parameter_number", "literal")


def own_attributes(instr: HloInstruction) -> Iterator[tuple[str, object]]:
    """The opcode's own attributes as XLA prints them: its order, its defaults."""
    rows = _ROWS.get(instr.opcode, ())
    for row in rows:
        value = instr.attrs.get(row.name, row.filled)
        if value is None and row.name == "outfeed_shape" and instr.operands:
            value = RawText(print_shape(with_default_layouts(instr.operands[0].shape)))
        if value is not None and value != row.omitted and not _is_default(instr, row.name, value):
            yield row.name, _completed(instr, row.name, value)
    if instr.opcode == "custom-call" and isinstance(instr.attrs.get("to_apply"), HloComputation):
        yield "called_computations", (instr.attrs["to_apply"],)
    known = {row.name for row in rows}
    for name, value in instr.attrs.items():  # names that XLA does not know, set by passes
        if name not in known and name not in COMMON and not _is_hidden(instr, name):
            yield name, value


def _is_hidden(instr: HloInstruction, name: str) -> bool:
    """What the text may say but XLA does not keep, and what stands between the parentheses."""
    if name == "literal":
        return instr.opcode == "constant"
    return (
        name in _BETWEEN_PARENTHESES
        or name in ("mode", "constrain_layout", "use_global_device_ids")
        or (instr.opcode == "custom-call" and name == "to_apply")
        or (instr.opcode in ("async-update", "async-done"))
        or (instr.opcode == "ragged-all-to-all" and name == "dimensions")
    )


def _is_default(instr: HloInstruction, name: str, value: object) -> bool:
    """Whether the value says what the instruction's operands or other attributes say already."""
    if name == "type" and instr.opcode == "compare":
        return value == _comparison_type(instr.operands[0].shape) if instr.operands else False
    if name == "operand_precision":
        return isinstance(value, tuple) and all(word == "default" for word in value)
    if name == "algorithm":
        return value == "unset"
    if name == "async_execution_thread":
        return value == "main"
    return False


def _comparison_type(shape: Shape) -> str:
    if not isinstance(shape, ArrayShape):
        return ""
    if shape.dtype.is_float or shape.dtype.is_complex:
        return "FLOAT"
    return "SIGNED" if shape.dtype.is_signed else "UNSIGNED"


def _completed(instr: HloInstruction, name: str, value: object) -> object:
    """XLA gives a map the dimensions of its result, whatever the text says."""
    if instr.opcode == "map" and name == "dimensions" and isinstance(instr.shape, ArrayShape):
        return tuple(range(instr.shape.rank))
    if name == "outfeed_shape" and isinstance(value, RawText):
        return RawText(print_shape(with_default_layouts(parse_shape(value.text))))
    if name == "operand_layout_constraints" and isinstance(value, tuple):
        return tuple(with_default_layouts(shape) for shape in value)
    return value
