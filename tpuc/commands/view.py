"""``tpuc view``: the page of a model, or of two to compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt

from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET
from runtime.executable import Executable
from runtime.machines import MachineOptions
from tpuc.commands.judging import Given
from tpuc.commands.models import compiling_processes, model_source, named_chip, skipped_passes
from tpuc.commands.terminal import quiet, readable, warn_of_f32, working, writable


def view(
    models: tuple[str, ...],
    output: str | None,
    is_run: bool,
    inputs: str | None,
    seed: int,
    targets: tuple[str, ...],
    precision: str | None,
    f64_as_f32: bool,
    skip: str | None,
    trips: int,
) -> None:
    """Write the page of a model, or of two models, targets or versions side by side."""
    from tpuc.view.collect import ViewOptions, collect
    from tpuc.view.page_file import AnyDocument, stored_document, write_page

    sides = list(_sides(models, targets))
    if inputs and not is_run:
        raise click.UsageError("--inputs are for --run")
    path = output or "-".join(dict.fromkeys(_stem(model) for model, _ in sides)) + ".html"
    if any(Path(model).resolve() == Path(path).resolve() for model, _ in sides):
        raise click.UsageError(f"{path} is what is looked at: give another page with -o")
    writable(path)
    readable(inputs)
    warn_of_f32(f64_as_f32)

    compiling = CompileOptions(
        precision=precision or "default",
        f64_as_f32=f64_as_f32,
        skip=skipped_passes(skip),
        processes=compiling_processes(),
    )
    documents: list[AnyDocument] = []
    for model, target in sides:
        if model.endswith(".html"):
            documents.append(stored_document(model))
            continue
        given = Given(model, inputs, None, seed)
        chosen = partial(_arguments, given) if is_run else None
        options = ViewOptions(target, compiling, MachineOptions(), chosen, trips)
        with working(f"looking into {model} on {target}"), quiet():
            documents.append(collect(model_source(model), _stem(model), options))
    size = write_page(path, documents)
    click.echo(f"{path}: {size / 1e6:.1f} MB, open it in a browser")


def _arguments(given: Given, executable: Executable) -> Sequence[npt.NDArray[np.generic]]:
    return list(given.arguments(executable.argument_shapes))


def _sides(models: tuple[str, ...], targets: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """What is looked at: each model with its target."""
    if len(models) > 2 or len(targets) > 2:
        raise click.UsageError("a page shows one model or compares two")
    for model in models:
        if model.endswith(".tpux"):
            raise click.UsageError(f"{model} is compiled and holds no passes: give the model")
    for target in targets:
        named_chip(target)
    count = max(len(models), len(targets))
    for number in range(count):
        model = models[min(number, len(models) - 1)]
        target = targets[min(number, len(targets) - 1)] if targets else DEFAULT_TARGET
        yield model, target


def _stem(model: str) -> str:
    return "model" if model == "-" else Path(model).stem
