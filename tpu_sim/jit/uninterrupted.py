"""Work that no signal's handler gets into: on a thread beside the main one.

Python runs handlers in the main thread, between any two of its steps, and they may raise, as that of Ctrl-C
does. llvmlite does not stand that: raised behind the `acquire` of its lock it leaves every thread waiting,
and behind the freeing of a text it frees it again. So in the main thread such work is handed over and waited
for. If the wait is interrupted, work that has begun goes on, and what it makes is dropped where it was made.
"""

from __future__ import annotations

import atexit
import os
import threading
from _thread import start_new_thread
from collections.abc import Callable
from functools import wraps
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from tpu_sim.machine.fork_lock import Once

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")


class _Task:
    """A call that is waited for: `is_over` is released when there is a result or an error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call: Callable[[], Any] | None = call
        self._is_over = threading.Lock()
        self._is_over.acquire()
        self._result: Any = None
        self._error: BaseException | None = None

    def work(self) -> None:
        """Make the call, unless nobody waits for it any more."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            self._result = call()
        except BaseException as error:
            self._error = error
        self._is_over.release()

    def result(self) -> Any:
        """Wait for the end; what the call returned, or what it raised."""
        try:
            with self._is_over:
                pass
        finally:
            self._call = None
        if self._error is not None:
            raise self._error
        return self._result


def _serve(tasks: SimpleQueue[_Task]) -> None:
    while True:
        tasks.get().work()


@Once
def _tasks() -> SimpleQueue[_Task]:
    """Where the thread takes its work from, which this starts."""
    tasks: SimpleQueue[_Task] = SimpleQueue()
    start_new_thread(_serve, (tasks,))  # not threading's: no handler may raise in between
    _serving.append(tasks)
    return tasks


_serving: list[SimpleQueue[_Task]] = []


@atexit.register
def _finish() -> None:
    """Nothing is at work when the libraries go that it uses."""
    for tasks in _serving:
        task = _Task(lambda: None)
        tasks.put(task)
        task.result()


def _forget() -> None:
    """A forked process has no such thread."""
    _tasks.clear()
    _serving.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def uninterrupted(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
    """Let a function work where no handler of a signal runs; in threads beside the main one it already is.

    It must not want a lock that its caller holds.
    """

    @wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Made:
        if threading.get_ident() != threading.main_thread().ident:
            return function(*args, **kwargs)
        task = _Task(lambda: function(*args, **kwargs))
        _tasks().put(task)
        made: _Made = task.result()
        return made

    return call
