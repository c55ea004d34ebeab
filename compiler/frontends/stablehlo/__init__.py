"""StableHLO as MLIR text (pretty or generic form) or bytecode -> HLO.

To be imported from outside: `lowering`, and what the reader of artifacts makes documents of,
`dense`, `parser`, `syntax`, `types`.
"""
