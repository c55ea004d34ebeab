"""Constants and data movement: broadcasts, reshapes, slices, gather and scatter."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.dense import parse_dense
from compiler.frontends.stablehlo.elementwise import take, take_some
from compiler.frontends.stablehlo.reduction import promoted
from compiler.frontends.stablehlo.syntax import Dense, Operation, Raw
from compiler.hlo.shape import ArrayShape


def _constant(b: Body, op: Operation) -> Instr:
    value = b.attributes().get("value")
    if isinstance(value, Raw):
        op.fail(f"{value.text}: only dense<...> constants are supported")
    if not isinstance(value, Dense):
        op.fail("want dense<...>")
    try:
        return b.dense(parse_dense(value.text, _constant_shape(b, value)))
    except ValueError as error:
        op.fail(str(error))


def _constant_shape(b: Body, value: Dense) -> ArrayShape:
    shape = b.unit.types.type(value.type_text) if value.type_text else b.static_result()
    if not isinstance(shape, ArrayShape):
        b.op.fail("want a tensor type")
    return shape


def _iota(b: Body, op: Operation) -> Instr:
    shape = b.static_result()
    return b.iota(shape.dtype, shape.dims, b.attributes().integer("iota_dimension"))


def _broadcast_in_dim(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    dims = b.attributes().ints("broadcast_dimensions")
    return broadcast_in_dim(b, operand, b.static_result().dims, dims)


def broadcast_in_dim(b: Body, operand: Instr, sizes: Sequence[int], dims: Sequence[int]) -> Instr:
    """Broadcast where operand dimensions of size 1 may grow: HLO drops those first."""
    source, sizes = operand.array.dims, tuple(sizes)
    if len(dims) != len(source) or any(not 0 <= d < len(sizes) for d in dims):
        b.op.fail(f"broadcast dimensions {list(dims)} do not fit a tensor of rank {len(source)}")
    in_order = list(dims) == sorted(dims)
    if (
        in_order
        and operand.array.element_count == ArrayShape(operand.array.dtype, sizes).element_count
    ):
        return operand if source == sizes else b.reshape(operand, sizes)
    grown = [i for i, d in enumerate(dims) if source[i] == 1 and sizes[d] != 1]
    kept = [i for i in range(len(source)) if i not in grown]
    if grown:
        operand = b.reshape(operand, [source[i] for i in kept])
    return b.broadcast(operand, sizes, [dims[i] for i in kept])


def _broadcast(b: Body, op: Operation) -> Instr:
    """New dimensions in front."""
    (operand,) = take(b, op, 1)
    sizes = b.attributes().ints("broadcast_sizes")
    dims = range(len(sizes), len(sizes) + operand.array.rank)
    return b.broadcast(operand, (*sizes, *operand.array.dims), tuple(dims))


def _reshape(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    return reshape(b, operand, b.static_result().dims)


def reshape(b: Body, operand: Instr, dims: Sequence[int]) -> Instr:
    """The same elements under other dimensions."""
    return operand if operand.array.dims == tuple(dims) else b.reshape(operand, dims)


def _transpose(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    return b.transpose(operand, b.attributes().ints("permutation"))


def _reverse(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    return b.reverse(operand, b.attributes().ints("dimensions"))


def _slice(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    a = b.attributes()
    starts, limits = a.ints("start_indices"), a.ints("limit_indices")
    strides = a.ints("strides", (1,) * len(starts))
    if not len(starts) == len(limits) == len(strides):
        op.fail("start_indices, limit_indices and strides differ in length")
    return b.slice(operand, starts, limits, strides)


def _pad(b: Body, op: Operation) -> Instr:
    operand, value = take(b, op, 2)
    a = b.attributes()
    low, high = a.ints("edge_padding_low"), a.ints("edge_padding_high")
    interior = a.ints("interior_padding", (0,) * len(low))
    if not len(low) == len(high) == len(interior):
        op.fail("low, high and interior differ in length")
    return b.pad(operand, value, list(zip(low, high, interior, strict=True)))


def _concatenate(b: Body, op: Operation) -> Instr:
    operands = take_some(b, op, 1)
    return (
        operands[0]
        if len(operands) == 1
        else b.concatenate(operands, b.attributes().integer("dimension"))
    )


def _dynamic_slice(b: Body, op: Operation) -> Instr:
    operand, *starts = take_some(b, op, 1)
    return b.dynamic_slice(operand, starts, b.attributes().ints("slice_sizes"))


def _dynamic_update_slice(b: Body, op: Operation) -> Instr:
    operand, update, *starts = take_some(b, op, 2)
    return b.dynamic_update_slice(operand, update, starts)


def _gather(b: Body, op: Operation) -> Instr:
    operand, indices = take(b, op, 2)
    return gather(b, operand, indices, b.attributes().ints("slice_sizes"))


def gather(b: Body, operand: Instr, indices: Instr, slice_sizes: Sequence[int]) -> Instr:
    """A gather by the present operation's dimension numbers."""
    a = b.attributes()
    numbers = a.record("dimension_numbers")
    attrs: dict[str, object] = {
        "offset_dims": numbers.ints("offset_dims"),
        "collapsed_slice_dims": numbers.ints("collapsed_slice_dims"),
        "start_index_map": numbers.ints("start_index_map"),
        "index_vector_dim": numbers.integer("index_vector_dim", 0),
        "slice_sizes": tuple(slice_sizes),
    }
    if numbers.ints("operand_batching_dims"):
        attrs["operand_batching_dims"] = numbers.ints("operand_batching_dims")
        attrs["start_indices_batching_dims"] = numbers.ints("start_indices_batching_dims")
    if a.flag("indices_are_sorted"):
        attrs["indices_are_sorted"] = True
    return b.instruction("gather", (operand, indices), attrs)


def _scatter(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    count = len(operands) // 2
    a = b.attributes()
    numbers = a.record("scatter_dimension_numbers")
    attrs: dict[str, object] = {
        "update_window_dims": numbers.ints("update_window_dims"),
        "inserted_window_dims": numbers.ints("inserted_window_dims"),
        "scatter_dims_to_operand_dims": numbers.ints("scatter_dims_to_operand_dims"),
        "index_vector_dim": numbers.integer("index_vector_dim", 0),
    }
    if numbers.ints("input_batching_dims"):
        attrs["input_batching_dims"] = numbers.ints("input_batching_dims")
        attrs["scatter_indices_batching_dims"] = numbers.ints("scatter_indices_batching_dims")
    for flag in ("indices_are_sorted", "unique_indices"):
        if a.flag(flag):
            attrs[flag] = True
    if len(op.regions) != 1:
        op.fail("want one region")
    body = attrs["to_apply"] = b.embedded(op.regions[0], "scatter_update")
    types = [p.array.dtype for p in body.parameters[:count]]
    if len(types) == count:
        taken = promoted(b, operands[:count], types)
        updates = promoted(b, operands[count + 1 :], types)
        operands = [*taken, operands[count], *updates]
    return b.results_of(b.instruction("scatter", operands, attrs), count)


TABLE: dict[str, Lowering] = {
    "stablehlo.broadcast": _broadcast,
    "stablehlo.broadcast_in_dim": _broadcast_in_dim,
    "stablehlo.concatenate": _concatenate,
    "stablehlo.constant": _constant,
    "stablehlo.dynamic_slice": _dynamic_slice,
    "stablehlo.dynamic_update_slice": _dynamic_update_slice,
    "stablehlo.gather": _gather,
    "stablehlo.iota": _iota,
    "stablehlo.pad": _pad,
    "stablehlo.reshape": _reshape,
    "stablehlo.reverse": _reverse,
    "stablehlo.scatter": _scatter,
    "stablehlo.slice": _slice,
    "stablehlo.transpose": _transpose,
}
