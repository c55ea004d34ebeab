"""``tpuc sweep``: models on many variants of a chip."""

from __future__ import annotations

import csv
import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress
from rich.table import Table

from runtime.api import read_source
from runtime.energy import price_of
from tpu_sim.isa.chip_settings import SettingError, with_settings
from tpu_sim.jit.host import processor_count
from tpuc.commands.models import (
    model_source,
    named_topology,
    prices_in,
    standard_input,
    worker_choice,
)
from tpuc.commands.terminal import Lines, writable
from tpuc.failures import say_as_json
from tpuc.sweep import (
    Point,
    Result,
    Sweep,
    SweptValues,
    combinations,
    parse_values,
    run_sweep,
    sensitivity,
)
from tpuc.sweep_costs import LISTS, PRICE, Judged, judge
from tpuc.sweep_plot import check_plot, write_plot
from tpuc.tables import console, heading, shown_name

_MOST_ERRORS = 5
"""In a text that is to fit a screen; JSON has all."""

Results = Mapping[tuple[str, Point], Result]


def sweep(
    models: tuple[str, ...],
    settings: tuple[str, ...],
    target: str,
    precision: str | None,
    trips: int,
    jobs: int | None,
    workers: str | None,
    results: str | None,
    cost: str | None,
    prices: str | None,
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
    axis, per_hour = _cost_axis(cost, prices, models, target)
    if plot:
        _check_plot(plot)
    for file in (results, csv_file, plot):
        writable(file)
    piped = standard_input() if "-" in models else ""
    chosen = Sweep(precision or "default", trips)
    kept = Path(results) if results else None
    processes = jobs or processor_count()
    with _keeping(kept), _progress(len(models) * len(points)) as advance:
        found = run_sweep(models, target, points, chosen, processes, kept, advance, piped, choice)
    judged = judge(found, models, parameters, points, axis, per_hour)
    if csv_file:
        _write_csv(Path(csv_file), judged)
    if plot:
        write_plot(plot, judged)
    if all(result.error for result in found.values()):
        _say_errors(found, as_json=as_json)
    elif as_json:
        click.echo(json.dumps(_as_json(judged)))
    else:
        _print(judged)
    if not any(map(math.isfinite, judged.times.values())):
        raise click.exceptions.Exit(1)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[Result], None]]:
    """What is called with each result that comes: a bar on a terminal, elsewhere lines now and then."""
    columns = (*Progress.get_default_columns(), MofNCompleteColumn())
    terminal = Console(stderr=True)
    is_shown = terminal.is_terminal
    lines = Lines("estimated", total)
    with Progress(*columns, console=terminal, transient=True, disable=not is_shown) as bar:
        task = bar.add_task("estimating", total=total)

        def advance(_: Result) -> None:
            if is_shown:
                bar.advance(task)
            else:
                lines.advance()

        yield advance


def _cost_axis(
    cost: str | None, prices: str | None, models: Sequence[str], target: str
) -> tuple[str, dict[str, float] | None]:
    """What the best are the fastest for, and what an hour of each chip costs."""
    if cost == PRICE and prices is None:
        raise click.UsageError("--cost price wants what an hour of a chip costs: give --prices")
    if prices is None:
        return cost or LISTS, None
    per_hour = prices_in(prices, models)
    price_of(per_hour, named_topology(target).chip, 0.0, 1)  # refuses a chip that has none
    return cost or PRICE, per_hour


def _check_plot(plot: str) -> None:
    try:
        check_plot(plot)
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _expect_models(models: tuple[str, ...]) -> None:
    """Raise `click.UsageError` for what cannot be compiled once for each variant."""
    for number, model in enumerate(models):
        if model in models[:number]:
            raise click.UsageError(f"{model} is given twice")
        if model.endswith(".tpux"):
            raise click.UsageError(
                f"{model} is compiled, for one chip: give the model it came from"
            )
        if model != "-" and not Path(str(model_source(model))).is_file():
            read_source(model)  # says why it cannot be read, as every command does
            raise click.UsageError(f"{model}: want a file that can be read again, or -")


def _say_errors(found: Results, *, as_json: bool) -> None:
    """What went wrong where no variant of any model was compiled."""
    texts = _errors(found, len(found) if as_json else _MOST_ERRORS)
    for text in texts:
        click.echo(f"error: {text}", err=True)
    if as_json:
        say_as_json("CompileError", "\n".join(texts))


@contextmanager
def _keeping(kept: Path | None) -> Iterator[None]:
    """Say to who interrupts a sweep that what it found is there."""
    try:
        yield
    except KeyboardInterrupt:
        if kept is not None and kept.is_file() and kept.stat().st_size:
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


def _print(judged: Judged) -> None:
    out = console()
    parameters, models, results = judged.parameters, judged.models, judged.results
    base = results[models[0], judged.points[0]].target
    heading(out, f"time on the chip: {base} and {len(judged.points) - 1} variants")
    table = Table()
    for parameter in parameters:
        table.add_column(parameter.key, justify="right")
    for model in models:
        table.add_column(_title(model), justify="right")
    table.add_column("by first", justify="right")
    if judged.axis != LISTS:
        table.add_column(f"{judged.axis} by first", justify="right")
    table.add_column("best")
    for point in judged.points:
        values = [setting.value for setting in point] or ["as it is", *[""] * (len(parameters) - 1)]
        each = [_time(results[model, point]) for model in models]
        ratios = [_ratio(judged.times[point])]
        if judged.axis != LISTS:
            ratios.append(_ratio(judged.costs[point]))
        marks = ("*" if point in judged.best else "") + ("!" if point in judged.slower else "")
        table.add_row(*values, *each, *ratios, marks)
    out.print(table)
    out.print(f"*: {judged.rule}")
    if judged.slower:
        keys = " or ".join(sorted({key for found in judged.slower.values() for key in found}))
        out.print(f"!: slower than with less {keys}: the compiler's choice, not the chip")
    effects = Table()
    for column in ("parameter", "value", "time by that of its first value"):
        effects.add_column(column, justify="left" if column == "parameter" else "right")
    for key, value, ratio in sensitivity(judged.times, parameters):
        effects.add_row(key, value, _ratio(ratio))
    out.print(effects)
    for text in _errors(results):
        out.print(text, soft_wrap=True)


def _title(model: str) -> str:
    return shown_name(model) if model == "-" else Path(model).stem


def _errors(results: Results, most: int = _MOST_ERRORS) -> list[str]:
    """What went wrong: a line for each model and error, with the first variant that has it."""
    targets: dict[tuple[str, str], list[str]] = defaultdict(list)
    for result in results.values():
        if result.error:
            targets[result.model, result.error].append(result.target)
    lines = [
        f"{shown_name(model)} on {found[0]}{f' and {len(found) - 1} more' if found[1:] else ''}: {error}"
        for (model, error), found in targets.items()
    ]
    more = len(lines) - most
    return lines[:most] + ([f"{more} more errors (--json has them all)"] if more > 0 else [])


def _time(result: Result) -> str:
    """In one unit, so that a column can be read down."""
    return "-" if result.error else f"{result.seconds * 1e6:,.1f} us"


def _ratio(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "-"


def _write_csv(path: Path, judged: Judged) -> None:
    """One line for each model and variant."""
    figures = [
        "model", "target", "cycles", "seconds", "hbm_bytes", "hbm_peak_bytes", "mxu_utilisation",
        "joules", "devices", "error",
    ]  # fmt: skip
    keys = [parameter.key for parameter in judged.parameters]
    price = ["price"] if judged.price is not None else []
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(
            [*keys, *figures, *price, "time_by_first", f"cost_{judged.axis}", "is_best"]
        )
        for (_, point), result in judged.results.items():
            values = [setting.value for setting in point] or [""] * len(keys)
            record = _record(judged, result) | {"model": shown_name(result.model)}
            ratios = [_finite(found.get(point)) for found in (judged.times, judged.costs)]
            is_best = int(point in judged.best)
            writer.writerow([*values, *(record[f] for f in (*figures, *price)), *ratios, is_best])


def _record(judged: Judged, result: Result) -> dict[str, object]:
    record = asdict(result)
    return record if judged.price is None else record | {"price": judged.price(result)}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _as_json(judged: Judged) -> dict[str, object]:
    return {
        "parameters": {parameter.key: list(parameter.values) for parameter in judged.parameters},
        "cost": judged.axis,
        "variants": [
            {
                "settings": {setting.key: setting.value for setting in point},
                "time_by_first": _finite(judged.times[point]),
                "cost": _finite(judged.costs.get(point)),
                "is_best": point in judged.best,
                "slower_with_more": judged.slower.get(point, []),
                "models": [
                    _record(judged, found)
                    for (_, of), found in judged.results.items()
                    if of == point
                ],
            }
            for point in judged.points
        ],
        "sensitivity": [
            {"parameter": key, "value": value, "time_by_first": ratio if ratio == ratio else None}
            for key, value, ratio in sensitivity(judged.times, judged.parameters)
        ],
    }
