"""Adding a core's own part to a partial sum, both in VMEM."""

from __future__ import annotations

from compiler.analysis.ring_reduction import is_packed, ring_row
from compiler.backend.custom import CustomKernel
from compiler.hlo.ir import HloComputation
from compiler.llo.ir import VReg

_UNROLL = 8
_ROWS = 8
UNIT_ROWS = _ROWS * _UNROLL
"""Windows have a multiple of so many rows."""


class Sum:
    """The vector code of a reduction's computation, on windows of rows of its element type."""

    def __init__(self, kernel: CustomKernel) -> None:
        self.b = kernel.builder
        root = kernel.root
        computation, dtype = root.attrs["to_apply"], root.operands[0].array.dtype
        assert isinstance(computation, HloComputation)
        row = ring_row(computation, dtype)
        assert row is not None, "the pass that leaves a reduce-scatter asks before"
        self.row, self.is_packed = row, is_packed(dtype)

    def windows(self, name: str, rows: int) -> tuple[int, int]:
        """Windows for a partial sum and for the core's own part."""
        rows += -rows % UNIT_ROWS
        return self.b.window(f"partial{name}", rows), self.b.window(f"own{name}", rows)

    def add(self, windows: tuple[int, int], rows: int) -> None:
        """Combine the first rows of both windows into the first one."""
        b, (partial, own) = self.b, windows
        with b.loop(-(-rows // UNIT_ROWS), "add") as index:
            base = b.smuli(index, UNIT_ROWS)
            for k in range(_UNROLL):
                came, mine = (b.emit("vld", w, base, k * _ROWS, 1) for w in (partial, own))
                b.emit("vst", partial, base, k * _ROWS, 1, self._combined(came, mine))

    def _combined(self, came: VReg, mine: VReg) -> VReg:
        b = self.b
        if not self.is_packed:
            return b.emit(self.row, came, mine)
        low, high = (
            b.emit(self.row, b.emit(half, came), b.emit(half, mine))
            for half in ("vunpack.lo.bf16", "vunpack.hi.bf16")
        )
        return b.emit("vpack.bf16", low, high)
