"""f32 as a sum of bf16 parts, and the vector code around precision passes.

x = hi + mid + lo by truncation to 8 significant bits: each part is exact in bf16 and the sum is x
(to 24 bits). Where hi is not finite the other parts are 0, so that the sum is hi.
"""

from __future__ import annotations

from compiler.llo.builder import LloBuilder
from compiler.llo.ir import VReg

_HIGH_HALF = -0x10000
_EXPONENT = 0x7F800000


def emit_split(b: LloBuilder, value: VReg, parts: int) -> list[VReg]:
    """Split f32 lanes into `parts` f32 values that are exact in bf16, largest first."""
    split = [b.emit("vandi", value, _HIGH_HALF)]
    is_special = b.emit(
        "vcmp.eq.s32", b.emit("vandi", value, _EXPONENT), b.emit("vmovi", _EXPONENT)
    )
    rest = b.emit("vsel", is_special, b.emit("vmovi", 0), b.emit("vsub.f32", value, split[0]))
    for _ in range(parts - 1):
        split.append(b.emit("vandi", rest, _HIGH_HALF))
        rest = b.emit("vsub.f32", rest, split[-1])
    return split
