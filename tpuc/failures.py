"""What the command line says of an exception: as one message, and as JSON."""

from __future__ import annotations

import contextlib
import difflib
import errno
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import click

from compiler.diagnostics import NO_FILE, CompileError, visible
from tpu_sim.isa.errors import TpucError
from tpuc.own_lines import text_file

_JSON = "--json"
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


def say(error: Exception, words: Sequence[str]) -> None:
    """Say on standard error what became of a command line of these words; with ``--json`` on standard
    output, too."""
    failure = describe(error, words)
    click.echo(visible(failure.text), err=True)
    if _JSON in words:
        say_as_json(failure.kind, failure.message, failure.place)


def say_usage(error: click.ClickException, words: Sequence[str]) -> None:
    """The same of a command line that is none."""
    error, shown = _with_near_options(error), io.StringIO()
    error.show(file=shown)
    click.echo(on_one_line(shown.getvalue(), words), err=True, nl=False)
    if _JSON in words:
        say_as_json("usage", on_one_line(error.format_message(), words))


def _with_near_options(error: click.ClickException) -> click.ClickException:
    """An unknown option with those that are near: click counts the dashes, which all of them have."""
    if not isinstance(error, click.NoSuchOption):
        return error
    names = {option.lstrip("-"): option for option in error.possibilities or ()}
    near = difflib.get_close_matches(error.option_name.lstrip("-"), names)
    return click.NoSuchOption(
        error.option_name, error.message, [names[name] for name in near], error.ctx
    )


def describe(error: Exception, words: Sequence[str] = ()) -> Failure:
    """One message; an exception that is no user error is named as our bug. `words` are those of the command
    line, which messages may repeat."""
    if isinstance(error, TpucError):
        return _of_the_user(error, words)
    if isinstance(error, MemoryError) or (
        isinstance(error, OSError) and error.errno == errno.ENOMEM
    ):
        return _failure("MemoryError", _NO_MEMORY, words)
    if isinstance(error, OSError):
        gone = "the present folder" if error.errno == errno.ENOENT else "standard output"
        file = error.filename or gone
        return _failure("OSError", f"{file}: {error.strerror or error}", words)
    if isinstance(error, RecursionError):
        return _failure("RecursionError", "the model is nested too deep", words)
    message = f"{type(error).__name__}: {error}"
    return Failure("internal", message, f"internal error: {message}\n{_BUG}")


def _of_the_user(error: Exception, words: Sequence[str]) -> Failure:
    kind, place = type(error).__name__, getattr(error, "span", None)
    if isinstance(error, CompileError) and place is not None and place.file == NO_FILE:
        # a command reads text without a file from standard input alone
        place = replace(place, file=text_file("-"))
        origin, error = error.origin, CompileError(error.message, place)
        error.say_origin(origin)
    text = on_one_line(str(error), words)
    return Failure(
        kind,
        on_one_line(str(getattr(error, "message", text)), words),
        text if text.startswith("error") else f"error: {text}",
        None if place is None else {"file": place.file, "line": place.line, "column": place.column},
    )


def on_one_line(message: str, words: Sequence[str]) -> str:
    """The message, with words of the command line that hold newlines and the like in quotes."""
    for word in words:
        if not word.isprintable():
            message = message.replace(word, repr(word))
    return message


def _failure(kind: str, message: str, words: Sequence[str]) -> Failure:
    message = on_one_line(message, words)
    return Failure(kind, message, f"error: {message}")


def say_as_json(kind: str, message: str, place: dict[str, object] | None = None) -> None:
    """Who reads standard output alone learns what went wrong, too."""
    error: dict[str, object] = {"kind": kind, "message": message}
    if place is not None:
        error["at"] = place
    with contextlib.suppress(
        OSError
    ):  # a full or closed output cannot be told; the message is beside it
        click.echo(json.dumps({"error": error}))
