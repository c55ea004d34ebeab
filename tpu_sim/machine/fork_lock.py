"""Locks that do not outlive a fork.

A forked process has only the thread that forked: a lock that another one held then would never be
released in it. What such a lock guards must stand being used as the other thread left it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Lock
from types import TracebackType
from weakref import WeakSet


class ForkLock:
    """A lock, used as a context, that is free in a forked process.

    It is reentrant if `kind` is: `threading.RLock` instead of `threading.Lock`.
    """

    def __init__(self, kind: Callable[[], AbstractContextManager[bool]] = Lock) -> None:
        self._kind = kind
        self._lock = kind()
        self._held: list[AbstractContextManager[bool]] = []
        _locks.add(self)

    def __enter__(self) -> None:
        lock = self._lock
        lock.__enter__()
        self._held.append(lock)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held.pop().__exit__(
            kind, error, trace
        )  # the one that was taken, even if this process is a fork since

    def renew(self) -> None:
        """Free it, whoever holds it."""
        self._lock = self._kind()


_locks: WeakSet[ForkLock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
