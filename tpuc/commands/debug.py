"""``tpuc debug``: stop a run anywhere, look at it, go on and back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from compiler.diagnostics import CompileError, UnreadableFileError
from runtime.machines import MachineOptions
from tpuc.commands.judging import Given
from tpuc.commands.models import Choices, compiled_or_loaded
from tpuc.commands.terminal import readable, working


def debug(
    model: str,
    inputs: str | None,
    seed: int,
    choices: Choices,
    machine: str,
    script: str | None,
    commands: tuple[str, ...],
) -> None:
    """Compile a model, load its inputs, and read commands from a script, the command line, or a prompt."""
    from tpuc.debugger.commands import CommandLoop
    from tpuc.debugger.debugger import Debugger
    from tpuc.debugger.prompt import interact, run_script

    if model == "-" and script is None and not commands:
        raise click.UsageError(
            "the model comes from standard input: give commands with -x or --command"
        )
    lines = _script(script)
    readable(inputs)
    chosen = replace(choices, has_lines=True)
    executable = compiled_or_loaded(model, chosen, MachineOptions(machine=machine))
    given = Given(model, inputs, None, seed)
    arrays = list(given.arguments(executable.argument_shapes))
    with working(f"loading {model}"):
        debugger = Debugger(executable, arrays, machine)
    session = CommandLoop(debugger)
    if given.is_random and arrays:
        click.echo(f"inputs: random, seed {seed} (give your own with --inputs)", err=True)
    run_script(session, [*lines, *commands])
    if script is None and not commands:
        interact(session)


def _script(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        return Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UnreadableFileError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise CompileError(f"cannot read {path}: it is no UTF-8 text") from error
