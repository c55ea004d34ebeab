"""The tensor-graph IR: XLA's HLO as Python objects, and its text both ways."""
