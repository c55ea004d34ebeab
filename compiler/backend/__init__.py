"""From scheduled HLO to TPU programs: windows, LLO, bundles, registers."""
