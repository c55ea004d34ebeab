"""Shapes of collectives: what one device holds before and after."""

from __future__ import annotations

from compiler.hlo.attributes import IotaReplicaGroups
from compiler.hlo.dtypes import U32
from compiler.hlo.inference.context import (
    Inference,
    Rule,
    declared,
    dims_text,
    first_operand,
    one_or_tuple,
    plain,
)
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves


def _group_size(q: Inference) -> int | None:
    """Devices per group; None when the module does not say (all devices take part)."""
    groups = q.attrs.get("replica_groups", ())
    if isinstance(groups, IotaReplicaGroups):
        return groups.dims[1]
    if not isinstance(groups, tuple):
        q.fail("want replica_groups={{...}}")
    if not groups:
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
    operands = q.arrays()
    dim = _dimension(q, operands[0].rank)
    size = _group_size(q)
    if size is not None:
        return one_or_tuple([_scaled(o, dim, o.dims[dim] * size) for o in operands])
    results = leaves(q.declared_shape())
    q.require(len(results) == len(operands), "want one result per operand")
    return one_or_tuple(
        [_scaled(o, dim, r.dims[dim]) for o, r in zip(operands, results, strict=True)]
    )


def _reduce_scatter(q: Inference) -> Shape:
    operands = q.arrays()
    dim = _dimension(q, operands[0].rank)
    size = _group_size(q)
    if size is None:
        results = leaves(q.declared_shape())
        q.require(len(results) == len(operands), "want one result per operand")
        return one_or_tuple(
            [_scaled(o, dim, r.dims[dim]) for o, r in zip(operands, results, strict=True)]
        )
    for operand in operands:
        if operand.dims[dim] % size:
            q.fail(f"dimension {dim} of {dims_text(operand)} does not divide by {size}")
    return one_or_tuple([_scaled(o, dim, o.dims[dim] // size) for o in operands])


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


RULES: dict[str, Rule] = {
    "all-gather": _all_gather,
    "all-gather-done": _done_second,
    "all-gather-start": declared,
    "all-reduce": _same_as_operands,
    "all-reduce-done": first_operand,
    "all-reduce-start": _same_as_operands,
    "all-to-all": _all_to_all,
    "collective-broadcast": _same_as_operands,
    "collective-permute": _collective_permute,
    "collective-permute-done": _done_second,
    "collective-permute-start": declared,
    "collective-reduce": _same_as_operands,
    "partition-id": _device_id,
    "ragged-all-to-all": _second_operand,
    "reduce-scatter": _reduce_scatter,
    "replica-id": _device_id,
}
