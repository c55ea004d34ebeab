"""LLO: ISA instructions over virtual registers, with structured loops.

    ir, builder, parser, printer, verifier, walk    the level itself
    op_table                                        rows as passes and the scheduler see them
    passes      LLO to LLO          schedule        LLO to bundles
    finalize    both, for a kernel and for main     optimize    chosen passes over a text

Emitters (`compiler.backend`) import `builder` and `ir`, drivers `finalize` and `optimize`.

To be imported from outside: `builder`, `finalize`, `ir`, `optimize`, `passes`, `printer`.
"""
