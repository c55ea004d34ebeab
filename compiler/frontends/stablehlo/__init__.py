"""StableHLO as MLIR text (pretty or generic form) and portable bytecode -> HLO."""
