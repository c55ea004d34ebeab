"""The standard streams: what is printed gets out, or is one message, whatever they were opened as."""

from __future__ import annotations

import codecs
import io
import os
import sys
from typing import TextIO

_ONE_COLUMN = {"…": "~"}
"""Signs of reports, and one of ASCII that keeps the columns of a table where they are."""
_HANDLER = "tpuc.plain"


def prepare_streams() -> None:
    """Let both outputs take any text, and all three streams be there."""
    codecs.register_error(_HANDLER, _plain)
    if sys.stdin is None:  # closed before the start: it holds nothing
        sys.stdin = os.fdopen(os.open(os.devnull, os.O_RDONLY), encoding="utf-8")
    sys.stdout = _usable(sys.stdout, os.O_RDONLY)  # a write fails, and is reported
    sys.stderr = _usable(sys.stderr, os.O_WRONLY)  # nobody is there to be told


def give_up_output() -> None:
    """Forget what standard output does not take, so that it is not tried again at the end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usable(stream: TextIO | None, mode: int) -> TextIO:
    """The stream; one at nothing, opened with `mode`, if it was closed before the start."""
    if stream is None:
        return open(os.open(os.devnull, mode), "w", encoding="utf-8")
    # Other errors than "strict" are what PYTHONIOENCODING says.
    if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
        stream.reconfigure(errors=_HANDLER)
    return stream


def _plain(error: UnicodeError) -> tuple[str | bytes, int]:
    """What an encoding has no sign for: a like one, else its number as in a Python string."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    plain = (_ONE_COLUMN.get(c) or c.encode("ascii", "backslashreplace").decode() for c in signs)
    return "".join(plain), error.end
