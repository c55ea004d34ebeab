"""The tensor-graph IR: XLA's HLO as Python objects, its opcodes (`opcodes`), its text and its meaning.

Everything may import from here; it imports nothing of the compiler but diagnostics.
"""
