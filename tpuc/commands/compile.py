"""``tpuc compile``: a model to a program file."""

from __future__ import annotations

import click

from runtime.machines import MachineOptions
from tpuc.commands.models import Choices, compiled_or_loaded
from tpuc.commands.terminal import warn_of_made_up, writable


def compile_model(
    model: str,
    output: str,
    choices: Choices,
    no_cache: bool,
) -> None:
    """``tpuc compile``: write a .tpux."""
    if model.endswith(".tpux"):
        raise click.UsageError(f"{model} is compiled already")
    writable(output)
    machine = MachineOptions(cache=not no_cache)
    executable = compiled_or_loaded(model, choices, machine)
    warn_of_made_up(executable.made_up, is_run=False)
    executable.save(output)
