"""What a device has to do, one task after the other, in the order it was asked for.

A task that is known to be short is done by the thread that asks, if the device is free; any other by
a thread of the device, while the one that asked goes on. Devices do not wait for each other.
"""

from __future__ import annotations

import os
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread, get_ident
from weakref import ReferenceType, WeakSet, ref

from tpu_sim.isa.errors import TpucError

_LOOK_SECONDS = 0.1
"""A signal that comes when a thread is about to wait, but does not yet, ends no wait: so waits end
by themselves, to look."""
_MOST_PENDING = 32
"""Who asks for more than this many tasks ahead waits: the results of each take memory."""


class RunInterruptedError(RuntimeError):
    """A call has no results: it was ended before its time, by Ctrl-C in a wait or by a fork."""


class Task:
    """One thing to do. It has ended when `is_ended`; `error` then says what it failed with.

    What takes long looks at `is_cancelled` now and then, and raises `RunInterruptedError`.
    """

    def __init__(self) -> None:
        self.is_ended = False
        self.error: BaseException | None = None
        self.is_cancelled = False
        self._queue: Queue | None = None
        self._gate: Lock | None = None  # unlocked at the end; none where nobody can wait
        self._listeners: list[Callable[[], None]] = []

    @property
    def is_short(self) -> bool:
        """Whether to wait for it takes no longer than to leave things to another thread."""
        return False

    def work(self) -> None:
        """Do it."""
        raise NotImplementedError

    def wait(self) -> None:
        """Return when it has ended. An exception here, as Ctrl-C raises one, ends the task first,
        and those before it."""
        if self.is_ended:
            return
        queue, gate = self._queue, self._gate
        assert queue is not None
        assert gate is not None
        queue.expect_no_turn()
        try:
            while not self.is_ended:
                if gate.acquire(timeout=_LOOK_SECONDS):
                    gate.release()
                else:
                    queue.wake()
        except BaseException:
            queue.interrupt(self)
            raise

    def result(self) -> None:
        """Wait; raise what it failed with."""
        self.wait()
        if self.error is not None:
            raise _without_frames(self.error)

    def fail(self, error: BaseException) -> None:
        """It failed with `error`. That is kept without the frames which it came through: those hold what
        their programs work with, and who called them, for as long as somebody may ask for the error."""
        self.error = _without_frames(error)
        if not isinstance(error, TpucError | RunInterruptedError | KeyboardInterrupt):
            self.error.add_note("".join(traceback.format_tb(error.__traceback__)))

    def end(self) -> None:
        """Let everybody know."""
        self.is_ended = True
        if self._gate is not None:
            self._gate.release()
        self._tell()

    def when_ended(self, listener: Callable[[], None]) -> None:
        """Call `listener`, which must not raise, once it has ended: now, or on the thread that ends it."""
        self._listeners.append(listener)
        if self.is_ended:
            self._tell()

    def _tell(self) -> None:
        """Two threads may be here; each listener is told by one of them."""
        while self._listeners:
            with suppress(IndexError):  # the other one took the last
                self._listeners.pop()()

    def await_on(self, queue: Queue) -> None:
        """Let threads wait for it while it is queued there."""
        self._queue, self._gate = queue, Lock()
        self._gate.acquire()

    def look(self) -> None:
        """Wait a little."""
        if self._gate is None:
            return
        if self._gate.acquire(timeout=_LOOK_SECONDS):
            self._gate.release()
        elif self._queue is not None:
            self._queue.wake()


class Queue:
    """The tasks of one device. Its thread starts with the first task that is left to it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._turn = Lock()  # held by the thread that does a task
        self._owner: int | None = None
        self._pending: deque[Task] = deque()
        self._current: Task | None = None
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._thread: Thread | None = None
        _queues.add(self)

    def do(self, task: Task) -> None:
        """Do `task` on this thread, after all that was asked for before; raise what it raises."""
        self.expect_no_turn()
        if not self._pending:
            with self._turn:
                raised = None if self._pending else self._do(task)
            if raised is not None:
                try:
                    raise raised
                finally:
                    del raised  # this frame is one that it came through
        if not task.is_ended:  # in turn
            self.put(task)
            task.result()

    def at_once(self, work: Callable[[int], int], argument: int) -> int | None:
        """What `work` of the argument returns, if nothing is queued or being done; else None."""
        if self._pending or self._turn.locked():
            return None
        with self._turn:
            if self._pending:
                return None
            self._owner = get_ident()
            try:
                return work(argument)
            finally:
                self._owner = None

    def put(self, task: Task) -> None:
        """Leave `task` to the device's thread; waits while very many are queued."""
        self.expect_no_turn()
        while len(self._pending) >= _MOST_PENDING:
            with suppress(IndexError):  # it was the last one
                self._pending[0].look()
        task.await_on(self)
        self._pending.append(task)
        self.wake()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The device is this thread's, once it has done what was asked for before."""
        self.expect_no_turn()
        while self._pending:
            with suppress(IndexError):  # it was the last one
                self._pending[-1].look()
        with self._turn:
            self._owner = get_ident()
            try:
                yield
            finally:
                self._owner = None

    def finish(self) -> bool:
        """Wait for all that was asked for so far; False if there was nothing, or if this thread is
        doing it, and so must not wait."""
        if self._owner == get_ident() or not (self._pending or self._turn.locked()):
            return False
        with self.turn():
            return True

    def is_soon_free(self) -> bool:
        """Whether all that is queued or being done is short."""
        if not self._pending and not self._turn.locked():
            return True
        current = self._current
        ahead = [*([current] if current is not None else []), *list(self._pending)]
        return all(task.is_short for task in ahead)

    def expect_no_turn(self) -> None:
        """Raise `RuntimeError` if this thread is doing a task, so that it would wait for itself."""
        if self._owner == get_ident() and self._turn.locked():
            raise RuntimeError(
                f"{self.name}: a signal handler or finalizer calls a program while this thread is "
                "in the middle of a call on the same device"
            )

    def interrupt(self, last: Task) -> None:
        """End `last` and the tasks before it; return when `last` has ended, however often
        interrupted."""
        while not last.is_ended:
            try:
                while not last.is_ended:
                    try:
                        self._cancel_up_to(last)
                        self.wake()
                        last.look()
                    except BaseException:  # one exception is on its way out already
                        continue
            except BaseException:  # a signal can also arrive at the jump of the inner loop
                continue

    def _cancel_up_to(self, last: Task) -> None:
        """Tasks go on meanwhile; one is always pending, current or ended (see `do_pending`)."""
        tasks = list(self._pending)
        current = self._current
        if last.is_ended:  # what is current then may have been asked for later
            return
        if current is not None and current not in tasks:
            tasks.insert(0, current)
        if last in tasks:
            for task in tasks[: tasks.index(last) + 1]:
                task.is_cancelled = True

    def _do(self, task: Task) -> BaseException | None:
        """The turn is this thread's. What the task raised, with its frames."""
        try:
            self._owner, self._current = get_ident(), task
            if task.is_cancelled:
                raise RunInterruptedError("the call was interrupted before it began")
            task.work()
        except BaseException as error:
            task.fail(error)
            return error
        finally:
            self._owner = self._current = None
            task.end()
        return None

    def wake(self) -> None:
        """Have the device's thread look at what is queued. Whoever waits does so again and again: who put a
        task into the queue may have been interrupted before."""
        if self._thread is None:
            # Of the reference, too, `put` is told when the queue is gone; it takes that for `block`.
            end = partial(self._tokens.put, False)
            arguments = (self._tokens, ref(self, end))
            thread = Thread(target=_serve, args=arguments, daemon=True, name=self.name)
            thread.start()
            self._thread = thread  # last: who is interrupted before starts another; they take turns
        self._tokens.put(True)

    def do_pending(self) -> None:
        """Do what is queued. For the device's own thread."""
        while self._pending:
            with self._turn:
                if self._pending:
                    self._current = self._pending[0]  # before it leaves, for who interrupts it
                    self._do(self._pending.popleft())

    def renew(self) -> None:
        """In a forked process: the thread and what it did are the other process's."""
        lost = [*([self._current] if self._current is not None else []), *self._pending]
        self._turn, self._owner = Lock(), None
        self._pending, self._current = deque(), None
        self._tokens, self._thread = SimpleQueue(), None
        for task in lost:
            task.error = RunInterruptedError(
                "the call was under way in another process when this one was forked from it"
            )
            task.is_ended = True


def _serve(tokens: SimpleQueue[bool], queue: ReferenceType[Queue]) -> None:
    """The life of a device's thread: until the device is gone."""
    while tokens.get():
        found = queue()
        if found is not None:
            found.do_pending()
        del found


def _without_frames(error: BaseException) -> BaseException:
    """The same error as if nothing had raised it yet."""
    made = type(error).__new__(type(error), *error.args)
    made.__dict__.update(error.__dict__)
    return made


_queues: WeakSet[Queue] = WeakSet()


def _renew_all() -> None:
    for queue in list(_queues):
        queue.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
