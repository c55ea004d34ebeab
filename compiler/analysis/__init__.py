"""Facts about HLO that passes and the backend ask for: indices, windows, buffers, loops, costs.

Each file answers one question and changes nothing.

Any file may be imported.
"""
