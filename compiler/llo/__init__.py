"""LLO: ISA instructions over virtual registers, with structured loops."""
