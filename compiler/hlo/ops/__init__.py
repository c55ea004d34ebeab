"""The declarations of opcodes, by family; who wants the table takes it from `compiler.hlo.opcodes`.

Any file may be imported.
"""
