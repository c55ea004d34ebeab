"""Many variants of a chip: every combination of settings, each estimated on each model.

    points = combinations([parse_values("vmem=8,128MiB"), parse_values("mxu_count=2,4")])
    results = run_sweep(["model.hlo"], "v5e", points, Sweep(), jobs=2)

The chip as it is comes first. A variant that cannot be built, or that a model does not fit, has an error
in place of its figures.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import math
import multiprocessing
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from compiler.diagnostics import CompileError
from runtime.client import client_of
from runtime.tasks import call_on_workers
from runtime.topology import Topology, parse_target
from runtime.workers import WorkerChoice
from tpu_sim.isa.chip_settings import Setting, SettingError, parse_setting, unit_of, with_settings
from tpu_sim.isa.chips import ChipError
from tpu_sim.isa.errors import TpucError
from tpu_sim.isa.source_digest import source_digest

_HEAD = '{"model": '
"""How the line of every result begins."""

Point = tuple[Setting, ...]
Source = str | bytes | Path
"""A model: its text or bytes, or where it is."""


@dataclass(frozen=True)
class SweptValues:
    """A parameter and the values to try."""

    key: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Sweep:
    """How each model is compiled and estimated."""

    precision: str = "default"
    trips: int = 10


@dataclass(frozen=True)
class Result:
    """One model on one variant: cycles and seconds, or why there are none; joules are of one of `devices`.

    `digest` is that of the model's bytes, the chip's parameters and our own sources: what is kept of
    an older compiler, or of a chip file that was edited, is not taken for a result of now.
    """

    model: str
    digest: str
    target: str
    precision: str
    trips: int
    cycles: int = 0
    seconds: float = 0.0
    hbm_bytes: int = 0
    hbm_peak_bytes: int = 0
    mxu_utilisation: float = 0.0
    joules: float = 0.0
    devices: int = 1
    error: str = ""

    @property
    def job(self) -> tuple[str, str, str, str, int]:
        """What was estimated."""
        return self.model, self.digest, self.target, self.precision, self.trips


def parse_values(text: str) -> SweptValues:
    """``vmem=8,32,128MiB``: values of one parameter; a unit of the last holds for all without one."""
    setting = parse_setting(text)
    values = [value.strip() for value in setting.value.split(",")]
    if not all(values):
        raise SettingError(f"setting {text!r}: want KEY=VALUE,VALUE..")
    try:
        units = [unit_of(value) for value in values]
    except ValueError as error:
        raise SettingError(f"setting {text!r}: {error}") from None
    plain = [v if unit else v + units[-1] for v, unit in zip(values, units, strict=True)]
    if len(set(plain)) < len(plain):
        raise SettingError(f"setting {text!r}: a value is given twice")
    return SweptValues(setting.key, tuple(plain))


def combinations(parameters: Sequence[SweptValues]) -> list[Point]:
    """The chip as it is, then every combination."""
    keys = [parameter.key for parameter in parameters]
    if len(set(keys)) < len(keys):
        raise SettingError("a parameter is set twice: give all its values at once")
    choices = itertools.product(*(parameter.values for parameter in parameters))
    points = [tuple(map(Setting, keys, chosen)) for chosen in choices]
    return [(), *points]


def run_sweep(
    models: Sequence[str],
    target: str,
    points: Sequence[Point],
    sweep: Sweep,
    jobs: int,
    kept: Path | None = None,
    progress: Callable[[Result], None] = lambda _: None,
    piped: str | bytes = "",
    workers: WorkerChoice | None = None,
) -> dict[tuple[str, Point], Result]:
    """Estimate each model on each point, on `jobs` processes or on `workers`; results by model, point.

    `kept` is a file of JSON lines that results are added to as they come, and taken from when they are
    of the same model's bytes, variant and options; one sweep at a time has it. `piped` is the model that
    is called ``-``.
    """
    sources: dict[str, Source] = {m: piped if m == "-" else Path(m) for m in models}
    wanted: dict[tuple[str, Point], Result] = {}
    ours = source_digest("compiler", "runtime", "tpu_sim")
    for model in models:
        content = _content(sources[model])
        for point in points:
            named = with_settings(target, point)
            digest = _digest(content, named, ours)
            wanted[model, point] = Result(model, digest, named, sweep.precision, sweep.trips)
    with _owned(kept):
        known = {result.job: result for result in _read(kept)}
        missing = [request for request in wanted.values() if request.job not in known]
        to_do = [(request, sources[request.model]) for request in missing]
        found = _estimated(to_do, jobs) if workers is None else _on_workers(to_do, workers)
        for result in found:
            known[result.job] = result
            if kept is not None:
                _add(kept, json.dumps(asdict(result)))
            progress(result)
    return {key: known[request.job] for key, request in wanted.items()}


@contextmanager
def _owned(kept: Path | None) -> Iterator[None]:
    """A time in which no other sweep has the file; the system gives it up for a process that is killed.

    Raises CompileError for what is no file, such as a pipe, and for one that another sweep has.
    """
    if kept is None:
        yield
        return
    if kept.exists() and not kept.is_file():
        raise CompileError(f"{kept} is no file that results can be read from: name another one")
    with kept.open("ab") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CompileError(
                f"another sweep adds to {kept}: wait until it has ended, or name another file"
            ) from None
        yield


def _add(kept: Path, line: str) -> None:
    """Add a line, not to one that a kill cut off: that would lose both."""
    with kept.open("ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            line = line if file.read(1) == b"\n" else "\n" + line
        file.write(line.encode() + b"\n")


def _content(source: Source) -> bytes:
    if isinstance(source, Path):
        return source.read_bytes()
    return source.encode() if isinstance(source, str) else source


def _digest(content: bytes, target: str, ours: str) -> str:
    """Of all that a result follows from, but the options. A chip that cannot be built has its name."""
    topology = _topology(target)
    chip = target if isinstance(topology, ChipError) else repr(topology)
    return hashlib.sha256(content + chip.encode() + ours.encode()).hexdigest()[:16]


def _topology(target: str) -> Topology | ChipError:
    try:
        return parse_target(target)
    except ChipError as error:
        return error


def _read(kept: Path | None) -> Iterator[Result]:
    """Results of an earlier sweep. A line that was cut off by a kill, or that another version wrote
    with other fields, is left out: what it had is estimated again. A file of something else is refused."""
    if kept is None or not kept.exists():
        return
    lines = kept.read_text(encoding="utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        if not _is_result(line):
            raise CompileError(
                f"{kept} holds something else than results of a sweep (line {number}): name another file"
            )
    for line in lines:
        try:
            yield Result(**json.loads(line))
        except (ValueError, TypeError):
            continue


def _is_result(line: str) -> bool:
    """Whether a line is a result, perhaps of another version, or the beginning of one."""
    try:
        found = json.loads(line)
    except ValueError:
        return line.startswith(_HEAD) or _HEAD.startswith(line)
    return isinstance(found, dict) and {"model", "digest", "target"} <= found.keys()


def _estimated(requests: Sequence[tuple[Result, Source]], jobs: int) -> Iterator[Result]:
    if not requests:
        return
    context = multiprocessing.get_context("spawn")
    size = min(jobs, len(requests))
    pool = ProcessPoolExecutor(size, mp_context=context, initializer=end_with_parent)
    with _interrupts_off() as switch:
        try:
            pending: list[Future[Result]] = [pool.submit(estimate_one, *job) for job in requests]
            switch(True)
            for future in as_completed(pending):
                yield future.result()
        except BaseException:
            switch(False)  # half of an end would leave processes waiting
            for child in multiprocessing.active_children():
                child.terminate()
            raise
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def _interrupts_off() -> Iterator[Callable[[bool], None]]:
    """A time without Ctrl-C, but where what this gives is called with True. Processes that begin in it
    are without it for ever: a terminal sends it to all of them."""
    handler = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()

    def switch(is_on: bool) -> None:
        if is_main:
            signal.signal(signal.SIGINT, handler if is_on else signal.SIG_IGN)

    switch(False)
    try:
        yield switch
    finally:
        switch(True)


def _on_workers(
    requests: Sequence[tuple[Result, Source]], workers: WorkerChoice
) -> Iterator[Result]:
    """Models and chips go with the tasks: hosts share no files."""
    models = {s: s.read_bytes() if isinstance(s, Path) else s for _, s in requests}
    chips = {request.target: _topology(request.target) for request, _ in requests}
    calls = [
        (request, models[source], isinstance(source, Path), chips[request.target])
        for request, source in requests
    ]
    return call_on_workers(_estimate_sent, calls, workers) if calls else iter(())


def _estimate_sent(
    request: Result, content: str | bytes, is_file: bool, chip: Topology | ChipError
) -> Result:
    """On a worker: a model, or the bytes of its file, which gets the name that it had, for messages."""
    if isinstance(content, str) or not is_file:
        return estimate_one(request, content, chip)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, Path(request.model).name)
        path.write_bytes(content)
        result = estimate_one(request, path, chip)
    return replace(result, error=result.error.replace(str(path), request.model))


def end_with_parent() -> None:
    """A process of the pool waits for work forever if who gives it is killed: it ends then, too."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def end() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def estimate_one(
    request: Result, source: Source, chip: Topology | ChipError | None = None
) -> Result:
    """Compile and estimate a model on a variant of the chip, which is loaded here unless it is given."""
    from compiler.options import CompileOptions
    from runtime.api import compile

    fields = asdict(request)
    try:
        options = CompileOptions(precision=request.precision)
        if isinstance(chip, ChipError):
            raise chip
        target = request.target if chip is None else client_of(chip).devices
        executable = compile(source, target, options=options)
        report = executable.estimate(request.trips)
    except TpucError as error:
        return Result(**{**fields, "error": _in_a_line(error)})
    return Result(
        **{
            **fields,
            "cycles": report.cycles,
            "seconds": report.seconds,
            "hbm_bytes": report.hbm_bytes,
            "hbm_peak_bytes": report.hbm_peak_bytes,
            "mxu_utilisation": report.mxu_utilisation,
            "joules": 0.0 if report.energy is None else report.energy.joules,
            "devices": executable.device_count,
        }
    )


def _in_a_line(error: TpucError) -> str:
    """What an error says first, and where."""
    said, place = str(error).splitlines()[0], getattr(error, "span", None)
    return said if place is None else f"{said} (at {place.file}:{place.line}:{place.column})"


def sensitivity(
    times: dict[Point, float], parameters: Sequence[SweptValues]
) -> list[tuple[str, str, float]]:
    """For each parameter and value, the geometric mean of the times with that value by that of those
    with the parameter's first one, all else being equal."""
    rows = []
    for number, parameter in enumerate(parameters):
        first = Setting(parameter.key, parameter.values[0])
        for value in parameter.values:
            ratios = list(_ratios(times, number, Setting(parameter.key, value), first))
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
            rows.append((parameter.key, value, mean))
    return rows


def _ratios(
    times: dict[Point, float], number: int, value: Setting, first: Setting
) -> Iterable[float]:
    for point, time in times.items():
        if not point or point[number] != value:
            continue
        base = times[(*point[:number], first, *point[number + 1 :])]
        if math.isfinite(time) and math.isfinite(base):
            yield time / base
