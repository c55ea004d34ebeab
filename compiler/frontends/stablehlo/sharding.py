"""Shardings, in GSPMD's form (``mhlo.sharding = "{devices=...}"``) and Shardy's (``sdy``).

Both become HLO's ``sharding=`` attribute; Shardy's text is kept beside it as XLA keeps it, in
``frontend_attributes={xla.sdy.sharding="..."}``. In a program for one device they mean nothing.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.control import inline_region
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.syntax import Attribute, Operation, Raw
from compiler.hlo.attribute_text import quote
from compiler.hlo.attributes import FrontendAttributes, RawText
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import Shape, TupleShape

_AXIS = re.compile(r'"([^"]+)"\s*=\s*(\d+)')
_REFERENCE = re.compile(r"<\s*@([\w$.\-]+)\s*,\s*\[(.*?)\](?:\s*,[^<>]*)?\s*>", re.DOTALL)
_DIMENSION = re.compile(r"\{([^{}]*)\}")

_ANNOTATION = "Sharding"


def sharding_attrs(b: Body, attributes: dict[str, Attribute], what: str) -> dict[str, object]:
    """The HLO attributes of a value that `attributes` annotate; empty on one device."""
    if b.unit.device_count == 1:
        return {}
    gspmd = attributes.get("mhlo.sharding")
    if isinstance(gspmd, str):
        return {"sharding": RawText(gspmd)}
    shardy = attributes.get("sdy.sharding")
    if isinstance(shardy, Raw):
        return _shardy_attrs(b, shardy.text, what)
    return {}


def _shardy_attrs(b: Body, text: str, what: str) -> dict[str, object]:
    """Attributes for ``#sdy.sharding<@mesh, [{}, {"x"}]>`` or the list form of one value."""
    found = _REFERENCE.findall(text)
    if len(found) != 1:
        return {}
    full = f"#sdy.sharding{text[text.index('<@') :]}" if "per_value" not in text else text
    try:
        sharding = hlo_sharding(b.unit.document.meshes, *found[0])
    except ValueError as error:
        b.op.fail(f"{what}: {error}")
    kept = FrontendAttributes((("xla.sdy.sharding", quote(full).replace("\\'", "'")),))
    return {"sharding": RawText(sharding), "frontend_attributes": kept}


def hlo_sharding(meshes: dict[str, str], mesh_name: str, dimensions: str) -> str:
    """``{"x"}, {}`` over mesh [x=2, y=4] -> ``{devices=[2,1,4]<=[8] last_tile_dim_replicate}``."""
    if mesh_name not in meshes:
        raise ValueError(f"mesh @{mesh_name} is not defined")
    mesh = [(name, int(size)) for name, size in _AXIS.findall(meshes[mesh_name])]
    names = [name for name, _ in mesh]
    sizes = dict(mesh)
    dims = [re.findall(r'"([^"]+)"', part) for part in _DIMENSION.findall(dimensions)]
    if re.search(r'":\(', dimensions) or "device_ids" in meshes[mesh_name]:
        raise ValueError("parts of a mesh axis and explicit device ids are not supported")
    used = [axis for dim in dims for axis in dim]
    unknown = [axis for axis in used if axis not in sizes]
    if unknown:
        raise ValueError(f"axis {unknown[0]} is not in mesh @{mesh_name}")
    if not used:
        return "{replicated}"
    tiles = [math.prod(sizes[axis] for axis in dim) for dim in dims]
    rest = [name for name in names if name not in used]
    replicas = math.prod(sizes[name] for name in rest)
    if replicas > 1:
        tiles.append(replicas)
    order = [names.index(axis) for axis in (*used, *rest)]
    text = f"devices=[{_join(tiles)}]<={_iota([size for _, size in mesh], order)}"
    return "{" + text + (" last_tile_dim_replicate}" if replicas > 1 else "}")


def _iota(sizes: list[int], order: list[int]) -> str:
    """``[8]`` or ``[2,4]T(1,0)``: a transposed iota, axes that stay neighbours being merged."""
    order = [axis for axis in order if sizes[axis] > 1]
    runs: list[list[int]] = []
    significant = [axis for axis, size in enumerate(sizes) if size > 1]
    following = dict(itertools.pairwise(significant))
    for axis in order:
        if runs and following.get(runs[-1][-1]) == axis:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    if len(runs) <= 1:
        return f"[{math.prod(sizes)}]"
    by_axis = sorted(runs)
    dims = [math.prod(sizes[axis] for axis in run) for run in by_axis]
    return f"[{_join(dims)}]T({_join([by_axis.index(run) for run in runs])})"


def _join(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def annotate(b: Body, value: Instr, attributes: dict[str, Attribute]) -> Instr:
    """A function result with a sharding of its own: a ``Sharding`` custom call."""
    attrs = sharding_attrs(b, attributes, "result")
    if not attrs:
        return value
    attrs["custom_call_target"] = _ANNOTATION
    return b.instruction("custom-call", (value,), attrs, value.shape)


def _sharding_constraint(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    value = op.attributes.get("sharding")
    if b.unit.device_count == 1 or not isinstance(value, Raw):
        return operand
    attrs = _shardy_attrs(b, value.text, "sharding")
    attrs["custom_call_target"] = _ANNOTATION
    return b.instruction("custom-call", (operand,), attrs, operand.shape)


def _identity(b: Body, op: Operation) -> list[Instr]:
    return b.operands()


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
    "sdy.manual_computation": _manual_computation,
    "sdy.propagation_barrier": _identity,
    "sdy.sharding_constraint": _sharding_constraint,
    "sdy.sharding_group": lambda b, op: [],
}
