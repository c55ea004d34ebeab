"""Derivatives of HLO computations: a rule for each opcode, and the modes (docs/autodiff.md)."""
