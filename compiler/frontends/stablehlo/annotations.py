"""Attributes that annotate a value without changing it: shardings and frontend attributes.

Shardings come in GSPMD's form (``mhlo.sharding = "{devices=...}"``) and Shardy's (``sdy``). Both
become HLO's ``sharding=``; Shardy's text is kept beside it as XLA keeps it, in
``frontend_attributes={xla.sdy.sharding="..."}``. In a program for one device they mean nothing.
"""

from __future__ import annotations

from compiler.frontends.stablehlo.syntax import Attribute, Dense, Raw, Symbol
from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.escapes import quote
from compiler.hlo.sharding import HloSharding
from compiler.hlo.sharding_text import parse_sharding
from compiler.sharding.shardy_text import parse_mesh, parse_shardings, parse_tensor_sharding

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
            attrs["sharding"] = shardy_to_hlo(shardy.text, meshes)
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


def shardy_to_hlo(text: str, meshes: dict[str, str]) -> HloSharding:
    """``#sdy.sharding<@mesh, [{}, {"x"}]>``, or the list of several values' shardings, in HLO."""
    known = {name: parse_mesh(mesh, name) for name, mesh in meshes.items()}
    if "per_value" in text or text.lstrip().startswith("["):
        found = parse_shardings(text, known)
    else:
        found = [parse_tensor_sharding(text, known)]
    if len(found) == 1:
        return found[0].to_hlo()
    return HloSharding.of_tuple(sharding.to_hlo() for sharding in found)


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
