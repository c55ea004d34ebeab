"""The NumPy machine: slow, plain, the second oracle.

Tests compare native code with `numpy_lanes`, `mxu`, `transpose` and `bundle_executor`.

To be imported from outside: `numpy_machine`.
"""
