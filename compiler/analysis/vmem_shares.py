"""How much of VMEM each kind of kernel may plan with, as a share of its rows or bytes.

All are assumed: what is left is for spilled registers, for buffers whose rows are rounded up, and for
what a plan does not count: the more of that a kernel has, the smaller its share. Where it was too little,
arrays that stay in VMEM between kernels go back to HBM (`release_vmem` of `compiler.passes.vmem_residency`).
"""

WINDOWS = 0.85
"""Windows and scratch of a planned kernel, and arrays that stay in VMEM while a loop runs: all counted."""
TRANSFORM_STEP = 0.8
"""What a grid step of a Fourier transform holds beside its roots: counted but for the rows between."""
ROW_REDUCTIONS = 0.75
"""What fusion lets the windows of row reductions take: stages after it may need scratch of their own."""
LARGE_BLOCKS = 0.7
"""Blocks of a scatter's result with its updates, and whole transforms: indices come on top."""
SCATTERED_ELEMENTS = 0.75
"""A part of the result of a scatter of elements: each row of lanes has tables beside it."""
SORTED_PARTS = 0.4
"""The arrays of a part of a sort: each stage makes them anew beside what it reads."""

SCOPE_PARTS = (8, 4, 2, 1)
"""A kernel is planned with an eighth, a quarter, half and all of VMEM: the rest is for arrays that
stay."""
ABOUT_THE_SAME = 1.03
"""Times the least cycles that a kernel with less of VMEM may take and still count as good (assumed)."""
