"""``tpuc estimate --fit``: the smallest slice of a chip in whose HBM a sharded program fits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import click
from rich.table import Table

from compiler.diagnostics import DeviceCountError, ResourceExhaustedError, UnsupportedError
from runtime.executable import Executable
from runtime.topology import Topology
from tpuc.commands.models import named_topology, several_targets
from tpuc.tables import console, heading, printed_bytes, printed_seconds, shown_name


@dataclass(frozen=True)
class Trial:
    """A slice, and how the program fares there: `problem` is empty where it fits."""

    target: str
    devices: int
    hbm_bytes: int = 0
    seconds: float = 0.0
    problem: str = ""
    needed_bytes: int = 0
    """Of HBM that the chip has not; 0 where it fits, and where something else is in the way."""


def slices(topology: Topology, family: str) -> Iterator[str]:
    """The slices of a chip by size, each twice the one before, as square as they can be."""
    dims = [1] * topology.chip.ici_dimensions
    yield family
    while 2 * _count(dims) <= topology.chip.most_chips:
        shortest = dims.index(min(dims))
        dims[shortest] *= 2
        yield f"{family}:{'x'.join(map(str, dims))}"


def fit(
    model: str, family: str, compiled: Callable[[str], Executable], trips: int, *, as_json: bool
) -> None:
    """Try slices until one has room; exit 1 if none has. `compiled` compiles for a target."""
    if len(several_targets(family)) > 1:
        raise click.UsageError("--fit looks for a slice of one chip: name one with --target")
    topology = named_topology(family)
    if topology.chip_count > 1:
        raise click.UsageError(f"--fit looks for a slice of a chip: name {topology.chip.name}")
    trials: list[Trial] = []
    for target in slices(topology, family):
        trials.append(_tried(target, compiled, trips, is_first=not trials))
        if not trials[-1].problem or _is_stuck(trials):
            break
    if as_json:
        click.echo(json.dumps({"model": model, "trials": [asdict(trial) for trial in trials]}))
    else:
        _print(model, trials)
    if trials[-1].problem:
        raise click.exceptions.Exit(1)


def _is_stuck(trials: list[Trial]) -> bool:
    """Whether another chip changed nothing: the program is of one device."""
    return len(trials) > 1 and trials[-1].needed_bytes == trials[-2].needed_bytes > 0


def _tried(
    target: str, compiled: Callable[[str], Executable], trips: int, *, is_first: bool
) -> Trial:
    """What comes of a slice. Raises CompileError for what no other size would mend."""
    devices = len(named_topology(target).cores.chips)
    try:
        executable = compiled(target)
    except ResourceExhaustedError as error:
        return Trial(target, devices, problem=error.summary, needed_bytes=error.needed_bytes)
    except UnsupportedError as error:  # it cannot be cut that way: in other parts it may
        if is_first and not isinstance(error, DeviceCountError):
            raise
        return Trial(target, devices, problem=error.message.splitlines()[0])
    report = executable.estimate(trips)
    return Trial(target, executable.device_count, report.hbm_peak_bytes, report.seconds)


def _count(dims: list[int]) -> int:
    return math.prod(dims)


def _print(model: str, trials: list[Trial]) -> None:
    out = console()
    heading(out, f"{shown_name(model)}: the smallest slice that it fits")
    table = Table()
    for column in ("target", "devices", "HBM a device", "time", ""):
        table.add_column(column, justify="left" if column in ("target", "") else "right")
    for trial in trials:
        fits = not trial.problem
        table.add_row(
            trial.target,
            str(trial.devices),
            printed_bytes(trial.hbm_bytes) if fits else "",
            printed_seconds(trial.seconds) if fits else "",
            "fits" if fits else trial.problem,
        )
    out.print(table)
    if _is_stuck(trials):
        out.print("more chips do not help: the program is not cut for several devices")
