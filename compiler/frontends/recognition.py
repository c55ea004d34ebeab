"""Which form a model has, told by how it begins; nothing is parsed."""

from __future__ import annotations

import re

BYTECODE_MAGIC = b"ML\xefR"
"""How every file of MLIR bytecode begins."""

_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
"""Bytes that no text of a model has, but any protocol buffer of one: the tags of its first fields."""

MARK = "\ufeff"
"""The byte-order mark that some editors put before a text."""

_BLANK = rf"(?:[\s{MARK}]|//[^\n]*\n)*"
_MLIR = re.compile(
    _BLANK
    + r'(?:(?:builtin\.)?module\b|"builtin\.module"|"?func\.func\b|sdy\.mesh\b|[#!][A-Za-z_])'
)
_COMMENT = rf"(?:[\s{MARK}]|/\*.*?\*/)*"
_HLO = re.compile(
    _COMMENT
    + r"(?:HloModule\b"
    + r"|(?:ENTRY\s+)?%?[\w.~-]+\s*(?:\(.*\)\s*->[^{]*)?\{.*\}\s*$"  # a computation
    + r"|.*\w\[[\d,<=?]*\](?:\{[^}]*\})?\s+[a-z][\w-]*\()",  # an instruction: shape opcode(
    re.DOTALL,
)


def is_mlir(text: str) -> bool:
    """Whether a text begins as MLIR does."""
    return _MLIR.match(text) is not None


def is_model_text(text: str) -> bool:
    """Whether a string is a model rather than the path of one: lines, or one of any form."""
    return "\n" in text or _HLO.match(text) is not None or ("{" in text and is_mlir(text))


def is_binary(data: bytes) -> bool:
    """Whether bytes are a model in a form that is no text: MLIR bytecode, or a protocol buffer."""
    return is_bytecode(data) or (data.startswith(b"\n") and _CONTROL.search(data) is not None)


def is_bytecode(data: bytes) -> bool:
    """Whether bytes are MLIR bytecode."""
    return data.startswith(BYTECODE_MAGIC)
