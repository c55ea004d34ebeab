"""Element types a lane of 32 bits has not: 64-bit integers, complex numbers, f64, 4 and 2 bits.

To be imported from outside: `double_precision`, `pair_rewriter`, `sub_byte`.
"""
