"""Locks that do not outlive a fork.

A forked process has only the thread that forked: a lock that another one held then would never be
released in it. What such a lock guards must stand being used as the other thread left it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock
from weakref import WeakSet


class ForkLock:
    """A lock that is free in a forked process: ``with lock.here:``.

    It is reentrant if `kind` is: `threading.RLock` instead of `threading.Lock`.
    """

    def __init__(self, kind: Callable[[], AbstractContextManager[bool]] = Lock) -> None:
        self._kind = kind
        self._lock = kind()
        _locks.add(self)

    @property
    def here(self) -> AbstractContextManager[bool]:
        """The lock of this process, for a ``with`` statement: what that takes it releases, even in a
        fork. No Python function lies between, in which a signal's handler could raise while the lock
        is taken and nobody knows."""
        return self._lock

    def renew(self) -> None:
        """Free it, whoever holds it."""
        self._lock = self._kind()


_locks: WeakSet[ForkLock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
