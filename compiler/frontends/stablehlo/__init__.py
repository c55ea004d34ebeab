"""StableHLO as MLIR text (pretty or generic form) and portable bytecode -> HLO.

To be imported from outside: `bytecode`, `lowering`, and what the reader of artifacts makes documents of,
`dense`, `parser`, `syntax`, `types`.
"""
