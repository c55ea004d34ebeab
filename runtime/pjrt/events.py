"""Events: how PJRT learns that a call has ended, and what it failed with."""

from __future__ import annotations

from runtime.pjrt.failures import coded
from runtime.pjrt.native import leaves
from runtime.queue import Task


def event_of(task: Task | None) -> int:
    """The handle of an event that comes when `task` has ended, with its error; PJRT will destroy it."""
    native = leaves()
    if task is None or (task.is_ended and task.error is None):
        return native.ready
    event: int = native.event_new()
    task.when_ended(lambda: _set(event, task.error))
    return event


def _set(event: int, error: BaseException | None) -> None:
    code, message = (0, b"") if error is None else coded(error)
    leaves().event_set(event, code, message, len(message))
