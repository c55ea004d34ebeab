"""``tpuc sweep``: models on many variants of a chip."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table

from runtime.api import read_source
from tpu_sim.isa.chip_settings import SettingError, with_settings
from tpu_sim.jit.host import processor_count
from tpuc.commands.models import named_topology, standard_input, worker_choice
from tpuc.commands.terminal import writable
from tpuc.failures import say_as_json
from tpuc.sweep import (
    Point,
    Result,
    Sweep,
    SweptValues,
    combinations,
    front,
    parse_values,
    relative_times,
    run_sweep,
    sensitivity,
)
from tpuc.sweep_plot import check_plot, write_plot
from tpuc.tables import console, heading

_MOST_ERRORS = 5
"""In a text that is to fit a screen; JSON has all."""

Results = dict[tuple[str, Point], Result]


def sweep(
    models: tuple[str, ...],
    settings: tuple[str, ...],
    target: str,
    precision: str | None,
    trips: int,
    jobs: int | None,
    workers: str | None,
    results: str | None,
    csv_file: str | None,
    plot: str | None,
    as_json: bool,
) -> None:
    """``tpuc sweep``: estimate every model on every combination; exit 1 if a model runs on none."""
    choice = worker_choice(workers)
    if choice is not None and jobs is not None:
        raise click.UsageError(
            "--jobs are processes here, --workers those of Ray: give one of them"
        )
    parameters, points = _points(settings, target)
    _expect_models(models)
    writable(csv_file)
    writable(plot)
    if plot:
        check_plot(plot)
    piped = standard_input() if "-" in models else ""
    chosen = Sweep(precision or "default", trips)
    kept = Path(results) if results else None
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    terminal = Console(stderr=True)
    is_shown = terminal.is_terminal
    bar = Progress(*columns, console=terminal, transient=True, disable=not is_shown)
    with _keeping(kept), bar:
        task = bar.add_task("estimating", total=len(models) * len(points))
        found = run_sweep(
            models,
            target,
            points,
            chosen,
            jobs or processor_count(),
            kept,
            lambda _: bar.advance(task),
            piped,
            choice,
        )
    times = relative_times(found, models, points)
    if csv_file:
        _write_csv(Path(csv_file), parameters, found)
    if plot:
        write_plot(plot, models, parameters, times, front(times, parameters))
    if all(result.error for result in found.values()):
        _say_errors(found, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(_as_json(parameters, found, times)))
    else:
        _print(models, parameters, points, found, times)
    if not any(map(math.isfinite, times.values())):
        raise click.exceptions.Exit(1)


def _expect_models(models: tuple[str, ...]) -> None:
    """Raise `click.UsageError` for what cannot be compiled once for each variant."""
    for model in models:
        if model.endswith(".tpux"):
            raise click.UsageError(
                f"{model} is compiled, for one chip: give the model it came from"
            )
        if model != "-" and not Path(model).is_file():
            read_source(model)  # says why it cannot be read, as every command does
            raise click.UsageError(f"{model}: want a file that can be read again, or -")


def _say_errors(found: Results, *, as_json: bool) -> None:
    """What went wrong where no variant of any model was compiled."""
    texts = _errors(found, len(found) if as_json else _MOST_ERRORS)
    for text in texts:
        click.echo(f"error: {text}", err=True)
    say_as_json("CompileError", "\n".join(texts))


@contextmanager
def _keeping(kept: Path | None) -> Iterator[None]:
    """Say to who interrupts a sweep that what it found is there."""
    try:
        yield
    except KeyboardInterrupt:
        if kept is not None:
            click.echo(f"{kept} keeps what was found: the same command goes on", err=True)
        raise


def _points(settings: Sequence[str], target: str) -> tuple[list[SweptValues], list[Point]]:
    """What to try; a setting that is wrong by itself is refused before anything runs."""
    try:
        parameters = [parse_values(text) for text in settings]
        points = combinations(parameters)
        alone = {(setting,) for point in points for setting in point}
        for settings_of in ((), *sorted(alone, key=str)):
            named_topology(with_settings(target, settings_of))
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    return parameters, points


def _print(
    models: Sequence[str],
    parameters: Sequence[SweptValues],
    points: Sequence[Point],
    results: Results,
    times: dict[Point, float],
) -> None:
    out = console()
    best = front(times, parameters)
    heading(
        out,
        f"time on the chip: {results[models[0], points[0]].target} and {len(points) - 1} variants",
    )
    table = Table()
    for parameter in parameters:
        table.add_column(parameter.key, justify="right")
    for model in models:
        table.add_column(Path(model).stem, justify="right")
    table.add_column("by first", justify="right")
    table.add_column("best")
    for point in points:
        values = [setting.value for setting in point] or ["as it is", *[""] * (len(parameters) - 1)]
        each = [_time(results[model, point]) for model in models]
        table.add_row(*values, *each, _ratio(times[point]), "*" if point in best else "")
    out.print(table)
    out.print("*: the fastest of those as many steps along the lists, or fewer")
    effects = Table()
    for column in ("parameter", "value", "time by that of its first value"):
        effects.add_column(column, justify="left" if column == "parameter" else "right")
    for key, value, ratio in sensitivity(times, parameters):
        effects.add_row(key, value, _ratio(ratio))
    out.print(effects)
    for text in _errors(results):
        out.print(text, soft_wrap=True)


def _errors(results: Results, most: int = _MOST_ERRORS) -> list[str]:
    """What went wrong: a line for each model and error, with the first variant that has it."""
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for result in results.values():
        if result.error:
            targets[result.model, result.error].append(result.target)
    lines = [
        f"{model} on {found[0]}{f' and {len(found) - 1} more' if found[1:] else ''}: {error}"
        for (model, error), found in targets.items()
    ]
    more = len(lines) - most
    return lines[:most] + ([f"{more} more errors (--json has them all)"] if more > 0 else [])


def _time(result: Result) -> str:
    """In one unit, so that a column can be read down."""
    return "-" if result.error else f"{result.seconds * 1e6:,.1f} us"


def _ratio(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"


def _write_csv(path: Path, parameters: Sequence[SweptValues], results: Results) -> None:
    """One line for each model and variant."""
    figures = [
        "model", "target", "cycles", "seconds", "hbm_bytes", "hbm_peak_bytes", "mxu_utilisation",
        "joules", "error",
    ]  # fmt: skip
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(parameter.key for parameter in parameters), *figures])
        for (_, point), result in results.items():
            values = [setting.value for setting in point] or [""] * len(parameters)
            record = asdict(result)
            writer.writerow([*values, *(record[figure] for figure in figures)])


def _as_json(
    parameters: Sequence[SweptValues], results: Results, times: dict[Point, float]
) -> dict[str, object]:
    best = front(times, parameters)
    return {
        "parameters": {parameter.key: list(parameter.values) for parameter in parameters},
        "variants": [
            {
                "settings": {setting.key: setting.value for setting in point},
                "time_by_first": times[point] if math.isfinite(times[point]) else None,
                "is_best": point in best,
                "models": [asdict(found) for (_, of), found in results.items() if of == point],
            }
            for point in times
        ],
        "sensitivity": [
            {"parameter": key, "value": value, "time_by_first": ratio if ratio == ratio else None}
            for key, value, ratio in sensitivity(times, parameters)
        ],
    }
