"""Fills the task table from translated code: the caller's side of `tpu_sim.jit.fork_join`."""

from __future__ import annotations

from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.fork_join import COMMAND_WORDS, FORK, MAX_TASKS, RUN_COMMANDS, TASK_BYTES

Command = tuple[str, tuple[str, ...]]
"""A function and up to four arguments, each ``ptr x`` or ``i64 x``."""


class TaskTable:
    """Tasks of one fork; their arguments lie behind the table. `peak_bytes` is what both took."""

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self._count = 0
        self._used = MAX_TASKS * TASK_BYTES
        self.peak_bytes = self._used

    def add_call(self, function: str, arguments: list[str]) -> None:
        """A task that calls ``function_task`` with typed arguments (8 bytes each)."""
        if self._count == MAX_TASKS:
            self.run()
        self._begin(f"{function}_task")
        for position, argument in enumerate(arguments):
            self._put(position, argument)
        self._end(len(arguments))

    def add_commands(self, commands: list[Command]) -> None:
        """A task that runs commands in order."""
        if self._count == MAX_TASKS:
            self.run()
        self._begin(RUN_COMMANDS)
        self._put(0, f"i64 {len(commands)}")
        for number, (function, arguments) in enumerate(commands):
            first = 1 + number * COMMAND_WORDS
            self._put(first, f"ptr @{function}")
            for position, argument in enumerate(arguments):
                self._put(first + 1 + position, argument)
        self._end(1 + COMMAND_WORDS * len(commands))

    def _begin(self, function: str) -> None:
        e = self._emitter
        task = e.offset("%tasks", self._count * TASK_BYTES)
        e.store("ptr", f"@{function}", task, 8)
        e.store("ptr", self._argument_pointer(0), e.offset(task, 8), 8)
        self._count += 1

    def _end(self, words: int) -> None:
        self._used += 8 * words
        self.peak_bytes = max(self.peak_bytes, self._used)

    def _argument_pointer(self, position: int) -> str:
        return self._emitter.offset("%tasks", self._used + 8 * position)

    def _put(self, position: int, argument: str) -> None:
        llvm_type, value = argument.split(" ", 1)
        if llvm_type == "i32":
            value = self._emitter.value(f"zext i32 {value} to i64")
            llvm_type = "i64"
        self._emitter.store(llvm_type, value, self._argument_pointer(position), 8)

    def run(self) -> None:
        """Fork; returns (in the emitted code) when all tasks are done."""
        if self._count:
            self._emitter.do(f"call void @{FORK}(ptr %ctx, i64 {self._count}, ptr %scratch)")
        self._count = 0
        self._used = MAX_TASKS * TASK_BYTES
