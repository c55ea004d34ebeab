"""Kernels that exchange data between the chips of a slice.

To be imported from outside: `buffers`, `cost`, `gather`, `kernels`, `permute`, `plan`, `ports`,
`reduce`, `ways`.
"""
