"""Work that makes many objects, without Python's cycle collector.

The collector would look at every object of a module or program again and again, and once more when
it is switched on again. So what was made meanwhile is put among the old objects unseen; when there
are many of those, the collector looks at everything once.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MOST_UNSEEN = 1_000_000
"""Objects that may grow old unseen before everything is looked at: about 100 MB."""


class _Unseen:
    """How many objects have grown old unseen since the collector last looked at all."""

    count = 0
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


def _grow_old() -> None:
    collections = gc.get_stats()[2]["collections"]
    if collections != _Unseen.collections:
        _Unseen.count, _Unseen.collections = 0, collections
    _Unseen.count += gc.get_count()[0]
    if _Unseen.count > MOST_UNSEEN:
        gc.collect()
    elif not gc.get_freeze_count():  # what somebody else froze shall stay frozen
        gc.freeze()
        gc.unfreeze()  # back among the oldest
