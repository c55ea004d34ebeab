"""Which form a model has, told by how it begins; nothing is parsed."""

from __future__ import annotations

import re

BYTECODE_MAGIC = b"ML\xefR"
"""How every file of MLIR bytecode begins."""

_BLANK = r"(?:\s|//[^\n]*\n)*"
_MLIR = re.compile(
    _BLANK
    + r'(?:(?:builtin\.)?module\b|"builtin\.module"|"?func\.func\b|sdy\.mesh\b|[#!][A-Za-z_])'
)


def is_mlir(text: str) -> bool:
    """Whether a text begins as MLIR does."""
    return _MLIR.match(text) is not None


def is_model_text(text: str) -> bool:
    """Whether a string is a model rather than the path of one."""
    is_one_line = text.lstrip().startswith("HloModule") or ("{" in text and is_mlir(text))
    return "\n" in text or is_one_line


def is_bytecode(data: bytes) -> bool:
    """Whether bytes are MLIR bytecode."""
    return data.startswith(BYTECODE_MAGIC)
