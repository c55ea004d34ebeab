"""The prompt of ``tpuc debug``, with completion and history; and scripts, whose output is plain."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from compiler.diagnostics import CompileError
from tpu_sim.machine.faults import MachineFault
from tpuc.debugger.commands import CommandLoop, completions, find_command

_PROMPT = "(tpuc) "
_REPEATED = frozenset({"step", "reverse-step", "continue", "list"})
_ERRORS = (ValueError, IndexError, CompileError, MachineFault)


def run_script(commands: CommandLoop, lines: Iterable[str]) -> None:
    """Execute lines, each said before what it prints; the first error ends it: `click.ClickException`."""
    for line in lines:
        if commands.is_over:
            return
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        click.echo(f"{_PROMPT}{text}")
        try:
            _say(commands.execute(text))
        except _ERRORS as error:
            raise ScriptError(str(error)) from error


class ScriptError(CompileError):
    """A command of a script failed."""


def interact(commands: CommandLoop) -> None:
    """Read commands: from a terminal with completion and history, or from a pipe as a script."""
    if not sys.stdin.isatty():
        run_script(commands, sys.stdin)
        return
    last = ""
    for line in _lines(commands):
        text = line.strip() or last
        try:
            _say(commands.execute(text))
            last = text if text and find_command(text.split()[0]).name in _REPEATED else ""
        except _ERRORS as error:
            click.echo(f"error: {error}", err=True)
            last = ""
        if commands.is_over:
            return


def _say(text: str) -> None:
    if text:
        click.echo(text)


def _lines(commands: CommandLoop) -> Iterator[str]:
    """What is typed; Ctrl-C leaves a line, Ctrl-D the prompt."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document
    from prompt_toolkit.history import FileHistory, History, InMemoryHistory

    class Names(Completer):
        """Commands, and the names that they take."""

        def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
            line = document.text_before_cursor
            for name in completions(commands.debugger, line):
                yield Completion(name, -len(line.split(" ")[-1]))

    try:
        history: History = FileHistory(str(_history()))
    except OSError:  # nowhere to keep it
        history = InMemoryHistory()
    session: PromptSession[str] = PromptSession(
        history=history, completer=Names(), complete_while_typing=False
    )
    while True:
        try:
            yield session.prompt(_PROMPT)
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def _history() -> Path:
    """Where lines are kept from one time to the next."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = Path(home) / "tpuc"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "debug_history"
