"""What `tpuc.numpy` is made of: NumPy's functions called with arrays of any kind, creation, types, sizes.

To be imported from outside: `creation`, `names`.
"""
