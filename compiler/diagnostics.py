"""Errors that a user sees: one message, with the place it points at.

Every error the compiler raises for a user's input is a `CompileError`; a Python
`assert` or any other exception is a bug of ours.
"""

from __future__ import annotations

import linecache
import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from types import FrameType

from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.errors import TpucError

NO_FILE = "<text>"
"""What is named as the file of a text that came without one."""
_HALF_LINE = 80
"""So many characters of a line are quoted on either side of a column."""
_OURS = ("numpy", "runtime", "compiler", "tpuc", "contextlib", "functools")


def users_frame() -> tuple[FrameType | None, int]:
    """The innermost frame outside of tpuc and NumPy, and how many frames it lies above the caller's: where in
    the user's program this happens."""
    frame, count = sys._getframe(1).f_back, 1
    while frame is not None and _is_ours(frame):
        frame, count = frame.f_back, count + 1
    return frame, count


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).split(".")[0] in _OURS


def note_users_line(error: BaseException) -> None:
    """Add to an error that passes through here where in the user's program it was raised, and what NumPy
    put a message of its own before. What was raised outside of the user's program gets no place."""
    hidden = error.__cause__ or error.__context__
    if isinstance(hidden, CompileError) and not isinstance(error, CompileError):
        error.add_note(hidden.message)
    place, step = None, error.__traceback__
    while step is not None:
        code, is_installed = step.tb_frame.f_code, "-packages" in step.tb_frame.f_code.co_filename
        if not _is_ours(step.tb_frame) and (place is None or not is_installed):
            place = code, step.tb_lineno
        step = step.tb_next
    if place is not None:
        code, number = place
        line = linecache.getline(code.co_filename, number).strip()
        error.add_note(f"at {code.co_filename}:{number}, in {code.co_name}: {line}".rstrip(": "))


def visible(text: str) -> str:
    """The text with what a terminal would obey or not show, but newlines, as Python writes it in a string.

    >>> visible("a\\0b")
    'a\\\\x00b'
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in text)


@dataclass(frozen=True)
class SourceSpan:
    """A place in a source text: file name, 1-based line and column, and the line itself."""

    file: str
    line: int
    column: int
    text: str = ""

    def render(self) -> str:
        """Return ``file:line:column`` followed by the line with a caret under the column."""
        head = f"{self.file}:{self.line}:{self.column}"
        if not self.text:
            return head
        at, line = self.column - 1, self.text.replace("\t", " ")
        before = visible(line[max(0, at - _HALF_LINE) : at])[-_HALF_LINE:]
        after = visible(line[at : at + _HALF_LINE])[:_HALF_LINE]
        return f"{head}\n    {before}{after}\n    {' ' * len(before)}^"


class SourceText:
    """A whole source file, from which a character offset becomes a `SourceSpan` when one is needed."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.text = text

    @cached_property
    def _starts(self) -> list[int]:
        """Where lines begin."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def span(self, offset: int) -> SourceSpan:
        """The place of a character offset (0-based) in the text."""
        offset = max(0, min(offset, len(self.text)))
        number = bisect_right(self._starts, offset)
        start = self._starts[number - 1]
        end = self.text.find("\n", offset)
        line = self.text[start : end if end >= 0 else len(self.text)]
        return SourceSpan(self.file, number, offset - start + 1, line)


class CompileError(TpucError):
    """A user's input cannot be compiled: `message`, and where (`span`) when known.

    `origin` is where in the program that the input was made from, ``train.py:12 (jit(f)/sin)``, if the input
    says so.
    """

    def __init__(self, message: str, span: SourceSpan | None = None) -> None:
        self.message = message
        self.span = span
        self.origin = ""
        super().__init__(message if span is None else f"{message}\n  at {span.render()}")

    def say_origin(self, origin: str) -> None:
        """Say where the input comes from; what was said first stays."""
        if origin and not self.origin:
            self.origin = origin
            self.args = (f"{self}\n  from {origin}",)


class VerifyError(CompileError):
    """A module breaks a numbered invariant of the verifier (``error[V7]: ...``)."""


class UnsupportedError(CompileError):
    """A valid operation that tpuc does not run; the message names it and says what to do."""


class UnreadableFileError(CompileError):
    """A file that the user names is not there, or the system does not let it be read."""


class DeviceCountError(UnsupportedError):
    """The program is not one of as many devices as the target has, and cannot be put on as many."""


class ResourceExhaustedError(CompileError):
    """The program does not fit the device's memory (XLA's RESOURCE_EXHAUSTED).

    `summary` says so in a few words, without what takes the memory; `needed_bytes` are those of HBM
    that it would take, 0 where another memory is too small.
    """

    def __init__(
        self,
        message: str,
        span: SourceSpan | None = None,
        *,
        summary: str = "",
        needed_bytes: int = 0,
    ) -> None:
        super().__init__(message, span)
        self.summary = summary or message
        self.needed_bytes = needed_bytes


class KernelLimitError(ResourceExhaustedError):
    """A kernel has more windows, registers or flags than there are; in two parts it may fit.

    `instructions` are those that such kernels are of, when known.
    """

    instructions: tuple[object, ...] = ()


class ElidedConstantsWarning(UserWarning):
    """A model's text leaves constants out (``{...}``): their values are made up."""


def made_up_note(names: Sequence[str]) -> str:
    """What to say of a model whose text leaves out the values of some constants."""
    some = "1 constant is" if len(names) == 1 else f"{len(names)} constants are"
    return f"{some} elided in the model's text, the first is %{names[0]}: values are made up"
