"""``tpuc run`` and ``tpuc estimate``: values and cycles, or cycles alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace

import click
import numpy as np
import numpy.typing as npt
from click.core import ParameterSource

from runtime.api import DEFAULT_TARGET
from runtime.energy import price_of
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.report import Report
from runtime.slice_executable import SliceExecutable
from runtime.trace_names import TraceNameError, is_xspace_name
from runtime.workers import SpreadExecutable, spread_over
from tpu_sim.isa.files import write_whole
from tpu_sim.jit.host import processor_count
from tpuc import tables
from tpuc.arrays import Difference, compare, save_arrays
from tpuc.commands.fitting import fit as find_fitting
from tpuc.commands.judging import Given, check_tolerance, judge, print_json, tolerance_of
from tpuc.commands.models import (
    Choices,
    compiled_or_loaded,
    prices_in,
    several_targets,
    worker_choice,
)
from tpuc.commands.oracle import evaluated_anew
from tpuc.commands.terminal import quiet, readable, warn_of_made_up, working, writable
from tpuc.cost_csv import costs_as_csv
from tpuc.scaling_table import print_scaling, scaling_point

Array = npt.NDArray[np.generic]


def run(
    model: str,
    inputs: str | None,
    expect: str | None,
    tol: float | None,
    outputs: str | None,
    seed: int,
    choices: Choices,
    machine: str,
    threads: int | None,
    workers: str | None,
    checked: bool,
    max_cycles: int | None,
    no_cache: bool,
    check: bool,
    trace: str | None,
    chakra: str | None,
    by: str,
    top: int | None,
    sort: str,
    csv_file: str | None,
    prices: str | None,
    tokens: int | None,
    as_json: bool,
) -> None:
    """``tpuc run``: compile or load, execute, report; exit 1 when a comparison fails."""
    writable(outputs)
    context = click.get_current_context(silent=True)
    if checked and machine == "llvm" and context is not None and _is_said(context, "machine"):
        raise click.UsageError("--checked executes on the NumPy machine: not with --machine llvm")
    writable_trace(trace)
    per_hour = None if prices is None else prices_in(prices, [model])
    listing = _Shown(tables.Listing(top, sort), by, csv_file, per_hour, tokens, as_json)
    listing.check()
    _comparable(model, expect, tol, check=check)
    choice = worker_choice(workers)
    readable(inputs)
    readable(expect)
    options = MachineOptions(
        machine, threads or processor_count(), checked, max_cycles, not no_cache
    )
    executable = compiled_or_loaded(model, listing.choices(choices), options)
    if choice is not None:
        executable = spread_over(executable, choice)
    warn_of_made_up(executable.made_up, is_run=True)
    given = Given(model, inputs, expect, seed)
    files = _Files(outputs, trace, chakra)
    report, differences = _compared(executable, given, files, check=check)
    tolerance = tolerance_of(tol, _precision_of(executable))
    if as_json:
        record = report.to_json() | {"model": model, "random_inputs": given.is_random}
        print_json(record | listing.record(executable, report), differences, tolerance)
    else:
        listing.show(executable, report, model, seed if given.is_random else None)
    judge(differences, tolerance, quiet=as_json)


@dataclass(frozen=True)
class _Files:
    """What of a call is written where."""

    outputs: str | None
    trace: str | None
    chakra: str | None


def _compared(
    executable: Executable, given: Given, files: _Files, *, check: bool
) -> tuple[Report, list[Difference] | None]:
    """The report of a call whose `files` are written, and how far its results are from those that are
    wanted, if any are."""
    each = given.arguments(executable.argument_shapes)
    arguments = list(each) if check else []  # else the host never holds them all
    wanted = None if check else given.expected(executable.result_shapes)
    is_read = bool(files.outputs) or check or wanted is not None
    results, report = _executed(executable, arguments or each, is_read=is_read)
    if files.outputs:
        save_arrays(files.outputs, results)
    _write_traces(executable, report, files.trace, files.chakra)
    if check:
        wanted = evaluated_anew(given.model, executable, arguments, _precision_of(executable))
    return report, None if wanted is None else compare(results, wanted)


def _precision_of(executable: Executable) -> str:
    return executable.program.metadata.get("precision", "default")


def _executed(
    executable: Executable, arguments: Iterable[Array], *, is_read: bool
) -> tuple[list[Array], Report]:
    """The results of a call, none unless they are read, and its report."""
    with working("executing") as tell, quiet():
        if isinstance(executable, SpreadExecutable):
            executable.tell, is_read = tell, True
        run = executable.call(arguments, on_device=not is_read)
        return [np.asarray(result) for result in run.results] if is_read else [], run.report()


def _write_traces(
    executable: Executable, report: Report, trace: str | None, chakra: str | None
) -> None:
    if trace:
        report.write_trace(trace)
    if chakra:
        _write_chakra(executable, report, chakra)


def estimate(
    model: str,
    choices: Choices,
    trips: int,
    max_cycles: int | None,
    no_cache: bool,
    trace: str | None,
    chakra: str | None,
    by: str,
    top: int | None,
    sort: str,
    csv_file: str | None,
    prices: str | None,
    tokens: int | None,
    fit: bool,
    as_json: bool,
) -> None:
    """``tpuc estimate``: compile or load, count cycles without values, report.

    Several targets, with commas between, make a table of how the program scales.
    """
    writable_trace(trace)
    per_hour = None if prices is None else prices_in(prices, [model])
    listing = _Shown(tables.Listing(top, sort), by, csv_file, per_hour, tokens, as_json)
    listing.check()
    options = MachineOptions(max_cycles=max_cycles, cache=not no_cache)
    if fit:
        listing.refuse_with("--fit is", trace, chakra, choices.dump_ir)

        def compiled(name: str) -> Executable:
            return compiled_or_loaded(
                model, replace(choices, target=name, resize_mesh=True), options
            )

        find_fitting(model, choices.target or DEFAULT_TARGET, compiled, trips, as_json=as_json)
        return
    if choices.target is not None and len(several_targets(choices.target)) > 1:
        listing.refuse_with("several targets are", trace, chakra, choices.dump_ir)
        scaling(model, choices, options, trips, as_json=as_json)
        return
    executable = compiled_or_loaded(model, listing.choices(choices), options)
    warn_of_made_up(executable.made_up, is_run=False)
    with working("estimating"):
        report = executable.estimate(trips)
    _write_traces(executable, report, trace, chakra)
    if as_json:
        record = report.to_json() | {"model": model} | listing.record(executable, report)
        print_json(record, None, 0.0)
    else:
        listing.show(executable, report, model, None)


def _is_said(context: click.Context, option: str) -> bool:
    """Whether the command line gives an option, not its default."""
    return context.get_parameter_source(option) is ParameterSource.COMMANDLINE


_SHOWN = tables.Listing()


@dataclass(frozen=True)
class _Shown:
    """What of a report is shown, and written as CSV; what an hour of a chip costs, by chip."""

    listing: tables.Listing
    by: str
    csv_file: str | None
    prices: Mapping[str, float] | None
    tokens: int | None
    as_json: bool

    def choices(self, choices: Choices) -> Choices:
        """What to compile: costs by line and by operation want origins, at least those of the text."""
        return replace(choices, has_lines=self.by != "kernel")

    def check(self) -> None:
        """Refuse before any long work what cannot be done."""
        if self.tokens is not None and self.prices is None:
            raise click.UsageError("--tokens are for their price: give --prices too")
        if self.listing.sort != _SHOWN.sort and self.by != "kernel":
            raise click.UsageError(
                f"--sort is the order of kernels: with --by {self.by} the dearest come first"
            )
        if self.listing.top != _SHOWN.top and self.by == "op" and self.csv_file is None:
            raise click.UsageError("--top is for kernels and lines: --by op shows the whole tree")
        if self.csv_file == "-" and self.as_json:
            raise click.UsageError("--json and --csv - both want standard output")
        if self.csv_file != "-":
            writable(self.csv_file)

    def refuse_with(
        self, what: str, trace: str | None, chakra: str | None, dump_ir: str | None
    ) -> None:
        """Refuse what is of one report beside what makes a table of several."""
        is_listed = self.by != "kernel" or self.listing != _SHOWN or self.csv_file
        if trace or chakra or dump_ir or is_listed or self.prices:
            raise click.UsageError(
                f"{what} with none of --trace, --chakra, --dump-ir, --by, --top, --sort, --csv, --prices"
            )

    def record(self, executable: Executable, report: Report) -> dict[str, object]:
        """What the JSON has besides; the CSV is written."""
        self._write_csv(report)
        price = self._price(executable, report)
        return {} if price is None else {"price": price.to_json()}

    def show(self, executable: Executable, report: Report, model: str, seed: int | None) -> None:
        """Print the report; with the CSV on standard output, that alone."""
        self._write_csv(report)
        if self.csv_file != "-":
            price = self._price(executable, report)
            chips = executable.device.topology.chip_count
            idle = chips - 1 if executable.device_count == 1 else 0
            tables.print_report(report, model, seed, self.by, self.listing, price, idle)

    def _write_csv(self, report: Report) -> None:
        if self.csv_file == "-":
            click.echo(self._csv(report), nl=False)
        elif self.csv_file is not None:
            write_whole(self.csv_file, self._csv(report).encode())

    def _csv(self, report: Report) -> str:
        if self.by == "kernel":
            return tables.kernels_as_csv(report, self.listing)
        return costs_as_csv(report, self.by, self.listing.top)

    def _price(self, executable: Executable, report: Report) -> tables.Price | None:
        if self.prices is None:
            return None
        chip, devices = executable.device.chip, executable.device_count
        step = price_of(self.prices, chip, report.seconds, devices)
        return tables.Price(step, self.tokens)


def scaling(
    model: str, choices: Choices, options: MachineOptions, trips: int, *, as_json: bool
) -> None:
    """The same program on each of several targets, its mesh as large as the target."""
    points = []
    for name in several_targets(str(choices.target)):
        chosen = replace(choices, target=name, resize_mesh=True)
        executable = compiled_or_loaded(model, chosen, options)
        with working(f"estimating on {chosen.target}"):
            report = executable.estimate(trips)
        points.append(scaling_point(report, executable.device_count, executable.device.chip.name))
    if as_json:
        print(json.dumps({"model": model, "targets": [asdict(point) for point in points]}))
    else:
        print_scaling(points, model)


def _write_chakra(executable: Executable, report: Report, folder: str) -> None:
    if not isinstance(executable, SliceExecutable):
        raise click.UsageError("--chakra is for a program of several devices: name a slice")
    executable.write_chakra(folder, report)


def writable_trace(path: str | None) -> None:
    """Refuse a trace that cannot be written, or whose name does not say what it is to be."""
    try:
        if path is not None:
            is_xspace_name(path)
    except TraceNameError as error:
        raise click.UsageError(f"--trace: {error}") from error
    writable(path)


def _comparable(model: str, expect: str | None, tol: float | None, *, check: bool) -> None:
    """Refuse a comparison that cannot be made, before any work."""
    check_tolerance(tol, is_compared=check or expect is not None, how="--expect or --check")
    if check and expect is not None:
        raise click.UsageError("--check and --expect exclude each other")
    if check and model.endswith(".tpux"):
        raise click.UsageError(f"--check evaluates a model, {model} is compiled: use --expect")
