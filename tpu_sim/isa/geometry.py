"""The shape of a vector register, of a row of VMEM and of a matrix unit: the same on every chip.

Arrays, windows and loops are laid out by it: who needs a number of lanes or sublanes asks here.
"""

from __future__ import annotations

LANES = 128
"""Words of 32 bits in a row of VMEM, and of a register along its rows."""
SUBLANES = 8
"""Rows of a register."""
UNIT_DIM = 128
"""Rows and columns of a block of weights of a matrix unit, and of what a transpose unit holds. An MXU of
256 by 256 is four such units."""
WORD_BYTES = 4
"""Of a word of VMEM or SMEM, and of a lane."""
ROW_BYTES = LANES * WORD_BYTES
"""Of a row of VMEM."""
VREG_BYTES = SUBLANES * ROW_BYTES
"""Of a register."""
GRANULE_BYTES = 512
"""What HBM is addressed by: as long as a row of VMEM, so that rows and granules are counted alike."""
