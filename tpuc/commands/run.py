"""``tpuc run`` and ``tpuc estimate``: values and cycles, or cycles alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, replace

import click
import numpy as np
import numpy.typing as npt
from click.core import ParameterSource

from runtime.api import DEFAULT_TARGET
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.report import Report
from runtime.workers import SpreadExecutable, spread_over
from tpu_sim.jit.host import processor_count
from tpuc.arrays import Difference, compare, save_arrays
from tpuc.commands.fitting import fit as find_fitting
from tpuc.commands.judging import Given, check_tolerance, judge, print_json, tolerance_of
from tpuc.commands.models import (
    Choices,
    compiled_or_loaded,
    several_targets,
    worker_choice,
)
from tpuc.commands.oracle import evaluated_anew
from tpuc.commands.reporting import Files, Shown
from tpuc.commands.terminal import quiet, readable, warn_of_made_up, working
from tpuc.scaling_table import print_scaling, scaling_point

Array = npt.NDArray[np.generic]


def run(
    model: str,
    choices: Choices,
    shown: Shown,
    files: Files,
    inputs: str | None,
    expect: str | None,
    tol: float | None,
    seed: int,
    machine: str,
    threads: int | None,
    workers: str | None,
    checked: bool,
    max_cycles: int | None,
    no_cache: bool,
    check: bool,
) -> None:
    """``tpuc run``: compile or load, execute, report; exit 1 when a comparison fails."""
    files.check()
    context = click.get_current_context(silent=True)
    if checked and machine == "llvm" and context is not None and _is_said(context, "machine"):
        raise click.UsageError("--checked executes on the NumPy machine: not with --machine llvm")
    shown.check()
    _comparable(model, expect, tol, check=check)
    workers_chosen = worker_choice(workers)
    readable(inputs)
    readable(expect)
    options = MachineOptions(
        machine, threads or processor_count(), checked, max_cycles, not no_cache
    )
    executable = compiled_or_loaded(model, shown.choices(choices), options)
    if workers_chosen is not None:
        executable = spread_over(executable, workers_chosen)
    warn_of_made_up(executable.made_up, is_run=True)
    given = Given(model, inputs, expect, seed)
    report, differences = _compared(executable, given, files, check=check)
    tolerance = tolerance_of(tol, _precision_of(executable))
    if shown.as_json:
        record = report.to_json() | {"model": model, "random_inputs": given.is_random}
        print_json(record | shown.record(executable, report), differences, tolerance)
    else:
        shown.show(executable, report, model, seed if given.is_random else None)
    judge(differences, tolerance, quiet=shown.as_json)


def _compared(
    executable: Executable, given: Given, files: Files, *, check: bool
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
    files.write_traces(executable, report)
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


def estimate(
    model: str,
    choices: Choices,
    shown: Shown,
    files: Files,
    trips: int,
    max_cycles: int | None,
    no_cache: bool,
    fit: bool,
) -> None:
    """``tpuc estimate``: compile or load, count cycles without values, report.

    Several targets, with commas between, make a table of how the program scales.
    """
    files.check()
    shown.check()
    options = MachineOptions(max_cycles=max_cycles, cache=not no_cache)
    if fit:
        shown.refuse_with("--fit is", files, choices.dump_ir)

        def compiled(name: str) -> Executable:
            return compiled_or_loaded(
                model, replace(choices, target=name, resize_mesh=True), options
            )

        find_fitting(
            model, choices.target or DEFAULT_TARGET, compiled, trips, as_json=shown.as_json
        )
        return
    if choices.target is not None and len(several_targets(choices.target)) > 1:
        shown.refuse_with("several targets are", files, choices.dump_ir)
        scaling(model, choices, options, trips, as_json=shown.as_json)
        return
    executable = compiled_or_loaded(model, shown.choices(choices), options)
    warn_of_made_up(executable.made_up, is_run=False)
    with working("estimating"):
        report = executable.estimate(trips)
    files.write_traces(executable, report)
    if shown.as_json:
        record = report.to_json() | {"model": model} | shown.record(executable, report)
        print_json(record, None, 0.0)
    else:
        shown.show(executable, report, model, None)


def _is_said(context: click.Context, option: str) -> bool:
    """Whether the command line gives an option, not its default."""
    return context.get_parameter_source(option) is ParameterSource.COMMANDLINE


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


def _comparable(model: str, expect: str | None, tol: float | None, *, check: bool) -> None:
    """Refuse a comparison that cannot be made, before any work."""
    check_tolerance(tol, is_compared=check or expect is not None, how="--expect or --check")
    if check and expect is not None:
        raise click.UsageError("--check and --expect exclude each other")
    if check and model.endswith(".tpux"):
        raise click.UsageError(f"--check evaluates a model, {model} is compiled: use --expect")
