"""Shardy's operations. Shardings themselves are read in `annotations.py`."""

from __future__ import annotations

import re

from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.control import inline_region
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.movement import TABLE as MOVEMENT
from compiler.frontends.stablehlo.syntax import Attribute, Operation, Raw
from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.escapes import quote
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import Shape, TupleShape

_DIRECTIONS = ("NONE", "FORWARD", "BACKWARD", "BOTH")
"""Of propagation, by their numbers."""


def _sharding_constraint(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    value = op.attributes.get("sharding")
    if b.unit.device_count == 1 or not isinstance(value, Raw):
        return operand
    return b.annotated(operand, {"sdy.sharding": value})


def _propagation_barrier(b: Body, op: Operation) -> Instr:
    """A barrier to propagation, which its `allowed_direction` may leave open on one side."""
    (operand,) = take(b, op, 1)
    if b.unit.device_count == 1:
        return operand
    direction = op.attributes.get("allowed_direction")
    if isinstance(direction, int) and 0 <= direction < len(
        _DIRECTIONS
    ):  # as the generic form has it
        direction = _DIRECTIONS[direction]
    text = direction.text if isinstance(direction, Raw) else str(direction or "NONE")
    found = re.search("|".join(_DIRECTIONS), text)
    if found is None:
        op.fail(f"allowed_direction is {text}, want NONE, FORWARD, BACKWARD or BOTH")
    return _note(b, operand, "PropagationBarrier", "allowed_direction", found[0], operand.shape)


def _sharding_group(b: Body, op: Operation) -> list[Instr]:
    """Values of one group are sharded alike."""
    (operand,) = take(b, op, 1)
    if b.unit.device_count > 1:
        number = b.attributes().integer("group_id")
        text = f"{number} : i64"
        _note(b, operand, "ShardingGroup", "sharding_group_id", text, TupleShape(()))
    return []


def _note(b: Body, operand: Instr, name: str, key: str, text: str, shape: Shape) -> Instr:
    """One of XLA's custom calls that say something about their operand's sharding."""
    attrs: dict[str, object] = {
        "custom_call_target": f"xla.sdy.{name}",
        "custom_call_has_side_effect": True,
        "frontend_attributes": FrontendAttributes(((f"xla.sdy.{key}", quote(text)),)),
    }
    return b.instruction("custom-call", [operand], attrs, shape)


def _manual_computation(b: Body, op: Operation) -> list[Instr]:
    """The body of a shard_map, between XLA's two marks of where shapes become a device's own."""
    operands = b.operands()
    if len(op.regions) != 1:
        op.fail("want one region")
    region = op.regions[0]
    if b.unit.device_count == 1:
        return inline_region(b, op, region, operands)
    local: tuple[Shape, ...] = tuple(b.unit.type(text, op) for _, text in region.arguments)
    result_shapes = b.result_types()
    child = Body(b.unit, "xla.sdy.manual_computation_body", op)
    inside: list[Instr] = []
    if operands:
        entered = _mark(b, "xla.sdy.GlobalToLocalShape", "in_shardings", operands, local)
        inside = [b.get_tuple_element(entered, i) for i in range(len(operands))]
    for (argument, text), _ in zip(region.arguments, inside, strict=True):
        child.bind(argument, child.parameter(b.unit.type(text, op), argument[1:]))
    body = _finish(child, child.lower_block(region.operations))
    called = b.call(body, inside)
    called.attrs["frontend_attributes"] = FrontendAttributes((("inlineable", '"false"'),))
    if not result_shapes:
        return []
    values = [b.get_tuple_element(called, i) for i in range(len(result_shapes))]
    left = _mark(b, "xla.sdy.LocalToGlobalShape", "out_shardings", values, result_shapes)
    return [b.get_tuple_element(left, i) for i in range(len(result_shapes))]


def _finish(child: Body, results: list[Instr]) -> HloComputation:
    return child.build(child.tuple(results))


def _mark(
    b: Body, target: str, key: str, operands: list[Instr], shapes: tuple[Shape, ...]
) -> Instr:
    shardings = b.op.attributes.get(key)
    text = shardings.text if isinstance(shardings, Raw) else "[]"
    if not text.startswith("#"):
        text = f"#sdy.sharding_per_value<{text}>"
    axes = b.op.attributes.get("manual_axes", {})
    named = axes.text if isinstance(axes, Raw) else _axes_text(axes)
    items = ((f"xla.sdy.{key}", quote(text)), ("xla.sdy.manual_axes", quote(named)))
    attrs: dict[str, object] = {
        "custom_call_target": target,
        "custom_call_has_side_effect": True,
        "frontend_attributes": FrontendAttributes(tuple(sorted(items))),
    }
    return b.instruction("custom-call", operands, attrs, TupleShape(shapes))


def _axes_text(axes: Attribute) -> str:
    names = ", ".join(f'"{name}"' for name in axes) if isinstance(axes, dict) else ""
    return f"#sdy<manual_axes{{{names}}}>"


TABLE: dict[str, Lowering] = {
    "sdy.constant": MOVEMENT["stablehlo.constant"],
    "sdy.manual_computation": _manual_computation,
    "sdy.propagation_barrier": _propagation_barrier,
    "sdy.reshard": _sharding_constraint,
    "sdy.sharding_constraint": _sharding_constraint,
    "sdy.sharding_group": _sharding_group,
}
