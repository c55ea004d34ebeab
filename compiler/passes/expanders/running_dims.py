"""Which windows take in all that lies before, or behind, along one dimension: running totals."""

from __future__ import annotations

from compiler.hlo.attributes import WindowDim
from compiler.hlo.ir import HloInstruction

Instr = HloInstruction


def running_dim(operand: Instr, window: tuple[WindowDim, ...]) -> tuple[int, bool] | None:
    """The dimension of a running total and whether it runs backwards; None if it is not one."""
    wide = [i for i, d in enumerate(window) if d != WindowDim(1)]
    if len(wide) != 1:
        return None
    dim, d = wide[0], window[wide[0]]
    size = operand.array.dims[dim]
    if d.size != size or (d.stride, d.base_dilation, d.window_dilation) != (1, 1, 1):
        return None
    if (d.pad_low, d.pad_high) == (size - 1, 0):
        return dim, False
    return (dim, True) if (d.pad_low, d.pad_high) == (0, size - 1) else None
