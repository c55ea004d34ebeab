"""Whether two tiles of many operations had better be one body.

A tile of a depthwise convolution has an address, a mask and a weight for each of its taps, and its sum waits
for each addition before the next. The tile beside it has the same weights, most of the same masks and
addresses, and a sum of its own that goes on meanwhile. More than two hold more values at once than there are
registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from compiler.backend.vector.core import ElementEmitter
from compiler.backend.vector.probe import probe_emitter
from compiler.backend.vector.tile_loops import BODY_OPS, TileLoops, TilePoint, TileSpace

_MOST = 2400
"""Operations of two tiles, before what they share."""
_SHARED = 0.8
"""Of the operations of one tile by itself that each of two may take."""


def share_much(
    emitter: ElementEmitter,
    space: TileSpace,
    operations: int,
    body_of: Callable[[ElementEmitter], Callable[[TilePoint], None]],
) -> bool:
    """Whether tiles of so many `operations`, of which one would fill a body, take fewer in twos."""
    if not BODY_OPS < 2 * operations <= _MOST:
        return False
    return _operations_of_two(emitter, space, body_of) < 2 * _SHARED * operations


def _operations_of_two(
    emitter: ElementEmitter,
    space: TileSpace,
    body_of: Callable[[ElementEmitter], Callable[[TilePoint], None]],
) -> int:
    """The most operations of a body of loops over the space with two tiles in each."""
    probe = probe_emitter(emitter)
    probe.loader.can_transpose = emitter.loader.can_transpose
    found = [0]

    @contextmanager
    def counted() -> Iterator[None]:
        before = len(probe.builder.block.ops)
        yield
        found.append(len(probe.builder.block.ops) - before)

    TileLoops(probe.builder, probe.sregs, counted).run(space, 1, body_of(probe), 2)
    return max(found)
