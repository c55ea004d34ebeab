"""The NumPy machine: slow, plain, the second oracle. To be imported from here: `numpy_machine`, and what
tests compare native code with: `numpy_lanes`, `mxu`, `transpose`, `bundle_executor`."""
