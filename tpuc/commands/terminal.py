"""What commands say on standard error, and what they refuse before any long work."""

from __future__ import annotations

import os
import re
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.text import Text

from compiler.diagnostics import CompileError, ElidedConstantsWarning, UnreadableFileError
from tpu_sim.isa.files import check_writable

_COUNTED = re.compile(r"\b(\d+) of (\d+)\b")
_errors = Console(stderr=True, markup=False, emoji=False)


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None] | None]:
    """Show a spinner on a terminal; gives what to tell it with how far the work is, None when piped."""
    if not _errors.is_terminal:
        yield None
        return
    with _errors.status(Text(what)) as status:
        yield lambda far: status.update(Text(f"{what}: {far}"))


@contextmanager
def compiling(model: str) -> Iterator[Callable[[str], None] | None]:
    """Show which pass or kernel the compiler is at, and about how long the kernels left will take; gives
    what to tell it with, None when piped."""
    with working(f"compiling {model}") as say:
        steps = Steps()
        yield None if say is None else lambda what: say(f"{what}{steps.left(what)}")


class Steps:
    """How long the rest of ``.. 3 of 40 ..`` takes, by what those before took."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._started: float | None = None

    def left(self, what: str) -> str:
        """``, 12 s left``; nothing where there is no count, or none is done yet."""
        found = _COUNTED.search(what)
        if found is None:
            self._started = None
            return ""
        number, count = int(found[1]), int(found[2])
        if self._started is None or number == 1:
            self._started = self._clock()
            return ""
        seconds = (self._clock() - self._started) / (number - 1) * (count - number + 1)
        return f", {seconds:.0f} s left"


class Lines:
    """How far long work is, on standard error, where no terminal shows a bar: a line every 30 seconds in
    which some of it was done."""

    def __init__(
        self, what: str, total: int, clock: Callable[[], float] = time.monotonic, every: float = 30
    ) -> None:
        self._what, self._total, self._done = what, total, 0
        self._clock, self._every, self._said = clock, every, clock()

    def advance(self) -> None:
        """One more is done."""
        self._done += 1
        now = self._clock()
        if now - self._said >= self._every and self._done < self._total:
            self._said = now
            click.echo(f"{self._what} {self._done} of {self._total}", err=True)


@contextmanager
def quiet() -> Iterator[None]:
    """No Python warnings of elided constants: `warn_of_made_up` says it, of stored programs too."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ElidedConstantsWarning)
        yield


def warn_of_made_up(note: str | None, *, is_run: bool) -> None:
    """Say that constants were elided, and what that means for the values of a run."""
    if note is not None:
        end = ", so results mean nothing (cycles do)" if is_run else ""
        click.echo(f"warning: {note}{end}; print the model with its large constants", err=True)


def warn_of_f32(f64_as_f32: bool) -> None:
    """Say that doubles are computed with fewer bits, where ``--f64-as-f32`` asks for it."""
    if f64_as_f32:
        click.echo("warning: --f64-as-f32: f64 is computed as f32, with 24 bits of 53", err=True)


def readable(path: str | None) -> None:
    """Refuse a file of arrays that cannot be opened before any long work. What is no file, such as a
    pipe, is left to who reads it: it may be opened once."""
    if path is None or (os.path.exists(path) and not os.path.isfile(path)):
        return
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise UnreadableFileError(f"cannot read {path}: {error.strerror}") from error


def writable(path: str | None) -> None:
    """Refuse an output that cannot be written before any long work."""
    if path is None:
        return
    try:
        check_writable(path)
    except OSError as error:
        raise CompileError(f"cannot write {path}: {error.strerror}") from error
