"""A model in any form that is text or bytecode -> an HLO module, the form told by how it begins.

HloModule ...                              XLA's HLO text
module ... | func.func ... | #alias = ...  StableHLO as MLIR text
ML\\xefR...                                 StableHLO as MLIR bytecode (needs jaxlib)
"""

from __future__ import annotations

from compiler.frontends.recognition import is_mlir
from compiler.frontends.stablehlo.bytecode import bytecode_to_text
from compiler.frontends.stablehlo.lowering import parse_stablehlo
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module


def parse_model(source: str | bytes, file: str = "<text>") -> HloModule:
    """Parse HLO text, StableHLO text or StableHLO bytecode; raises CompileError."""
    text = source if isinstance(source, str) else bytecode_to_text(source, file)
    return parse_stablehlo(text, file) if is_mlir(text) else parse_module(text, file)
