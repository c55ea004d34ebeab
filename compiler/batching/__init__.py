"""Computations of one example as computations of many: a rule for each opcode (docs/autodiff.md).

To be imported from outside: `batch`, `step`.
"""
