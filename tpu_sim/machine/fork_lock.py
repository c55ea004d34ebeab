"""Locks that do not outlive a fork.

A forked process has only the thread that forked: a lock that another one held then would never be
released in it. What such a lock guards must stand being used as the other thread left it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from functools import update_wrapper
from threading import Lock, RLock
from typing import Generic, ParamSpec, TypeVar
from weakref import WeakSet

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


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


class Once(Generic[_Given, _Made]):
    """``@Once``: a function whose results are made once and kept, for what a process has one of.

    Threads that ask for the same at the same time get the same, which `functools.cache` does not promise:
    it lets each of them make one, and drops all but the last.
    """

    def __init__(self, function: Callable[_Given, _Made]) -> None:
        self._function = function
        self._lock = ForkLock(RLock)
        self._made: dict[Hashable, _Made] = {}
        update_wrapper(self, function)

    def __call__(self, *args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        """What was made for these arguments, or is made now."""
        key = (args, *kwargs.items())
        if key in self._made:
            return self._made[key]
        with self._lock.here:
            if key not in self._made:
                self._made[key] = self._function(*args, **kwargs)
            return self._made[key]

    def clear(self) -> None:
        """Forget what was made."""
        self._made.clear()


_locks: WeakSet[ForkLock] = WeakSet()


def _renew_all() -> None:
    for lock in list(_locks):
        lock.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
