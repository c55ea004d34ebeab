"""StableHLO as MLIR text (pretty or generic form) and portable bytecode -> HLO.

To be imported from outside: `bytecode`, `lowering`.
"""
