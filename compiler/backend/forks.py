"""Work that forked processes share: all that it needs is in memory, and only what is made is sent.

A fork copies the memory of all of a process but only one of its threads. So it is for a process that is
nobody else's, such as a command's: libraries that run threads of their own, as JAX does, do not stand it.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_long
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from multiprocessing.sharedctypes import Synchronized
from typing import TypeVar

T = TypeVar("T")
_AT_ONCE = 4
"""Pieces of work that a process takes: neighbours are often alike, and made sooner by one process."""
_PATIENCE_SECONDS = 10.0
"""For a lock that is held for a microsecond."""
_OF_THREADS = frozenset({"jaxlib", "torch", "tensorflow", "ray"})
"""Libraries that run threads once they are loaded."""


def may_fork() -> bool:
    """Whether forks of this process are sound, as far as can be told."""
    return sys.platform == "linux" and not _OF_THREADS & sys.modules.keys()


def shared_out(
    names: Sequence[str],
    work: Callable[[str], T],
    processes: int,
    tell: Callable[[int], None] = lambda _: None,
) -> dict[str, T]:
    """What `work` makes of each name, by this process and others forked from it.

    `tell` hears in this process how many names have been given out.

    A name is missing for which `work` raised, or whose process was lost: that is for the caller to do,
    who then meets the error himself.
    """
    context = multiprocessing.get_context("fork")
    following = context.Value(c_long, 0)
    helpers: list[tuple[ForkProcess, Connection]] = []
    found: dict[str, T] = {}
    try:
        for _ in range(processes - 1):
            reader, writer = context.Pipe(duplex=False)
            helper = context.Process(target=_help, args=(names, work, following, writer))
            _start(helper)
            writer.close()
            helpers.append((helper, reader))
        for part in _parts(names, following):
            tell(min(following.value, len(names)))
            found |= _done(part, work)
        for _, reader in helpers:
            found |= _received(reader)
    finally:
        for helper, reader in helpers:
            helper.kill()
            helper.join()
            reader.close()
    return found


def _start(helper: ForkProcess) -> None:
    with warnings.catch_warnings():  # of other threads, none of which the helper needs
        warnings.simplefilter("ignore", DeprecationWarning)
        helper.start()


def _help(
    names: Sequence[str],
    work: Callable[[str], T],
    following: Synchronized[int],
    writer: Connection,
) -> None:
    """What another process does; it ends quietly by Ctrl-C, or when nobody waits for it any more."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.disable()  # it would write to every page, and so have all of them copied
    parts = (_done(part, work) for part in _parts(names, following))
    made = [pickle.dumps(part, pickle.HIGHEST_PROTOCOL) for part in parts]
    try:
        for data in made:
            writer.send_bytes(data)
        writer.send_bytes(b"")
    finally:
        os._exit(0)  # the streams and what is done at an exit are the other process's


def _parts(names: Sequence[str], following: Synchronized[int]) -> Iterator[Sequence[str]]:
    """Parts of the work, each given to one process."""
    lock = following.get_lock()
    while lock.acquire(timeout=_PATIENCE_SECONDS):  # else its holder was killed
        try:
            first = following.value
            following.value = first + _AT_ONCE
        finally:
            lock.release()
        if first >= len(names):
            return
        yield names[first : first + _AT_ONCE]


def _done(names: Sequence[str], work: Callable[[str], T]) -> dict[str, T]:
    found = {}
    for name in names:
        try:
            found[name] = work(name)
        except Exception:  # whoever asked does it again, and has the error
            continue
    return found


def _received(reader: Connection) -> dict[str, T]:
    """What a process made; less if it was lost."""
    found: dict[str, T] = {}
    try:
        while data := reader.recv_bytes():
            found |= pickle.loads(data)
    except EOFError:
        pass
    return found
