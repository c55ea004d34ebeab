"""Shardy's attributes as text, both ways.

>>> meshes = parse_meshes('{mesh = #sdy.mesh<["x"=4, "y"=2]>}')
>>> sharding = parse_tensor_sharding('#sdy.sharding<@mesh, [{"x", ?}p1, {}]>', meshes)
>>> sharding.dims[0].is_open, sharding.dims[0].priority, str(sharding.to_hlo())
(True, 1, '{devices=[4,1,2]<=[8] last_tile_dim_replicate}')
>>> tensor_sharding_text(sharding)
'#sdy.sharding<@mesh, [{"x", ?}p1, {}]>'
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput

from compiler.hlo.sharding import HloSharding, Tiles
from compiler.hlo.sharding_text import parse_sharding
from compiler.sharding.mesh import Axes, Axis, DimSharding, Mesh, TensorSharding

_MAXIMAL = re.compile(r"\{maximal_mesh\[device_id=(\d+)\]")
_NAMED = re.compile(
    r"\{mesh\[([^\]]*)\]"
    r"(?:, device_ids=\((?:\[([\d,]+)\]T\(([\d,]+)\)|([\d,]*))\))?, (.*)\}$"
)
_STARTS = ["sharding", "shardings", "mesh", "meshes", "manual_axes"]


def parse_mesh(text: str, name: str = "mesh") -> Mesh:
    """``#sdy.mesh<["x"=4, "y"=2], device_ids=[...]>``; ValueError when malformed."""
    return _mesh(_parsed(text, "mesh"), name)


def parse_meshes(text: str) -> dict[str, Mesh]:
    """``{mesh = #sdy.mesh<...>, mesh_0 = ...}`` by name, as HLO's header lists them."""
    found = {}
    for item in _parsed(text, "meshes").children:
        name, mesh = item.children
        found[str(name)] = _mesh(mesh, str(name))
    return found


def parse_tensor_sharding(text: str, meshes: Mapping[str, Mesh]) -> TensorSharding:
    """``#sdy.sharding<@mesh, [{"x"}, {?}], replicated={"y"}>``; ValueError when malformed."""
    return _sharding(_parsed(text, "sharding"), meshes)


def parse_shardings(text: str, meshes: Mapping[str, Mesh]) -> list[TensorSharding]:
    """``#sdy.sharding_per_value<[<@mesh, [...]>, ...]>``: one sharding for each value."""
    tree = _parsed(text, "shardings")
    return [_sharding(item, meshes) for item in tree.find_data("sharding")]


def parse_manual_axes(text: str) -> tuple[str, ...]:
    """``#sdy<manual_axes{"x", "y"}>``: names of axes."""
    tree = _parsed(text, "manual_axes")
    return tuple(_name(axis) for axis in tree.find_data("axis"))


def hlo_sharding_of_named(text: str) -> HloSharding:
    """HLO's ``{mesh['x'=2,'y'=4], [{'x'}, {}]}`` in tiles; ValueError for reductions but sums."""
    single = _MAXIMAL.match(text)
    if single is not None:
        return HloSharding.maximal(int(single[1]))
    found = _NAMED.match(text.replace("'", '"'))
    if found is None:
        raise ValueError(f"sharding {text} over a mesh is not supported")
    axes, sizes, order, ids, rest = found.groups()
    if sizes:
        numbers = tuple(map(int, sizes.split(",")))
        tiles = Tiles((math.prod(numbers),), numbers, tuple(map(int, order.split(","))))
        ids = ", ".join(map(str, tiles.array().tolist()))
    body = rest.partition(", metadata=")[0]
    if not body.startswith("["):
        return parse_sharding(f"{{{body}}}")
    devices = f", device_ids=[{ids}]" if ids else ""
    return parse_tensor_sharding(f"<mesh<[{axes}]{devices}>, {body}>", {}).to_hlo()


def tensor_sharding_text(sharding: TensorSharding) -> str:
    """Shardy's text of a sharding; its mesh by name."""
    mesh = sharding.mesh
    dims = ", ".join(_dim_text(dim, mesh) for dim in sharding.dims)
    text = f"<@{mesh.name}, [{dims}]"
    for name in ("replicated", "unreduced"):
        axes: Axes = getattr(sharding, name)
        if axes:
            text += f", {name}={{{', '.join(axis_text(axis, mesh) for axis in axes)}}}"
    return f"#sdy.sharding{text}>"


def mesh_text(mesh: Mesh) -> str:
    """Shardy's text of a mesh."""
    axes = ", ".join(f'"{name}"={size}' for name, size in mesh.axes)
    devices = f", device_ids=[{', '.join(map(str, mesh.device_ids))}]" if mesh.device_ids else ""
    return f"#sdy.mesh<[{axes}]{devices}>"


def axis_text(axis: Axis, mesh: Mesh) -> str:
    """``"x"``, or ``"x":(2)4`` for a part of it."""
    whole = axis.size == mesh.sizes[axis.name]
    return f'"{axis.name}"' + ("" if whole else f":({axis.before}){axis.size}")


def _dim_text(dim: DimSharding, mesh: Mesh) -> str:
    parts = [axis_text(axis, mesh) for axis in dim.axes] + (["?"] if dim.is_open else [])
    return f"{{{', '.join(parts)}}}" + ("" if dim.priority is None else f"p{dim.priority}")


@functools.lru_cache(maxsize=1)
def _grammar() -> Lark:
    text = resources.files("compiler.sharding").joinpath("shardy.lark").read_text()
    return Lark(text, start=_STARTS, parser="lalr", maybe_placeholders=False)


@functools.lru_cache(maxsize=4096)
def _parsed(text: str, start: str) -> Tree[Any]:
    try:
        return _grammar().parse(text.strip(), start=start)
    except UnexpectedInput as error:
        at = error.pos_in_stream or 0
        found = text.strip()[max(at, 0) :][:30]
        raise ValueError(f"{start} in {text[:80]!r}: {found!r} is not expected") from None


def _mesh(tree: Tree[Any], name: str) -> Mesh:
    axes = tuple(
        (_string(a.children[0]), int(str(a.children[1]))) for a in tree.find_data("mesh_axis")
    )
    devices = [int(str(number)) for ids in tree.find_data("device_ids") for number in ids.children]
    if devices == list(range(len(devices))) and axes:
        devices = []
    if any(size < 1 for _, size in axes):
        raise ValueError(f"an axis of mesh @{name} has no devices")
    return Mesh(axes, tuple(devices), name)


def _sharding(tree: Tree[Any], meshes: Mapping[str, Mesh]) -> TensorSharding:
    head, dims, *lists = tree.children
    if head.data == "reference":
        name = _string(head.children[0])
        if name not in meshes:
            raise ValueError(f"mesh @{name} is not defined")
        mesh = meshes[name]
    else:
        mesh = _mesh(head, "mesh")
    found = {item.data: _axes(item.children[0], mesh)[0] for item in lists}
    return TensorSharding(
        mesh,
        tuple(_dim(dim, mesh) for dim in dims.children),
        replicated=found.get("replicated", ()),
        unreduced=found.get("unreduced", ()),
        manual=found.get("manual", ()),
    )


def _dim(tree: Tree[Any], mesh: Mesh) -> DimSharding:
    axes, is_open = _axes(tree.children[0], mesh)
    priority = int(str(tree.children[1])[1:]) if len(tree.children) > 1 else None
    return DimSharding(axes, is_open, priority)


def _axes(tree: Tree[Any], mesh: Mesh) -> tuple[Axes, bool]:
    found, is_open = [], False
    for item in tree.children:
        if isinstance(item, Token):
            is_open = True
        else:
            found.append(mesh.axis(_name(item), *(int(str(n)) for n in item.children[1:])))
    return tuple(found), is_open


def _name(axis: Tree[Any]) -> str:
    return _string(axis.children[0])


def _string(token: object) -> str:
    return str(token).strip('"')
