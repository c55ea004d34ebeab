"""Portable StableHLO artifacts (MLIR bytecode) -> MLIR text in generic form, through jaxlib.

Bytecode is versioned and needs MLIR's own reader; jaxlib carries one. It is an extra: nothing but
this file needs it, and it is imported only when a file is bytecode.
"""

from __future__ import annotations

import importlib

from compiler.diagnostics import CompileError

_DIALECTS = ("stablehlo", "chlo", "sdy")


def bytecode_to_text(data: bytes, file: str = "<bytes>") -> str:
    """Decode an artifact of `stablehlo.serialize_portable_artifact` or plain MLIR bytecode."""
    try:
        ir = importlib.import_module("jaxlib.mlir.ir")
        importlib.import_module("jaxlib.mlir.dialects.func")
        dialects = [importlib.import_module(f"jaxlib.mlir.dialects.{name}") for name in _DIALECTS]
    except ImportError as error:
        raise CompileError(
            f"{file} is MLIR bytecode, which needs jaxlib to read ({error}); "
            "install it (pip install jaxlib), or give the model as text (.mlir)"
        ) from error
    with ir.Context() as context:
        for dialect in dialects:
            dialect.register_dialect(context)
        try:
            module = dialects[0].deserialize_portable_artifact(context, data)
            text = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
        except (ValueError, RuntimeError) as error:
            raise CompileError(f"{file}: jaxlib cannot read this bytecode: {error}") from error
    return str(text)
