"""What the command line says of an exception: as one message, and as JSON."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import sys
from dataclasses import dataclass

import click

_NO_MEMORY = "this computer has not enough memory for the model"
_BUG = "This is a bug of tpuc; run again with TPUC_DEBUG=1 for the traceback and report it."


@dataclass(frozen=True)
class Failure:
    """`kind` is the exception's name, or "internal" for a bug of ours; `place` where in a file it
    was found, if that is known."""

    kind: str
    message: str
    text: str
    place: dict[str, object] | None = None


def describe(error: Exception) -> Failure:
    """One message; an exception that is no user error is named as our bug."""
    if isinstance(error, importlib.import_module("tpuc.errors").USER_ERRORS):
        return _of_the_user(error)
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    ):
        return _failure("MemoryError", _NO_MEMORY)
    if isinstance(error, OSError):
        gone = "the present folder" if error.errno == errno.ENOENT else "standard output"
        file = error.filename or gone
        return _failure("OSError", f"{file}: {error.strerror or error}")
    if isinstance(error, RecursionError):
        return _failure("RecursionError", "the model is nested too deep")
    message = f"{type(error).__name__}: {error}"
    return Failure("internal", message, f"internal error: {message}\n{_BUG}")


def _of_the_user(error: Exception) -> Failure:
    text = on_one_line(str(error))
    place = getattr(error, "span", None)
    return Failure(
        type(error).__name__,
        on_one_line(str(getattr(error, "message", text))),
        text if text.startswith("error") else f"error: {text}",
        None if place is None else {"file": place.file, "line": place.line, "column": place.column},
    )


def on_one_line(message: str) -> str:
    """The message, with names of the command line that hold newlines and the like in quotes."""
    for word in sys.argv[1:]:
        if not word.isprintable():
            message = message.replace(word, repr(word))
    return message


def _failure(kind: str, message: str) -> Failure:
    message = on_one_line(message)
    return Failure(kind, message, f"error: {message}")


def say_as_json(kind: str, message: str, place: dict[str, object] | None = None) -> None:
    """With ``--json``: who reads standard output alone learns what went wrong, too."""
    if "--json" not in sys.argv[1:]:
        return
    error: dict[str, object] = {"kind": kind, "message": message}
    if place is not None:
        error["at"] = place
    with contextlib.suppress(
        OSError
    ):  # a full or closed output cannot be told; the message is beside it
        click.echo(json.dumps({"error": error}))
