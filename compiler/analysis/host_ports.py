"""What the host sees of a program's parameters and results whose device form is another type.

A pass that changes the element type of the entry's parameters notes the original type here, in
the module's ``frontend_attributes``: one text per array leaf, separated by ``;``, empty where host
and device agree. ``s64[8];s64[8];`` says that leaves 0 and 1 are the two words of an s64[8], and
``f32[9,3]{0,1}`` that the leaf has the dimensions of an f32[9,3] in that order, here f32[3,9].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.ir import HloComputation, HloModule
from compiler.hlo.shape import ArrayShape, leaves
from compiler.hlo.shape_text import print_shape

_PARAMETERS = "host_parameters"
_RESULTS = "host_results"


@dataclass(frozen=True)
class HostPorts:
    """Host shapes as text by array leaf; empty where the leaf is what the host sees."""

    parameters: tuple[str, ...]
    results: tuple[str, ...]


def host_ports(module: HloModule) -> HostPorts:
    """What is noted in the module, or that host and device agree everywhere."""
    noted = _noted(module)
    inputs, outputs = entry_leaves(module.entry)
    parameters = _split(noted.get(_PARAMETERS), len(inputs))
    return HostPorts(parameters, _split(noted.get(_RESULTS), len(outputs)))


def set_host_ports(module: HloModule, ports: HostPorts) -> None:
    """Note them in the module (nothing when host and device agree everywhere)."""
    attributes = module.attrs.get("frontend_attributes")
    items = attributes.items if isinstance(attributes, FrontendAttributes) else ()
    kept = tuple(item for item in items if item[0] not in (_PARAMETERS, _RESULTS))
    rows = ((_PARAMETERS, ports.parameters), (_RESULTS, ports.results))
    news = tuple((name, '"' + ";".join(texts) + '"') for name, texts in rows if any(texts))
    if kept or news:
        module.attrs["frontend_attributes"] = FrontendAttributes(kept + news)
    else:
        module.attrs.pop("frontend_attributes", None)


def changed_ports(module: HloModule, copies: Callable[[ArrayShape], int]) -> HostPorts:
    """The ports once each leaf is replaced by as many as `copies` says; 0 says it stays."""
    before = host_ports(module)
    inputs, outputs = entry_leaves(module.entry)
    return HostPorts(
        _changed(inputs, before.parameters, copies), _changed(outputs, before.results, copies)
    )


def entry_leaves(entry: HloComputation) -> tuple[list[ArrayShape], list[ArrayShape]]:
    """The array leaves of all parameters, and of the result."""
    inputs = [leaf for parameter in entry.parameters for leaf in leaves(parameter.shape)]
    return inputs, leaves(entry.root_instruction.shape)


def _changed(
    shapes: list[ArrayShape], noted: tuple[str, ...], copies: Callable[[ArrayShape], int]
) -> tuple[str, ...]:
    texts: list[str] = []
    for shape, text in zip(shapes, noted, strict=True):
        count = copies(shape)
        known = text or print_shape(shape.with_layout(None))
        texts.extend([known] * count if count else [text])
    return tuple(texts)


def _noted(module: HloModule) -> dict[str, str]:
    attributes = module.attrs.get("frontend_attributes")
    if not isinstance(attributes, FrontendAttributes):
        return {}
    found = {name: attributes.get(name) for name in (_PARAMETERS, _RESULTS)}
    return {name: text for name, text in found.items() if text is not None}


def _split(text: str | None, count: int) -> tuple[str, ...]:
    if text is None:
        return ("",) * count
    parts = tuple(text.split(";"))
    assert len(parts) == count, f"{len(parts)} host shapes for {count} arrays"
    return parts
