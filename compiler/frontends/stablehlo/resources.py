"""Literals that MLIR keeps at the end of the text, ``dense_resource<name>``: their bytes put in their place.

    %0 = stablehlo.constant dense_resource<weights> : tensor<2xf32>
    {-# dialect_resources: { builtin: { weights: "0x040000000000803F00000040" } } #-}

The first four bytes of a blob say how it is aligned, the rest are the elements. Of a resource that the text
does not carry nothing is known: whoever decodes the literal refuses it (`dense`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from compiler.frontends.stablehlo.syntax import Attribute, Dense, Operation

_SECTION = re.compile(r"\{-#.*#-\}\s*\Z", re.DOTALL)
_BLOB = re.compile(r'(?P<name>"(?:[^"\\]|\\.)*"|[\w$.\-]+)\s*:\s*"0x(?P<hex>[0-9A-Fa-f]*)"')
_USE = re.compile(r'dense_resource<\s*(?P<name>"[^"]*"|[^<>"\s]*)\s*>')
_ALIGNMENT_DIGITS = 8


def without_resources(text: str) -> tuple[str, dict[str, str]]:
    """The text without the section behind its module, and by name the hexadecimal digits of the elements."""
    begin = text.rfind("{-#")
    found = None if begin < 0 else _SECTION.match(text, begin)
    if found is None:
        return text, {}
    blobs = _BLOB.finditer(found[0])
    return text[:begin], {b["name"].strip('"'): b["hex"][_ALIGNMENT_DIGITS:] for b in blobs}


def put_in_place(operations: Iterable[Operation], resources: Mapping[str, str]) -> None:
    """Let the attributes of operations, and of those in their regions, hold the bytes that they name."""
    for op in operations:
        for key, value in op.attributes.items():
            op.attributes[key] = with_bytes(value, resources)
        for region in op.regions:
            put_in_place(region.operations, resources)


def with_bytes(value: Attribute, resources: Mapping[str, str]) -> Attribute:
    """An attribute, or what it becomes where it names a resource that the text carries."""
    found = _USE.fullmatch(value.text) if isinstance(value, Dense) else None
    if not isinstance(value, Dense) or found is None:
        return value
    digits = resources.get(found["name"].strip('"'))
    return value if digits is None else replace(value, text=f'dense<"0x{digits}">')
