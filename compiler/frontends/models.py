"""A model in any form -> an HLO module, the form told by how it begins.

HloModule ...                              XLA's HLO text
module ... | func.func ... | #alias = ...  StableHLO as MLIR text
ML\\xefR...                                 StableHLO as MLIR bytecode: a portable artifact or plain
\\n...                                      HloModuleProto, HloProto or HloSnapshot of XLA (.pb)
"""

from __future__ import annotations

import re

from compiler.diagnostics import NO_FILE, CompileError, SourceText
from compiler.frontends.hlo_proto.modules import proto_to_text
from compiler.frontends.mlir_bytecode.document import read_document
from compiler.frontends.recognition import MARK, is_bytecode, is_mlir
from compiler.frontends.stablehlo.lowering import lower_document, parse_stablehlo
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module

_ENDLESS_NUMBER = re.compile(r"\d{4000,}")


def parse_model(source: str | bytes, file: str = NO_FILE) -> HloModule:
    """Parse HLO or StableHLO, as text or as bytes; raises CompileError."""
    if isinstance(source, bytes) and is_bytecode(source):
        return lower_document(read_document(source, file))
    text = source if isinstance(source, str) else proto_to_text(source, file)
    text = text.removeprefix(MARK)
    if not text.strip():
        raise CompileError(f"{file} is empty: want HLO text or StableHLO")
    try:
        return parse_stablehlo(text, file) if is_mlir(text) else parse_module(text, file)
    except ValueError as error:  # Python refuses to read numbers of thousands of digits
        number = _ENDLESS_NUMBER.search(text)
        if number is None:
            raise
        span = SourceText(file, text).span(number.start())
        raise CompileError(f"a number of {len(number[0])} digits", span) from error
