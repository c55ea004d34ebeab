"""A model in any form that is text or bytecode -> an HLO module, the form told by how it begins.

HloModule ...                              XLA's HLO text
module ... | func.func ... | #alias = ...  StableHLO as MLIR text
ML\\xefR...                                 StableHLO as MLIR bytecode (needs jaxlib)
"""

from __future__ import annotations

import re

from compiler.frontends.stablehlo.bytecode import MAGIC, bytecode_to_text
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module

_BLANK = r"(?:\s|//[^\n]*\n)*"
_MLIR = re.compile(
    _BLANK
    + r'(?:(?:builtin\.)?module\b|"builtin\.module"|"?func\.func\b|sdy\.mesh\b|[#!][A-Za-z_])'
)


def parse_model(source: str | bytes, file: str = "<text>") -> HloModule:
    """Parse HLO text, StableHLO text or StableHLO bytecode; raises CompileError."""
    text = source if isinstance(source, str) else bytecode_to_text(source, file)
    return parse_stablehlo(text, file) if is_mlir(text) else parse_module(text, file)


def is_mlir(text: str) -> bool:
    """Whether a text begins as MLIR does."""
    return _MLIR.match(text) is not None


def is_model_text(text: str) -> bool:
    """Whether a string is a model rather than the path of one."""
    is_one_line = text.lstrip().startswith("HloModule") or ("{" in text and is_mlir(text))
    return "\n" in text or is_one_line


def is_bytecode(data: bytes) -> bool:
    """Whether bytes are MLIR bytecode."""
    return data.startswith(MAGIC)
