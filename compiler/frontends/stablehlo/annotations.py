"""Attributes that annotate a value without changing it: shardings and frontend attributes.

Shardings come in GSPMD's form (``mhlo.sharding = "{devices=...}"``) and Shardy's (``sdy``). Both
become HLO's ``sharding=``; Shardy's text is kept beside it as XLA keeps it, in
``frontend_attributes={xla.sdy.sharding="..."}``. In a program for one device they mean nothing.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence

from compiler.frontends.stablehlo.syntax import Attribute, Dense, Raw, Symbol
from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.escapes import quote
from compiler.hlo.sharding_text import parse_sharding

_AXIS = re.compile(r'"([^"]+)"\s*=\s*(\d+)')
_REFERENCE = re.compile(r"<\s*@([\w$.\-]+)\s*,\s*\[(.*?)\](?:\s*,[^<>]*)?\s*>", re.DOTALL)
_DIMENSION = re.compile(r"\{([^{}]*)\}")
_SHARDY = "xla.sdy.sharding"

ANNOTATIONS = ("mhlo.sharding", "sdy.sharding", "mhlo.frontend_attributes")
"""The attributes that are read here."""


def annotation_attrs(
    attributes: dict[str, Attribute], meshes: dict[str, str], device_count: int
) -> dict[str, object]:
    """The HLO attributes of a value that `attributes` annotate; ValueError for malformed ones."""
    items = _frontend_items(attributes.get("mhlo.frontend_attributes"))
    attrs: dict[str, object] = {}
    if device_count > 1:
        gspmd, shardy = attributes.get("mhlo.sharding"), attributes.get("sdy.sharding")
        if isinstance(shardy, Raw):
            attrs["sharding"] = parse_sharding(shardy_to_hlo(shardy.text, meshes))
            items = (*items, (_SHARDY, _quoted(shardy.text)))
        if isinstance(gspmd, str):
            attrs["sharding"] = parse_sharding(gspmd)
    if items:
        attrs["frontend_attributes"] = FrontendAttributes(items)
    return attrs


def _frontend_items(value: Attribute | None) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        return ()
    return tuple((k, quote(v) if isinstance(v, str) else config_text(v)) for k, v in value.items())


def _quoted(text: str) -> str:
    full = text if text.startswith("#") else f"#sdy.sharding{text}"
    return quote(full).replace("\\'", "'")


def shardy_to_hlo(text: str, meshes: dict[str, str]) -> str:
    """``#sdy.sharding<@mesh, [{}, {"x"}]>``, or the list of several values' shardings, in HLO."""
    found = [hlo_sharding(meshes, *reference) for reference in _REFERENCE.findall(text)]
    if not found:
        raise ValueError(f"sharding {text} is not supported; want <@mesh, [{{axes}}, ...]>")
    return found[0] if len(found) == 1 else "{" + ", ".join(found) + "}"


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


def config_text(value: Attribute) -> str:
    """A configuration dictionary as XLA prints it: ``{a = 1, b = "c"}``."""
    match value:
        case dict():
            return "{" + ", ".join(f"{k} = {config_text(v)}" for k, v in value.items()) + "}"
        case tuple():
            return "[" + ", ".join(map(config_text, value)) + "]"
        case bool():
            return "true" if value else "false"
        case str():
            return quote(value)
        case Symbol():
            return f"@{value.name}"
        case Dense():
            return f"{value.text} : {value.type_text}"
        case Raw():
            return value.text
    return str(value)
