"""What the transpose units compute."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

U32 = npt.NDArray[np.uint32]


def transposed_halves(words: U32) -> U32:
    """128x128 words as 256x128 halves, transposed, as two blocks of 64x128 words one below the other.

    Word (r, l) holds rows 2*r (low) and 2*r + 1; word (64*p + q, l) of the result the columns 2*q
    (low) and 2*q + 1 of row 128*p + l.
    """
    low, high = words & np.uint32(0xFFFF), words >> np.uint32(16)
    rows = np.stack([low, high], axis=1).reshape(2, 128, 64, 2)  # block, row, column pair, column
    pairs = rows[..., 0] | rows[..., 1] << np.uint32(16)
    result: U32 = pairs.transpose(0, 2, 1).reshape(128, 128)
    return result
