"""``metadata={...}`` in XLA's form: fields in a fixed order, strings escaped one way.

>>> canonical_metadata('{op_name="jit(f)/add" op_type="add" source_line=0}')
'{op_type="add" op_name="jit(f)/add"}'
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from compiler.hlo.escapes import quote, unquote

_FIELD = re.compile(r'\s*,?\s*(\w+)\s*=\s*("(?:[^"\\]|\\.)*"|\{[^{}]*\}|[^\s,{}"]+)', re.DOTALL)

_FRAME_ID = re.compile(r"\bstack_frame_id=(\d+)")
_ORDER = (
    "op_type", "op_name", "source_file", "source_line", "source_end_line", "source_column",
    "source_end_column", "profile_type", "deduplicated_name", "scheduling_name",
    "stack_frame_id", "metadata_payload",
)  # fmt: skip
_TELLING = ("op_type", "op_name", "source_file", "scheduling_name", "stack_frame_id",
            "metadata_payload")  # fmt: skip


def metadata_fields(text: str) -> dict[str, str]:
    """Split ``{name=value ...}`` into fields as written; ValueError for anything else."""
    inside = text.strip()[1:-1]
    fields: dict[str, str] = {}
    position = 0
    while inside[position:].strip(" \t\n,"):
        found = _FIELD.match(inside, position)
        if found is None:
            raise ValueError(f"want name=value, found {inside[position:].strip()[:40]!r}")
        fields[found[1]] = found[2]
        position = found.end()
    return fields


@lru_cache(maxsize=16384)
def canonical_metadata(text: str) -> str:
    """XLA's text of a metadata attribute; empty when it would not be printed at all."""
    fields = metadata_fields(text)
    parts: dict[str, str] = {}
    for name in _ORDER:
        value = fields.get(name)
        if value is None:
            continue
        if value.startswith('"'):
            value = quote(unquote(value))
        if value not in ('""', "0", "{}"):
            parts[name] = value.replace(" ", "") if value.startswith("{") else value
    if not any(name in parts for name in _TELLING):
        return ""
    return "{" + " ".join(f"{name}={value}" for name, value in parts.items()) + "}"


def renumbered_frame(text: str, new_id: Callable[[int], int]) -> str:
    """The same metadata with another ``stack_frame_id``, or none when the new number is 0."""
    return _FRAME_ID.sub(
        lambda found: f"stack_frame_id={number}" if (number := new_id(int(found[1]))) else "", text
    )
