"""Sorts as `network-sort`, whose kernel has whole lines in VMEM.

To be imported from outside: `kernels`, `keys`, `shapes`.
"""
