"""MLIR bytecode: portable StableHLO artifacts (with VHLO operations) or plain -> a document's operations.

    container.py             sections, strings, dialects, attributes and types by number
    builtin_forms.py         how MLIR's own attributes, types and locations are written
    vhlo_forms.py            how VHLO's are
    stablehlo_forms.py       how StableHLO's and CHLO's are
    sdy_forms.py             how Shardy's are
    vhlo_operations.py       what VHLO's operations have, and what StableHLO calls it
    stablehlo_operations.py  what those of StableHLO, CHLO and `func` have
    ir.py                    operations, regions and values
    document.py              all of it as a document, as parsing a text gives one

To be imported from outside: `document`. The format is that of MLIR's ``docs/BytecodeFormat.md``; VHLO never
changes what has been given a version, which is what makes an artifact portable.
"""
