"""The tensor-graph IR: XLA's HLO as Python objects, its opcodes (`opcodes`), its text and its meaning.

It imports nothing of the compiler but diagnostics, of `tpu_sim` the ISA alone.

Any file may be imported.
"""
