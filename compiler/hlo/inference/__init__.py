"""Shape inference by family of opcodes; `compiler.hlo.shape_inference` puts them together."""
