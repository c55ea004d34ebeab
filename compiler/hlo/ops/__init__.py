"""The declarations of opcodes, by family; import them from `compiler.hlo.opcodes`."""
