"""``tpuc passes``: what passes there are, and what each did."""

from __future__ import annotations

import json

import click

from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET
from tpuc import tables
from tpuc.commands.models import named_chip, parsed
from tpuc.commands.terminal import warn_of_f32


def passes(model: str | None, target: str | None, f64_as_f32: bool, as_json: bool) -> None:
    """``tpuc passes``: what there is, and what each did to a model."""
    from compiler.driver import run_passes
    from tpuc import pass_tables

    # An unknown chip is refused by name, with or without a model.
    chip = named_chip(DEFAULT_TARGET if target is None else target)
    timings = None
    if model is not None:
        module = parsed(model)
        warn_of_f32(f64_as_f32)
        options = CompileOptions(f64_as_f32=f64_as_f32)
        timings = run_passes(module, chip, None, options)
    if as_json:
        click.echo(json.dumps(pass_tables.as_json(timings)))
    elif model is None or timings is None:
        pass_tables.print_passes(tables.console())
    else:
        pass_tables.print_timings(tables.console(), model, timings)
