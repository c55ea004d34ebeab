"""From scheduled HLO to TPU programs: windows, LLO, bundles, registers.

The driver imports `lower_module`; nothing else of the compiler imports from here.
"""
