"""Collects the commands of a function: the translator's side of `tpu_sim.jit.command_kernels`.

Commands are run together as late as possible: before something that is not a command, by `flush`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tpu_sim.isa.errors import ProgramError
from tpu_sim.jit.command_kernels import (
    FORK_BYTES,
    FORK_LISTS,
    MAX_BASES,
    RUN_LIST,
    CommandKind,
    argument_word,
    head_word,
    piece_word,
    ring_word,
    weights_word,
)
from tpu_sim.jit.constant_table import ConstantTable
from tpu_sim.jit.emitter import FunctionEmitter
from tpu_sim.jit.fork_join import MAX_TASKS


class Pointer(NamedTuple):
    """A pointer: an SSA name, and a number of bytes to add to it."""

    pointer: str
    offset: int


@dataclass(frozen=True, slots=True)
class PiecePlace:
    """A row of a window whose data lie in pieces: `rows` behind `pointer`, in piece `number`.

    `gap` is an i64, the bytes between two pieces that VMEM does not have.
    """

    pointer: str
    gap: str
    number: int
    rows: int


@dataclass(frozen=True, slots=True)
class RingPlace:
    """Result `number` of an MXU unit, counted from the oldest one; its ring has `entries`."""

    unit: int
    number: int
    entries: int


@dataclass(frozen=True, slots=True)
class WeightsPlace:
    """Bytes from the start of the block that is active, or the shadow, when a command runs."""

    unit: int
    is_shadow: bool
    offset: int


AnyPlace = Pointer | RingPlace | PiecePlace | WeightsPlace
_MEMORIES = ("", "%vmem", "%carry", "%results", "%transpose")
"""Bases that a function sets once; what a segment computes has numbers from there on."""


class CommandList:
    """Commands as words; `work` is what they cost, in vreg operations."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.most_arguments = 1
        self.work = 0

    def add(self, kind: int, arguments: Sequence[int], component: int = 0, work: int = 0) -> None:
        """Append a command with argument words."""
        self.words.append(head_word(kind, len(arguments), component))
        self.words += arguments
        self.most_arguments = max(self.most_arguments, len(arguments))
        self.work += work

    def data(self) -> list[int]:
        """The list as `RUN_LIST` wants it."""
        return [self.most_arguments, *self.words, head_word(CommandKind.END, 0)]


class Commands:
    """The commands of a function, and the bases that their arguments count from."""

    def __init__(self, emitter: FunctionEmitter, constants: ConstantTable) -> None:
        self._emitter = emitter
        self._constants = constants
        self._fixed: dict[str, int] = {}
        self._numbers: dict[str, int] = {}
        self._next = self._end = len(_MEMORIES)
        self._is_used = False
        self._pending = CommandList()
        self.task_bytes = 0
        """Task memory that forks need."""

    # arguments

    def pointer(self, place: AnyPlace) -> int:
        """A pointer as an argument."""
        if isinstance(place, Pointer):
            return argument_word(self._base("ptr", place.pointer), place.offset)
        if isinstance(place, RingPlace):
            return ring_word(place.unit, place.number, place.entries)
        if isinstance(place, WeightsPlace):
            return weights_word(place.unit, place.is_shadow, place.offset)
        return piece_word(self._pair(place.pointer, place.gap), place.number, place.rows)

    def _pair(self, pointer: str, behind: str) -> int:
        """The number of a pointer with an i64 behind it, which are set at first use."""
        key = f"{pointer} {behind}"
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._take(2)
            self._store(self._emitter, "ptr", pointer, number)
            self._store(self._emitter, "i64", behind, number + 1)
        return number

    def number(self, value: int) -> int:
        """A known number as an argument."""
        return argument_word(self._base("i64", ""), value)

    def integer(self, llvm_type: str, text: str) -> int:
        """An i32 or i64 as an argument; of an i32 the callee sees the low half only."""
        if not text.startswith("%"):
            return self.number(int(text))
        return argument_word(self._base(llvm_type, text), 0)

    def _base(self, llvm_type: str, name: str) -> int:
        """The number of a base; the code that sets it is appended at first use."""
        number = self._numbers.get(name)
        if number is not None:
            return number
        if name in _MEMORIES:
            number = self._fixed[name] = _MEMORIES.index(name)
        else:
            number = self._take(1)
            text = name
            if llvm_type == "i32":
                llvm_type, text = "i64", self._emitter.value(f"zext i32 {name} to i64")
            self._store(self._emitter, llvm_type, text, number)
        self._numbers[name] = number
        self._is_used = True
        return number

    def _take(self, count: int) -> int:
        """The first of new numbers."""
        number = self._next
        self._next += count
        self._end = max(self._end, self._next)
        if self._end >= MAX_BASES:
            raise ProgramError(f"a block with more than {MAX_BASES} addresses", "commands")
        return number

    @staticmethod
    def _store(e: FunctionEmitter, llvm_type: str, text: str, number: int) -> None:
        e.store(llvm_type, text, e.offset("%bases", 8 * number), 8)

    def entry_lines(self) -> list[str]:
        """What the function starts with, once its memories are known."""
        if not self._is_used:
            return []
        e = FunctionEmitter("b")  # what lies behind a base is read even where it means nothing
        e.do(f"%bases = alloca [{self._end + 1} x i64], align 8")
        for name, number in self._fixed.items():
            self._store(e, "ptr" if name else "i64", name or "0", number)
        return e.lines

    # commands

    def begin_segment(self) -> None:
        """What was computed before is used no more: its numbers are free."""
        self.flush()
        self._numbers = {}
        self._next = len(_MEMORIES)

    def add(self, kind: int, arguments: Sequence[int], component: int = 0) -> None:
        """Run a command after those before it."""
        self._pending.add(kind, arguments, component)

    def append(self, commands: CommandList) -> None:
        """Run a list after the commands before it."""
        self._pending.words += commands.words
        self._pending.most_arguments = max(self._pending.most_arguments, commands.most_arguments)

    def flush(self) -> None:
        """Run what was added so far before the code that follows."""
        if self._pending.words:
            table = self._pointer(self._pending.data())
            self._emitter.do(
                f"call void @{RUN_LIST}(ptr %ctx, ptr {table}, ptr %bases, ptr %scratch)"
            )
            self._pending = CommandList()

    def fork(self, lists: Sequence[CommandList]) -> None:
        """Run lists that do not depend on each other, on all threads."""
        self.flush()
        for start in range(0, len(lists), MAX_TASKS):
            some = [one.data() for one in lists[start : start + MAX_TASKS]]
            at, words = 8 * len(some), []
            for data in some:
                words.append(at)
                at += 8 * len(data)
            table = self._pointer([*words, *(word for data in some for word in data)])
            self._emitter.do(
                f"call void @{FORK_LISTS}(ptr %ctx, ptr {table}, i64 {len(some)}, ptr %bases, "
                "ptr %scratch)"
            )
            self.task_bytes = FORK_BYTES

    def _pointer(self, words: Sequence[int]) -> str:
        offset = self._constants.add(words, "Q")
        return self._emitter.offset(f"@{self._constants.name}", offset)
