"""Convolutions whose rows of positions are whole tiles, of which only those that were wanted are kept.

[1,129,129,512] in 4 groups, computed as [1,129,144,512]        a row of positions is nine tiles of bf16
"""

from __future__ import annotations

import dataclasses
import math

from compiler.hlo.attributes import Window
from compiler.hlo.ir import HloInstruction
from compiler.passes.merged_rows import Rows
from compiler.rewrite.graph import emit

_EVEN = 4
"""Of such rows, parts of words and tiles repeat so soon that they are put together as fast (56 or 100
positions take a quarter less as they are, 30 seven times as long)."""
_MOST_ROWS = 1.5
"""How many rows there may be for one: 33 positions of 4 groups take 354,019 cycles, 48 take 68,741."""
_LEAST_ROWS = 512
"""Merged rows from which it pays (measured: 392 take a sixth longer)."""


def in_whole_rows(instr: HloInstruction) -> HloInstruction:
    """The convolution with as many more last positions as fill tiles, where these are few.

    Rows of positions merge to those of a product. Of groups each would put them together for itself.
    """
    labels, window = instr.dim_labels, instr.window.dims
    positions = tuple(instr.array.dims[d] for d in labels.output_spatial)
    if not positions:  # a product
        return instr
    count = instr.array.dims[labels.output_batch] * math.prod(positions[:-1])
    rows = Rows(count, positions[-1])
    is_odd = rows.length % _EVEN != 0 and rows.aligned <= _MOST_ROWS * rows.length
    if not is_odd or count == 1 or rows.merged < _LEAST_ROWS:
        return instr
    more = rows.aligned - rows.length
    last = dataclasses.replace(window[-1], pad_high=window[-1].pad_high + more * window[-1].stride)
    wide = list(instr.array.dims)
    wide[labels.output_spatial[-1]] = rows.aligned
    attrs = {**instr.attrs, "window": Window((*window[:-1], last))}
    shape = instr.array.with_dims(tuple(wide))
    return emit(instr, "convolution", shape, instr.operands, attrs)
