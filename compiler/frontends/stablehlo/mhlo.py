"""The ``mhlo`` dialect: what XLA writes for HLO that StableHLO has no operation for.

What has a namesake in StableHLO or CHLO, ``mhlo.add`` or ``mhlo.erf``, is that operation. The rest is
here: HLO's copies, bitcasts, fusions and the like, each of which becomes the opcode it came from.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.frontends.stablehlo import chlo
from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.collective import groups
from compiler.frontends.stablehlo.control import call
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.movement import reshape
from compiler.frontends.stablehlo.reduction import region_computation
from compiler.frontends.stablehlo.syntax import Operation
from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.shape import ArrayShape

_OF_CLIENTS = (*chlo.NAMESAKES, "ragged_dot", "scan", "topk")
"""Operations that ``chlo`` has, too."""


def with_namesakes(table: Mapping[str, Lowering]) -> dict[str, Lowering]:
    """The ``mhlo`` operations: the namesakes of those in `table`, and those of this file."""
    named = {
        name.replace("stablehlo.", "mhlo."): lowering
        for name, lowering in table.items()
        if name.startswith("stablehlo.")
    }
    clients = {f"mhlo.{name}": chlo.TABLE[f"chlo.{name}"] for name in _OF_CLIENTS}
    return {**named, **clients, "mhlo.all_to_all": _all_to_all(named["mhlo.all_to_all"]), **_OWN}


def _copy(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    return b.instruction("copy", (operand,))


def _domain(b: Body, op: Operation) -> Instr:
    """A border between shardings, which stand at the values themselves."""
    (operand,) = take(b, op, 1)
    return operand


def _add_dependency(b: Body, op: Operation) -> Instr:
    value, token = take(b, op, 2)
    return b.instruction("add-dependency", (value, token))


def _bitcast(b: Body, op: Operation) -> Instr:
    """The bytes of an array in one layout, read as an array in another."""
    (operand,) = take(b, op, 1)
    source = operand.array
    result = b.static_result()
    before = _major_to_minor(b, "source_layout", source)
    after = _major_to_minor(b, "result_layout", result)
    laid = operand if before == _in_order(source) else b.transpose(operand, before)
    shape = ArrayShape(result.dtype, tuple(result.dims[d] for d in after))
    if shape.dtype is source.dtype:
        read = reshape(b, laid, shape.dims)
    else:
        read = b.instruction("bitcast", (laid,), None, shape)
    return read if after == _in_order(result) else b.transpose(read, _inverse(after))


def _in_order(shape: ArrayShape) -> tuple[int, ...]:
    return tuple(range(shape.rank))


def _major_to_minor(b: Body, name: str, shape: ArrayShape) -> tuple[int, ...]:
    order = b.attributes().ints(name) if b.attributes().has(name) else ()
    order = tuple(reversed(order)) or _in_order(shape)
    if sorted(order) != list(_in_order(shape)):
        b.op.fail(f"{name}: want an order of {shape.rank} dimensions")
    return order


def _inverse(order: tuple[int, ...]) -> list[int]:
    return [order.index(d) for d in range(len(order))]


def _fusion(b: Body, op: Operation) -> list[Instr]:
    body = region_computation(b, op, 0, "fused_computation")
    text = b.attributes().word("fusion_kind", "kLoop")
    kind = text if text.startswith("k") else "kLoop"
    operands = b.operands()
    made = b.instruction("fusion", operands, {"kind": kind, "calls": body})
    return b.results_of(made, op.result_count)


def _stochastic_convert(b: Body, op: Operation) -> Instr:
    operand, noise = take(b, op, 2)
    return b.instruction("stochastic-convert", (operand, noise), None, b.static_result())


def _random_state(b: Body, op: Operation) -> Instr:
    take(b, op, 0)
    attrs: dict[str, object] = {"delta": b.attributes().integer("delta")}
    return b.instruction("rng-get-and-update-state", (), attrs, ArrayShape(BY_NAME["u64"], (2,)))


def _async_start(b: Body, op: Operation) -> Instr:
    name = b.attributes().string("called_computation")
    return b.pack(call(b, op, name, b.operands()))


def _all_to_all(along: Lowering) -> Lowering:
    """Of one array along a dimension, or of several whole arrays, one for each device."""

    def lower(b: Body, op: Operation) -> Instr | list[Instr]:
        if b.attributes().has("split_dimension"):
            result = along(b, op)
            return result if isinstance(result, Instr) else list(result)
        operands = b.operands()
        made = b.instruction("all-to-all", operands, groups(b))
        return b.results_of(made, len(operands))

    return lower


_OWN: dict[str, Lowering] = {
    "mhlo.add_dependency": _add_dependency,
    "mhlo.async_start": _async_start,
    "mhlo.bitcast": _bitcast,
    "mhlo.copy": _copy,
    "mhlo.domain": _domain,
    "mhlo.fusion": _fusion,
    "mhlo.stochastic_convert": _stochastic_convert,
    "mhlo.xla.rng_get_and_update_state": _random_state,
}
