"""Operations whose result shape is data: static ones once their shape operands are constant.

Where the declared result type is static it decides; elsewhere the shape operands are evaluated at
compile time. A shape that really depends on run-time values is refused.
"""

from __future__ import annotations

from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.contraction import convolution
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.movement import broadcast_in_dim, gather, reshape
from compiler.frontends.stablehlo.syntax import Operation
from compiler.frontends.stablehlo.types import is_static
from compiler.hlo.dtypes import S32


def result_dims(b: Body, shape: Instr) -> tuple[int, ...]:
    """The result's dimensions: as declared, or the value of the shape operand."""
    declared = b.result_array()
    return declared.dims if is_static(declared) else b.constant_ints(shape, "the shape operand")


def _dynamic_broadcast_in_dim(b: Body, op: Operation) -> Instr:
    operand, shape = take(b, op, 2)
    dims = b.attributes().ints("broadcast_dimensions")
    return broadcast_in_dim(b, operand, result_dims(b, shape), dims)


def _dynamic_iota(b: Body, op: Operation) -> Instr:
    (shape,) = take(b, op, 1)
    dimension = b.attributes().integer("iota_dimension")
    return b.iota(b.result_array().dtype, result_dims(b, shape), dimension)


def dynamic_reshape(b: Body, op: Operation) -> Instr:
    """``(x, sizes)`` in the dimensions that the sizes give."""
    operand, shape = take(b, op, 2)
    return reshape(b, operand, result_dims(b, shape))


def _real_dynamic_slice(b: Body, op: Operation) -> Instr:
    operand, start, limit, stride = take(b, op, 4)
    strides = b.constant_ints(stride, "the strides")
    starts, limits = b.constant_value(start), b.constant_value(limit)
    if starts is not None and limits is not None:
        begin = b.constant_ints(start, "the starts")
        return b.slice(operand, begin, b.constant_ints(limit, "the limits"), strides)
    return _slice_from(b, operand, start, strides)


def _slice_from(b: Body, operand: Instr, start: Instr, strides: tuple[int, ...]) -> Instr:
    """A run-time start with a known result: the box it spans, then every stride-th element."""
    sizes = b.static_result().dims
    spans = [max(0, (n - 1) * stride + 1) for n, stride in zip(sizes, strides, strict=True)]
    starts = [b.reshape(b.slice(start, (i,), (i + 1,)), ()) for i in range(operand.array.rank)]
    box = b.dynamic_slice(operand, starts, spans)
    if all(stride == 1 for stride in strides):
        return box
    return b.slice(box, (0,) * len(spans), spans, strides)


def _dynamic_pad(b: Body, op: Operation) -> Instr:
    operand, value, *amounts = take(b, op, 5)
    names = ("low padding", "high padding", "interior padding")
    low, high, interior = (
        b.constant_ints(amount, f"the {name}") for amount, name in zip(amounts, names, strict=True)
    )
    return b.pad(operand, value, list(zip(low, high, interior, strict=True)))


def _dynamic_gather(b: Body, op: Operation) -> Instr:
    operand, indices, sizes = take(b, op, 3)
    return gather(b, operand, indices, b.constant_ints(sizes, "the slice sizes"))


def _dynamic_conv(b: Body, op: Operation) -> Instr:
    lhs, rhs, padding = take(b, op, 3)
    amounts = b.constant_ints(padding, "the padding")
    return convolution(b, lhs, rhs, tuple(zip(amounts[::2], amounts[1::2], strict=True)))


def _get_dimension_size(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    dimension = b.attributes().integer("dimension")
    if not 0 <= dimension < operand.array.rank:
        op.fail(f"dim = {dimension} of a tensor of rank {operand.array.rank}")
    return b.constant(S32, operand.array.dims[dimension])


def _set_dimension_size(b: Body, op: Operation) -> Instr:
    operand, size = take(b, op, 2)
    dimension = b.attributes().integer("dimension")
    (want,) = b.constant_ints(size, "the size")
    bound = operand.array.dims[dimension]
    if want != bound:
        op.fail(f"size {want} of a dimension of {bound}: bounded dynamic shapes are not supported")
    return operand


TABLE: dict[str, Lowering] = {
    "stablehlo.dynamic_broadcast_in_dim": _dynamic_broadcast_in_dim,
    "stablehlo.dynamic_conv": _dynamic_conv,
    "stablehlo.dynamic_gather": _dynamic_gather,
    "stablehlo.dynamic_iota": _dynamic_iota,
    "stablehlo.dynamic_pad": _dynamic_pad,
    "stablehlo.dynamic_reshape": dynamic_reshape,
    "stablehlo.get_dimension_size": _get_dimension_size,
    "stablehlo.real_dynamic_slice": _real_dynamic_slice,
    "stablehlo.set_dimension_size": _set_dimension_size,
}
