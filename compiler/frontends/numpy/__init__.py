"""NumPy code -> HLO: functions are traced through NumPy's own protocols, nothing is executed.

Any file may be imported.
"""
