"""Which memory of a device each result of a program is to lie in, where that is not the device's own.

A program computes in the device's memory. Where its caller wants a result elsewhere, as JAX's
``out_shardings`` with a memory kind say, is kept with the module: ``result_memories="0=pinned_host"``.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.hlo.attributes import FrontendAttributes
from compiler.hlo.ir import HloModule

DEVICE_MEMORY = "device"
"""The kind of the memory that programs compute in."""
_KEY = "result_memories"
_ATTRIBUTES = "frontend_attributes"


def put_result_memories(module: HloModule, kinds: Mapping[int, str]) -> None:
    """Note the kinds of memory of some results, by their numbers, in place of what was noted."""
    elsewhere = {number: kind for number, kind in kinds.items() if kind != DEVICE_MEMORY}
    text = " ".join(f"{number}={kind}" for number, kind in sorted(elsewhere.items()))
    known = module.attrs.get(_ATTRIBUTES)
    items = known.items if isinstance(known, FrontendAttributes) else ()
    kept = tuple(item for item in items if item[0] != _KEY)
    noted = (*kept, (_KEY, f'"{text}"')) if elsewhere else kept
    module.attrs[_ATTRIBUTES] = FrontendAttributes(tuple(sorted(noted)))


def result_memories(module: HloModule) -> dict[int, str]:
    """The kinds of memory that are noted, by the numbers of the results."""
    known = module.attrs.get(_ATTRIBUTES)
    text = known.get(_KEY) if isinstance(known, FrontendAttributes) else None
    pairs = (entry.split("=") for entry in (text or "").split())
    return {int(number): kind for number, kind in pairs}
