"""Shapes of collectives: what one device holds before and after."""

from __future__ import annotations

from collections.abc import Callable

from compiler.hlo.dtypes import U32
from compiler.hlo.ops.declaration import APPLY, DIMENSIONS, AttributeRow, Op, flags, variadic, words
from compiler.hlo.ops.declaration import Trait as T
from compiler.hlo.ops.inference import (
    Inference,
    declared,
    dims_text,
    first_operand,
    one_or_tuple,
    plain,
)
from compiler.hlo.replica_groups import explicit_groups
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves


def _group_size(q: Inference) -> int | None:
    """Devices per group; None when it depends on how many devices the module has, which V11 looks at."""
    groups = explicit_groups(q.attrs.get("replica_groups", ()))
    is_of_replicas = q.opcode != "all-to-all" and not q.flag("use_global_device_ids")
    if not groups or (is_of_replicas and "channel_id" in q.attrs):
        return None
    sizes = {len(group) for group in groups}
    q.require(len(sizes) == 1, "replica groups differ in size")
    return sizes.pop()


def _dimension(q: Inference, rank: int) -> int:
    dims = q.dims_in_range("dimensions", rank)
    q.require(len(dims) == 1, "want exactly one dimension")
    return dims[0]


def _scaled(shape: ArrayShape, dim: int, size: int) -> ArrayShape:
    return plain(shape.dtype, (*shape.dims[:dim], size, *shape.dims[dim + 1 :]))


def _all_gather(q: Inference) -> Shape:
    return _along_dimension(q, lambda extent, size: extent * size)


def _reduce_scatter(q: Inference) -> Shape:
    return _along_dimension(q, lambda extent, size: extent // size, divides=True)


def _along_dimension(
    q: Inference, change: Callable[[int, int], int], *, divides: bool = False
) -> Shape:
    """Operands whose extent along the dimension changes with the group's size, or as declared."""
    operands = q.arrays()
    dim = _dimension(q, operands[0].rank)
    size = _group_size(q)
    if size is None:
        results = leaves(q.declared_shape())
        q.require(len(results) == len(operands), "want one result per operand")
        extents = [result.dims[dim] for result in results]
    else:
        for operand in operands:
            if divides and operand.dims[dim] % size:
                q.fail(f"dimension {dim} of {dims_text(operand)} does not divide by {size}")
        extents = [change(operand.dims[dim], size) for operand in operands]
    return one_or_tuple([_scaled(o, dim, n) for o, n in zip(operands, extents, strict=True)])


def _same_as_operands(q: Inference) -> Shape:
    return one_or_tuple([plain(o.dtype, o.dims) for o in q.arrays()])


def _all_to_all(q: Inference) -> Shape:
    """With `dimensions` one array is split and joined along it; without, a tuple is exchanged."""
    operands = q.arrays()
    if "dimensions" not in q.attrs:
        return TupleShape(tuple(plain(o.dtype, o.dims) for o in operands))
    dim = _dimension(q, operands[0].rank)
    size = _group_size(q)
    if size is not None and operands[0].dims[dim] % size:
        q.fail(f"dimension {dim} of {dims_text(operands[0])} does not divide by {size}")
    return one_or_tuple([plain(o.dtype, o.dims) for o in operands])


def _collective_permute(q: Inference) -> Shape:
    """One array (or several); with four operands the result is written into operand 1."""
    if len(q.shapes) == 4:
        return q.shapes[1]
    return _same_as_operands(q)


def _done_second(q: Inference) -> Shape:
    """The start half returns (operands, results, ...); the done half the results."""
    operand = q.shapes[0]
    if not isinstance(operand, TupleShape) or len(operand.elements) < 2:
        q.fail("operand must be the tuple of the start half")
    return operand.elements[1]


def _device_id(q: Inference) -> Shape:
    return plain(U32, ())


def _second_operand(q: Inference) -> Shape:
    return q.shapes[1]


_COMM = T.COLLECTIVE  # all devices run the same program, so what none of them needs may go
_COMM_ASYNC = _COMM | T.ASYNC
_GROUPED = _COMM | T.GROUPED
_CHANNEL = words("channel_id")
_COLLECTIVE = (
    *_CHANNEL,
    AttributeRow("replica_groups", filled=()),
    *flags("constrain_layout"),
)
_GLOBAL_IDS = flags("use_global_device_ids")
_ALL_REDUCE = (*_COLLECTIVE, *_GLOBAL_IDS, *APPLY)
_ALL_GATHER = (*_COLLECTIVE, *DIMENSIONS, *_GLOBAL_IDS)
_PERMUTE = (*_CHANNEL, *words("source_target_pairs slice_sizes"))

OPS = (
    variadic("all-gather", 1, _all_gather, _GROUPED | T.OVERLAPS, _ALL_GATHER),
    Op("all-gather-done", 1, _done_second, _COMM_ASYNC),
    variadic("all-gather-start", 1, declared, _COMM_ASYNC, _ALL_GATHER),
    variadic("all-reduce", 1, _same_as_operands, _GROUPED | T.CALLS, _ALL_REDUCE),
    Op("all-reduce-done", 1, first_operand, _COMM_ASYNC),
    variadic("all-reduce-start", 1, _same_as_operands, _COMM_ASYNC | T.CALLS, _ALL_REDUCE),
    variadic(
        "all-to-all", 1, _all_to_all, _GROUPED | T.OVERLAPS, (*_COLLECTIVE, *words("dimensions"))
    ),
    variadic(
        "collective-broadcast",
        1,
        _same_as_operands,
        _GROUPED,
        (*_COLLECTIVE, *words("has_dynamic_root")),
    ),
    variadic("collective-permute", 1, _collective_permute, _COMM | T.OVERLAPS, _PERMUTE),
    Op("collective-permute-done", 1, _done_second, _COMM_ASYNC),
    variadic("collective-permute-start", 1, declared, _COMM_ASYNC, _PERMUTE),
    variadic("collective-reduce", 1, _same_as_operands, _GROUPED | T.CALLS | T.UNREAD, _ALL_REDUCE),
    Op("partition-id", 0, _device_id, T.COLLECTIVE),
    Op("ragged-all-to-all", 6, _second_operand, _GROUPED, _COLLECTIVE, ("dimensions",)),
    variadic(
        "reduce-scatter",
        1,
        _reduce_scatter,
        _GROUPED | T.OVERLAPS | T.CALLS,
        (*_COLLECTIVE, *_GLOBAL_IDS, *DIMENSIONS, *APPLY),
    ),
    Op("replica-id", 0, _device_id, T.COLLECTIVE),
)
