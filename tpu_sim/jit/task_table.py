"""Fills the task table from translated code: the caller's side of `tpu_sim.jit.fork_join`."""

from __future__ import annotations

from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.fork_join import (
    COMMAND_WORDS,
    FORK,
    MAX_TASKS,
    PUT_TASK,
    PUT_WORDS,
    RUN_COMMANDS,
    TASK_BYTES,
    WORDS_AT_ONCE,
)

Command = tuple[str, tuple[str, ...]]
"""A function and up to four arguments, each ``ptr x`` or ``i64 x``."""


class TaskTable:
    """Tasks of one fork; their arguments lie behind the table. `peak_bytes` is what both took."""

    def __init__(self, emitter: FunctionEmitter) -> None:
        self._emitter = emitter
        self._count = 0
        self._used = MAX_TASKS * TASK_BYTES
        self.peak_bytes = self._used

    def add_commands(self, commands: list[Command]) -> None:
        """A task that runs commands in order."""
        if self._count == MAX_TASKS:
            self.run()
        words = [f"i64 {len(commands)}"]
        for function, arguments in commands:
            unused = COMMAND_WORDS - 1 - len(arguments)
            words += [f"ptr @{function}", *arguments, *["i64 0"] * unused]
        self._add(RUN_COMMANDS, words)

    def add(self, function: str, words: list[str]) -> str:
        """A task that calls `function`; returns the pointer to its arguments.

        The words ``i64 0`` among them may be room that the function writes to.
        """
        pointer = self._emitter.offset("%tasks", self._used)
        self._add(function, words)
        return pointer

    def _add(self, function: str, words: list[str]) -> None:
        """One call writes the task and its first arguments: far less code than their stores."""
        e = self._emitter
        first = words[:WORDS_AT_ONCE]
        places = ["ptr %tasks", f"i64 {self._count * TASK_BYTES}", f"i64 {self._used}"]
        parameters = ", ".join([*places, f"ptr @{function}", *first])
        e.do(f"call void @{PUT_TASK}{len(first)}({parameters})")
        for start in range(WORDS_AT_ONCE, len(words), WORDS_AT_ONCE):
            more = words[start : start + WORDS_AT_ONCE]
            parameters = ", ".join(["ptr %tasks", f"i64 {self._used + 8 * start}", *more])
            e.do(f"call void @{PUT_WORDS}{len(more)}({parameters})")
        self._count += 1
        self._used += 8 * len(words)
        self.peak_bytes = max(self.peak_bytes, self._used)

    def run(self) -> None:
        """Fork; returns (in the emitted code) when all tasks are done."""
        if self._count:
            self._emitter.do(f"call void @{FORK}(ptr %ctx, i64 {self._count}, ptr %scratch)")
        self._count = 0
        self._used = MAX_TASKS * TASK_BYTES
