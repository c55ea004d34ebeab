"""Work that makes many objects, without Python's cycle collector.

The collector would look at every object of a module or program again and again, and once more when
it is switched on again. So what was made meanwhile is put among the old objects unseen; whoever
begins a new piece of work asks whether what was left of earlier ones is worth a look at everything.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

MOST_UNSEEN = 2_000_000
"""Blocks of memory that may be added before everything is looked at: about 200 MB."""


class _Seen:
    """Blocks of memory in use when the collector last looked at all objects, and how often it had."""

    blocks = 0
    collections = 0


@contextmanager
def no_cyclic_gc() -> Iterator[None]:
    """Without the cycle collector, if it is on; regions may be nested."""
    if not gc.isenabled():
        yield
        return
    try:  # whatever interrupts this, the collector is on afterwards
        gc.disable()
        yield
    finally:
        try:
            _grow_old()
        finally:
            gc.enable()


def collect_if_much_was_made() -> None:
    """Look at everything if much more memory is in use than when that was last done.

    For the start of a large piece of work: at its end, all that it made is still wanted.
    """
    if not gc.isenabled():
        return
    blocks = sys.getallocatedblocks()
    if gc.get_stats()[2]["collections"] == _Seen.collections:
        if blocks - _Seen.blocks <= MOST_UNSEEN:
            _Seen.blocks = min(_Seen.blocks, blocks)
            return
        gc.collect()
        blocks = sys.getallocatedblocks()
    _Seen.blocks, _Seen.collections = blocks, gc.get_stats()[2]["collections"]


def _grow_old() -> None:
    if not gc.get_freeze_count():  # what somebody else froze shall stay frozen
        gc.freeze()
        gc.unfreeze()  # back among the oldest
