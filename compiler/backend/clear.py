"""Zeroing arrays in VMEM."""

from __future__ import annotations

from compiler.backend.vector.arrays import VmemArray
from compiler.llo.builder import LloBuilder

_CLEAR_UNROLL = 8
"""Stores in a trip: its overhead is then a small part."""


def emit_clear(builder: LloBuilder, array: VmemArray) -> None:
    """Zero an array's tiles, so that a first step reads nothing that was never written."""
    zero_tiles = array.word_rows // 8
    whole, rest = divmod(zero_tiles, _CLEAR_UNROLL)
    with builder.loop(whole, "clear") as index:
        base = builder.sadd(array.base, builder.smuli(index, _CLEAR_UNROLL * 8))
        for tile in range(_CLEAR_UNROLL):
            builder.emit("vst", array.window, base, tile * 8, 1, builder.emit("vmovi", 0))
    for tile in range(whole * _CLEAR_UNROLL, whole * _CLEAR_UNROLL + rest):
        builder.emit("vst", array.window, array.base, tile * 8, 1, builder.emit("vmovi", 0))
