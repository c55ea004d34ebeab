"""Communication between devices -> HLO collectives."""

from __future__ import annotations

from compiler.frontends.stablehlo.attributes import Attributes
from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.mesh_groups import mesh_axes_groups
from compiler.frontends.stablehlo.reduction import region_computation
from compiler.frontends.stablehlo.syntax import Operation, Raw
from compiler.hlo.dtypes import U32
from compiler.hlo.shape import ArrayShape


def groups(b: Body) -> dict[str, object]:
    """channel_id, replica_groups and use_global_device_ids of the present operation."""
    a = b.attributes()
    attrs = _channel(b)
    attrs["replica_groups"] = _replica_groups(b, a)
    if a.flag("use_global_device_ids"):
        attrs["use_global_device_ids"] = True
    return attrs


def _replica_groups(b: Body, a: Attributes) -> tuple[tuple[int, ...], ...]:
    value = a.get("replica_groups")
    if isinstance(value, Raw) and "replica_group_mesh_axes" in value.text:
        try:
            return mesh_axes_groups(value.text, b.unit.document.meshes)
        except ValueError as error:
            b.op.fail(f"replica_groups: {error}")
    rows = a.pairs("replica_groups") or ()
    return tuple(tuple(i for i in row if i >= 0) for row in rows)


def _channel(b: Body) -> dict[str, object]:
    handle = b.attributes().record("channel_handle").integer("handle", 0)
    return {"channel_id": handle} if handle > 0 else {}


def _all_gather(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    dim = b.attributes().integer("all_gather_dim")
    attrs = groups(b) | {"dimensions": (dim,)}
    declared = b.pack_types(b.result_types())
    return b.results_of(b.instruction("all-gather", operands, attrs, declared), len(operands))


def _all_reduce(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    attrs = groups(b) | {"to_apply": region_computation(b, op, 0, "reducer")}
    return b.results_of(b.instruction("all-reduce", operands, attrs), len(operands))


def _reduce_scatter(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    dim = b.attributes().integer("scatter_dimension")
    attrs = groups(b) | {"dimensions": (dim,)}
    attrs["to_apply"] = region_computation(b, op, 0, "reducer")
    declared = b.pack_types(b.result_types())
    return b.results_of(b.instruction("reduce-scatter", operands, attrs, declared), len(operands))


def _all_to_all(b: Body, op: Operation) -> list[Instr]:
    return [_all_to_all_of(b, operand) for operand in b.operands()]


def _all_to_all_of(b: Body, operand: Instr) -> Instr:
    """HLO splits and joins along one dimension; moving the join elsewhere is a transpose."""
    a = b.attributes()
    split, concat = a.integer("split_dimension"), a.integer("concat_dimension")
    count = a.integer("split_count")
    dims = operand.array.dims
    if not (0 <= split < len(dims) and 0 <= concat < len(dims)) or dims[split] % count:
        b.op.fail(f"dimension {split} of {list(dims)} does not split into {count}")
    exchanged = b.instruction("all-to-all", (operand,), groups(b) | {"dimensions": (split,)})
    if split == concat:
        return exchanged
    parts = b.reshape(exchanged, [*dims[:split], count, dims[split] // count, *dims[split + 1 :]])
    order: list[int] = []
    for dim in range(len(dims)):
        if dim == concat:
            order.append(split)
        order.append(dim + 1 if dim >= split else dim)
    sizes = list(dims)
    sizes[split] //= count
    sizes[concat] *= count
    return b.reshape(b.transpose(parts, order), sizes)


def _collective_permute(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    pairs = b.attributes().pairs("source_target_pairs") or ()
    attrs = _channel(b) | {"source_target_pairs": pairs}
    return b.results_of(b.instruction("collective-permute", operands, attrs), len(operands))


def _collective_broadcast(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    made = b.instruction("collective-broadcast", operands, groups(b))
    return b.results_of(made, len(operands))


def ragged_all_to_all(b: Body, op: Operation) -> Instr:
    """JAX's custom call, whose groups and channel stand in its backend_config."""
    config = op.attributes.get("backend_config")
    if not isinstance(config, dict):
        op.fail("ragged_all_to_all: want backend_config = {replica_groups = ..}")
    op.attributes = {**op.attributes, **config}
    attrs: dict[str, object] = {"replica_groups": _replica_groups(b, b.attributes())}
    channel = b.attributes().integer("channel_id", 0)
    if channel > 0:
        attrs["channel_id"] = channel
    return b.instruction("ragged-all-to-all", b.operands(), attrs)


def _device_id(opcode: str) -> Lowering:
    def lower(b: Body, op: Operation) -> Instr:
        take(b, op, 0)
        return b.instruction(opcode, (), None, ArrayShape(U32, ()))

    return lower


TABLE: dict[str, Lowering] = {
    "stablehlo.all_gather": _all_gather,
    "stablehlo.all_reduce": _all_reduce,
    "stablehlo.all_to_all": _all_to_all,
    "stablehlo.collective_broadcast": _collective_broadcast,
    "stablehlo.collective_permute": _collective_permute,
    "stablehlo.partition_id": _device_id("partition-id"),
    "stablehlo.reduce_scatter": _reduce_scatter,
    "stablehlo.replica_id": _device_id("replica-id"),
}
