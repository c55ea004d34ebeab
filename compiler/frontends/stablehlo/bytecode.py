"""MLIR bytecode of StableHLO's own operations -> MLIR text in generic form, through jaxlib.

What `write_bytecode` of an MLIR module gives means what that version of MLIR and StableHLO says; only a
reader of the same libraries knows it, and jaxlib carries one. It is an extra: nothing but this file needs it,
and it is imported only for such a file. Portable artifacts are read by `mlir_bytecode`.
"""

from __future__ import annotations

import importlib

from compiler.diagnostics import CompileError

_DIALECTS = ("stablehlo", "chlo", "sdy")


def bytecode_to_text(data: bytes, file: str = "<bytes>") -> str:
    """Decode plain MLIR bytecode."""
    try:
        ir = importlib.import_module("jaxlib.mlir.ir")
        others = importlib.import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext")
        dialects = [importlib.import_module(f"jaxlib.mlir.dialects.{name}") for name in _DIALECTS]
    except ImportError as error:
        raise CompileError(
            f"{file} is MLIR bytecode of no portable artifact, which needs jaxlib to read ({error}): "
            "install it (pip install jaxlib), or save the model with stablehlo.serialize_portable_artifact, "
            "jax.export or as text"
        ) from error
    with ir.Context() as context:
        for dialect in dialects:
            dialect.register_dialect(context)
        registry = ir.DialectRegistry()
        others.register_dialects(registry)
        context.append_dialect_registry(registry)
        context.load_all_available_dialects()
        try:
            module = ir.Module.parse(data)
            text = module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True)
        except (ValueError, RuntimeError, ir.MLIRError) as error:
            raise CompileError(f"{file}: jaxlib cannot read this bytecode: {error}") from error
    return str(text)
