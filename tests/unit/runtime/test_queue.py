"""The queue of a device: who is ended by an interrupt, and who is not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Event
from weakref import ref

import pytest

from runtime.queue import Queue, RunInterruptedError, Task
from tests.support.interrupts import interrupted_at
from tpu_sim.machine.faults import MachineFault


class Endless(Task):
    """Works until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.has_begun = Event()

    def work(self) -> None:
        self.has_begun.set()
        while not self.is_cancelled:
            self.look()
        raise RunInterruptedError("cancelled")


class Short(Task):
    """Nothing to do."""

    def work(self) -> None:
        pass


def test_an_interrupt_ends_the_task_and_those_before_it_only() -> None:
    queue = Queue("device")
    first, second, third = Endless(), Endless(), Short()
    for task in (first, second, third):
        queue.put(task)
    assert first.has_begun.wait(10)
    queue.interrupt(second)
    third.wait()
    assert isinstance(first.error, RunInterruptedError)
    assert isinstance(second.error, RunInterruptedError)
    assert third.error is None
    assert not third.is_cancelled


def test_an_interrupt_that_comes_too_late_ends_nobody() -> None:
    queue = Queue("device")
    over, running = Short(), Endless()
    queue.put(over)
    over.wait()
    queue.put(running)
    assert running.has_begun.wait(10)
    queue.interrupt(over)
    assert not running.is_cancelled
    queue.interrupt(running)
    assert running.is_ended


def test_who_waits_wakes_the_thread_that_nobody_woke() -> None:
    """A signal's handler may raise when the task is in the queue and the thread does not know yet."""
    queue, task = Queue("device"), Short()
    task.await_on(queue)
    queue._pending.append(task)
    assert queue.finish()
    assert task.is_ended


def test_wherever_putting_is_interrupted_the_next_task_is_done() -> None:
    number = 0
    while True:
        queue, last = Queue(f"device {number}"), Short()
        if not interrupted_at(number, lambda queue=queue: queue.put(Short())):  # type: ignore[misc]
            break
        queue.put(last)
        last.wait()
        assert last.is_ended
        number += 1
    assert number > 30


class Failing(Task):
    """Fails with something large in its hands."""

    def __init__(self, kind: Callable[[], Exception]) -> None:
        super().__init__()
        self.kind = kind
        self.held: ref[set[int]] | None = None

    def work(self) -> None:
        large = {1, 2, 3}
        self.held = ref(large)
        raise self.kind()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (lambda: RunInterruptedError("ended"), "ended"),
        (lambda: MachineFault("bad", "k"), "in kernel k"),
        (lambda: KeyError(7), "7"),
    ],
)
@pytest.mark.parametrize("is_left", [True, False])
def test_a_task_that_failed_holds_nothing_of_what_it_worked_with(
    kind: Callable[[], Exception], text: str, is_left: bool
) -> None:
    queue, task = Queue("device"), Failing(kind)
    queue.put(task) if is_left else None
    for _ in range(2):
        with pytest.raises(type(kind()), match=text):
            task.result() if task.is_ended or is_left else queue.do(task)
    gc.collect()
    assert task.held is not None
    assert task.held() is None
    notes = "".join(getattr(task.error, "__notes__", []))
    assert ("in work" in notes) == isinstance(task.error, KeyError), "of a defect it is said where"
