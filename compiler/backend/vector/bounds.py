"""Zeros for the elements of a tile that lie outside an array."""

from __future__ import annotations

from collections.abc import Iterable

from compiler.analysis.indexing_maps import Condition, Index
from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.ops import value_class
from compiler.hlo.ir import HloInstruction


def zero_outside(
    emitter: ElementEmitter,
    node: HloInstruction,
    index: Index,
    bounds: Iterable[int],
    value: int,
) -> int:
    """`value`, of `node` at `index`, or 0 where the index is not below `bounds`."""
    checks = (Condition(expr, 0, size - 1) for expr, size in zip(index, bounds, strict=True))
    needed = tuple(check for check in checks if not check.is_always)
    if not needed:
        return value
    kind = value_class(node.array.dtype)
    zero = emitter.ops.flag(False) if kind == "m" else emitter.ops.integer(0)
    return emitter.ops.choose(kind, emitter.mask(needed), value, zero)
