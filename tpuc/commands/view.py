"""``tpuc view``: the page of a model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET
from runtime.executable import Executable
from runtime.machines import MachineOptions
from tpuc.commands.judging import read_or_random
from tpuc.commands.models import model_source, named_chip
from tpuc.commands.terminal import quiet, warn_of_f32, working, writable


def view(
    model: str,
    output: str | None,
    is_run: bool,
    inputs: str | None,
    seed: int,
    target: str | None,
    precision: str | None,
    f64_as_f32: bool,
    trips: int,
) -> None:
    """Write the page of a model."""
    from tpuc.view.collect import ViewOptions, collect
    from tpuc.view.page_file import write_page

    if model.endswith(".tpux"):
        raise click.UsageError(f"{model} is compiled and holds no passes: give the model")
    if inputs and not is_run:
        raise click.UsageError("--inputs are for --run")
    source, name = model_source(model), "model" if model == "-" else Path(model).stem
    path = output or f"{name}.html"
    writable(path)
    chosen = target or DEFAULT_TARGET
    named_chip(chosen)
    warn_of_f32(f64_as_f32)

    def arguments(executable: Executable) -> Sequence[npt.NDArray[np.generic]]:
        return list(read_or_random(inputs, executable.argument_shapes, seed))

    compiling = CompileOptions(precision=precision or "default", f64_as_f32=f64_as_f32)
    options = ViewOptions(chosen, compiling, MachineOptions(), arguments if is_run else None, trips)
    with working(f"looking into {model}"), quiet():
        size = write_page(path, [collect(source, name, options)])
    click.echo(f"{path}: {size / 1e6:.1f} MB, open it in a browser")
