"""dot, dot_general and convolution with their dimension numbers, precisions and algorithms."""

from __future__ import annotations

import re

from compiler.frontends.stablehlo.attributes import Attributes, Record
from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.syntax import Operation, Raw
from compiler.hlo.attributes import ConvDims, Window, WindowDim
from compiler.hlo.shape import ArrayShape

_ALGORITHMS = {
    ("f16", "f16", "f16", 1): "dot_f16_f16_f16",
    ("f16", "f16", "f32", 1): "dot_f16_f16_f32",
    ("bf16", "bf16", "bf16", 1): "dot_bf16_bf16_bf16",
    ("bf16", "bf16", "f32", 1): "dot_bf16_bf16_f32",
    ("bf16", "bf16", "f32", 3): "dot_bf16_bf16_f32_x3",
    ("bf16", "bf16", "f32", 6): "dot_bf16_bf16_f32_x6",
    ("bf16", "bf16", "f32", 9): "dot_bf16_bf16_f32_x9",
    ("tf32", "tf32", "f32", 1): "dot_tf32_tf32_f32",
    ("tf32", "tf32", "f32", 3): "dot_tf32_tf32_f32_x3",
    ("f32", "f32", "f32", 1): "dot_f32_f32_f32",
    ("f64", "f64", "f64", 1): "dot_f64_f64_f64",
}


def precision_attrs(b: Body, given: Attributes | None = None) -> dict[str, object]:
    """``operand_precision`` and ``algorithm`` of the present operation or as given, where not default."""
    a = given or b.attributes()
    attrs: dict[str, object] = {}
    words = tuple(word.lower() for word in a.words("precision_config"))
    if any(word != "default" for word in words):
        attrs["operand_precision"] = words
    if a.has("algorithm"):
        attrs["algorithm"] = _algorithm(b, a.record("algorithm"))
    return attrs


def _algorithm(b: Body, record: Record) -> str:
    """XLA's name of the algorithm with these types and number of passes."""
    lhs, rhs, accumulator = (
        record.word(f"{role}_type").lower()
        for role in ("lhs_precision", "rhs_precision", "accumulation")
    )
    count = record.integer("num_primitive_operations", 1)
    if lhs.startswith("f8") and rhs.startswith("f8") and accumulator == "f32":
        fast = record.fields.get("allow_imprecise_accumulation") is True
        return "dot_any_f8_any_f8_f32_fast_accum" if fast else "dot_any_f8_any_f8_f32"
    name = _ALGORITHMS.get((lhs, rhs, accumulator, count))
    if name is None:
        b.op.fail(f"algorithm {lhs} x {rhs} -> {accumulator} in {count} passes is not known to XLA")
    return name


def _dot_general(b: Body, op: Operation) -> Instr:
    lhs, rhs = take(b, op, 2)
    a = b.attributes()
    numbers = a.record(
        "dot_dimension_numbers" if a.has("dot_dimension_numbers") else "dimension_numbers"
    )
    attrs: dict[str, object] = {}
    for side in ("lhs", "rhs"):
        if batch := numbers.ints(f"{side}_batching_dimensions"):
            attrs[f"{side}_batch_dims"] = batch
        attrs[f"{side}_contracting_dims"] = numbers.ints(f"{side}_contracting_dimensions")
    declared = ArrayShape(b.result_array().dtype, ())
    return b.instruction("dot", (lhs, rhs), attrs | precision_attrs(b), declared)


def _dot(b: Body, op: Operation) -> Instr:
    """The last dimension of lhs with the first of rhs."""
    lhs, rhs = take(b, op, 2)
    if not (1 <= lhs.array.rank <= 2 and 1 <= rhs.array.rank <= 2):
        op.fail("want operands of rank 1 or 2; dot_general takes others")
    attrs: dict[str, object] = {
        "lhs_contracting_dims": (lhs.array.rank - 1,),
        "rhs_contracting_dims": (0,),
    }
    declared = ArrayShape(b.result_array().dtype, ())
    return b.instruction("dot", (lhs, rhs), attrs | precision_attrs(b), declared)


def _convolution(b: Body, op: Operation) -> Instr:
    lhs, rhs = take(b, op, 2)
    return convolution(b, lhs, rhs, b.attributes().pairs("padding"))


def convolution(
    b: Body, lhs: Instr, rhs: Instr, padding: tuple[tuple[int, ...], ...] | None
) -> Instr:
    """A convolution by the present operation's attributes, with `padding` (low, high) pairs."""
    a = b.attributes()
    dims = conv_dims(b, a)
    if lhs.array.rank != rhs.array.rank or rhs.array.rank != len(dims.kernel_spatial) + 2:
        b.op.fail(f"dimension numbers of {len(dims.kernel_spatial) + 2} dimensions")
    sizes = [rhs.array.dims[d] for d in dims.kernel_spatial]
    attrs: dict[str, object] = {"window": conv_window(b, a, sizes, padding), "dim_labels": dims}
    for name in ("feature_group_count", "batch_group_count"):
        if (count := a.integer(name, 1)) != 1:
            attrs[name] = count
    declared = ArrayShape(b.result_array().dtype, ())
    return b.instruction("convolution", (lhs, rhs), attrs | precision_attrs(b), declared)


def conv_window(
    b: Body, a: Attributes, sizes: list[int], padding: tuple[tuple[int, ...], ...] | None
) -> Window:
    """The window over the spatial dimensions."""
    rank = len(sizes)
    ones = (1,) * rank
    strides = a.ints("window_strides", ones)
    base, dilation = a.ints("lhs_dilation", ones), a.ints("rhs_dilation", ones)
    reversal = _reversal(a, rank)
    pads = padding if padding is not None else ((0, 0),) * rank
    if not all(len(v) == rank for v in (strides, base, dilation, reversal, pads)):
        b.op.fail(f"want a window of {rank} dimensions")
    return Window(
        tuple(
            WindowDim(
                size=sizes[i],
                stride=strides[i],
                pad_low=pads[i][0],
                pad_high=pads[i][1],
                base_dilation=base[i],
                window_dilation=dilation[i],
                reversal=bool(reversal[i]),
            )
            for i in range(rank)
        )
    )


def _reversal(a: Attributes, rank: int) -> tuple[int, ...]:
    value = a.get("window_reversal")
    if isinstance(value, tuple):
        return tuple(int(v is True) for v in value)
    return a.ints("window_reversal", (0,) * rank)


_LABELS = re.compile(r"\[([^\]]*)\]\s*x\s*\[([^\]]*)\]\s*->\s*\[([^\]]*)\]")


def conv_dims(b: Body, a: Attributes) -> ConvDims:
    """``[b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]`` or the record with every dimension number."""
    value = a.get("dimension_numbers")
    found = _LABELS.search(value.text) if isinstance(value, Raw) else None
    if found is None:
        return _conv_dims_of_record(b, a.record("dimension_numbers"))
    lhs, rhs, out = ([part.strip() for part in found[i].split(",")] for i in (1, 2, 3))
    spatial = [str(i) for i in range(len(lhs) - 2)]
    if not (
        sorted(lhs) == sorted(out) == sorted(["b", "f", *spatial])
        and sorted(rhs) == sorted(["i", "o", *spatial])
    ):
        b.op.fail(f"dimension numbers {found[0]}: want b, f, i, o and spatial numbers from 0 on")
    return ConvDims.of_labels(lhs, rhs, out)


def _conv_dims_of_record(b: Body, record: Record) -> ConvDims:
    dims = ConvDims(
        record.integer("input_batch_dimension", 0),
        record.integer("input_feature_dimension", 0),
        record.ints("input_spatial_dimensions"),
        record.integer("kernel_input_feature_dimension", 0),
        record.integer("kernel_output_feature_dimension", 0),
        record.ints("kernel_spatial_dimensions"),
        record.integer("output_batch_dimension", 0),
        record.integer("output_feature_dimension", 0),
        record.ints("output_spatial_dimensions"),
    )
    sides = (
        (dims.input_batch, dims.input_feature, *dims.input_spatial),
        (dims.kernel_input_feature, dims.kernel_output_feature, *dims.kernel_spatial),
        (dims.output_batch, dims.output_feature, *dims.output_spatial),
    )
    for side in sides:
        if sorted(side) != list(range(len(dims.input_spatial) + 2)):
            b.op.fail(f"dimension numbers {side}: want each dimension once")
    return dims


TABLE: dict[str, Lowering] = {
    "stablehlo.convolution": _convolution,
    "stablehlo.dot": _dot,
    "stablehlo.dot_general": _dot_general,
}
