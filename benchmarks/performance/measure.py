"""Runs the two sides in turn: never both at once, and never anything else of ours beside them.

For every workload each side has a process of its own, so that neither their memory nor their
threads meet. In a turn both execute, one after the other; the order changes from turn to turn.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.performance.agreement import file_difference
from benchmarks.performance.inputs import named_parameters
from benchmarks.performance.levels import environment as held_to
from benchmarks.performance.workloads import Workload
from tpu_sim.jit.host import NATIVE

ROOT = Path(__file__).resolve().parents[2]
SEED = 0
_TURN_SECONDS = 0.3  # short calls are repeated within a turn for so long
_MOST_CALLS = 50
_SETTLE_SECONDS = 0.05  # thread pools spin for a while after a call
_START_SECONDS = 120.0
_HEADROOM = 1 << 30


class MeasurementError(Exception):
    """A side failed or took too long; the message goes to the table."""


class NotRunError(MeasurementError):
    """A side was not tried, for want of memory."""


@dataclass(frozen=True)
class Options:
    """`turns` at most, while a workload's executions take less than `budget` seconds.

    `level` is of `benchmarks.performance.levels`.
    """

    threads: int = 2
    turns: int = 5
    budget: float = 60.0
    timeout: float = 900.0
    with_xla: bool = True
    level: str = NATIVE


@dataclass
class SideResult:
    """Seconds of one side. `execute` is the median of `calls` warm calls, `cpu` of their
    processor time; `error` is empty if it ran, and `is_failed` says that it ought to have.
    """

    compile_cold: float | None = None
    compile_warm: float | None = None
    stages: dict[str, float] = field(default_factory=dict)
    first: float | None = None
    execute: float | None = None
    cpu: float | None = None
    calls: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    is_failed: bool = False

    def fail(self, error: MeasurementError) -> None:
        """Note why there are no numbers."""
        self.error, self.is_failed = str(error), not isinstance(error, NotRunError)


@dataclass
class Row:
    """A workload's results; `ratio` is the median of the turns' ratios, `cpu_ratio` likewise.

    `difference` is how far our outputs are from XLA:CPU's at most (`benchmarks.performance.agreement`);
    `problems` say why the numbers are not to be believed.
    """

    name: str
    ours: SideResult = field(default_factory=SideResult)
    xla: SideResult = field(default_factory=SideResult)
    ratio: float | None = None
    cpu_ratio: float | None = None
    counts: bool = True
    date: str = ""
    difference: float | None = None
    problems: list[str] = field(default_factory=list)
    level: str = NATIVE

    def to_json(self) -> dict[str, Any]:
        """A JSON object."""
        return asdict(self)

    @staticmethod
    def from_json(value: dict[str, Any]) -> Row:
        """The row that `to_json` made this of."""
        sides = {name: SideResult(**value[name]) for name in ("ours", "xla")}
        return Row(**{**value, **sides})


class Worker:
    """The process of one side. Use it as a context; it ends with it."""

    def __init__(self, side: str, options: Options, cache: Path) -> None:
        one = {f"{name}_NUM_THREADS": "1" for name in ("OPENBLAS", "OMP", "MKL")}
        environment = os.environ | one | {"TPUC_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}
        environment.pop("JAX_COMPILATION_CACHE_DIR", None)
        environment = held_to(options.level, environment)
        command = (sys.executable, "-m", "benchmarks.performance.worker", side)
        self._timeout = options.timeout
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            [*command, str(options.threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=ROOT,
            env=environment,
            text=True,
        )

    def __enter__(self) -> Worker:
        try:
            self._answer(_START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError), self._process:  # a request may be unread
            self._process.kill()
        self._errors.close()

    def ask(self, what: str, **details: object) -> dict[str, Any]:
        """Send a request and wait for its answer; `MeasurementError` if there is none."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": what, **details}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise MeasurementError(self._last_words()) from error
        return self._answer(self._timeout)

    def _answer(self, seconds: float) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], seconds)[0]:
            raise MeasurementError(f"no result within {seconds:g} s")
        line = stdout.readline()
        if not line:
            raise MeasurementError(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise MeasurementError(str(answer["error"]))
        return answer

    def _last_words(self) -> str:
        code = self._process.wait()
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        return f"ended with code {code}: {lines[-1] if lines else 'no message'}"


def measure(workload: Workload, path: Path, options: Options) -> Row:
    """Compile cold, execute in turn, compile warm."""
    row = Row(workload.name, counts=workload.counts, level=options.level)
    row.xla.error = workload.alone or ("" if options.with_xla else "jax is not installed")
    with tempfile.TemporaryDirectory(prefix="tpuc-benchmark-") as folder:
        cache = Path(folder)
        workers: list[tuple[SideResult, Worker]] = []
        try:
            for result, side in ((row.ours, "ours"), (row.xla, "xla")):
                if not result.error:
                    _start(result, side, workload, path, options, cache, workers)
            _take_turns(row, workers, options)
            if len(workers) == 2 and row.ratio is not None:
                _compare(row, workload, [worker for _, worker in workers], cache)
        finally:
            for _, worker in workers:
                worker.__exit__()
        if not row.ours.error:
            _compile_again(row, path, options, cache)
    for name, side in (("tpuc", row.ours), ("XLA:CPU", row.xla)):
        if side.is_failed:
            row.problems.append(f"{name}: {side.error}")
    return row


def _start(
    result: SideResult,
    side: str,
    workload: Workload,
    path: Path,
    options: Options,
    cache: Path,
    workers: list[tuple[SideResult, Worker]],
) -> None:
    """Compile, place inputs and call once on one side; it joins `workers` if all goes well."""
    worker = Worker(side, options, cache)
    try:
        worker.__enter__()
        compiled = worker.ask("compile", path=str(path))
        result.compile_cold, result.stages = compiled["seconds"], compiled["stages"]
        _check_memory(compiled["needed_bytes"])
        positive = named_parameters(path.read_text(), workload.positive)
        limit = workload.integer_limit
        worker.ask("place", seed=SEED, integer_limit=limit, positive=positive)
        result.first = worker.ask("execute", budget=0, most=1)["times"][0][0]
        workers.append((result, worker))
    except MeasurementError as error:
        result.fail(error)
        worker.__exit__()


def _check_memory(needed: int) -> None:
    """Do not start what cannot fit beside whatever else this computer does."""
    free = available_bytes()
    if free is not None and free < needed + _HEADROOM:
        found = f"{free / 1e9:.1f} GB of memory are free"
        raise NotRunError(f"not run: wants {needed / 1e9:.1f} GB, {found}")


def available_bytes() -> int | None:
    """Memory that programs can still get; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    found = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return found[0] * 1024 if found else None


def _take_turns(row: Row, workers: Sequence[tuple[SideResult, Worker]], options: Options) -> None:
    """Execute in turn until there are enough turns or the budget is used."""
    turns: list[dict[int, tuple[float, float]]] = []
    calls = dict.fromkeys((id(result) for result, _ in workers), 0)
    started = time.perf_counter()
    live = list(workers)
    while live and len(turns) < options.turns:
        if turns and time.perf_counter() - started > options.budget:
            break
        turn: dict[int, tuple[float, float]] = {}
        for result, worker in live if len(turns) % 2 == 0 else reversed(live):
            time.sleep(_SETTLE_SECONDS)
            try:
                times = _one_turn(result, worker)
            except MeasurementError as error:
                result.fail(error)
                continue
            calls[id(result)] += len(times)
            turn[id(result)] = _medians(times)
        turns.append(turn)
        live = [(result, worker) for result, worker in live if not result.error]
    for result, worker in live:
        mine = [turn[id(result)] for turn in turns if id(result) in turn]
        result.execute, result.cpu = _medians(mine)
        result.calls = calls[id(result)]
        result.facts = worker.ask("facts")
    both = [turn for turn in turns if len(turn) == 2]
    if both and len(live) == 2:
        ours, xla = id(row.ours), id(row.xla)
        row.ratio = statistics.median(turn[ours][0] / turn[xla][0] for turn in both)
        row.cpu_ratio = statistics.median(turn[ours][1] / max(turn[xla][1], 1e-6) for turn in both)


def _one_turn(result: SideResult, worker: Worker) -> list[tuple[float, float]]:
    """Calls of one side; if they are short, the first only brings its data back into the caches."""
    times = worker.ask("execute", budget=_TURN_SECONDS, most=_MOST_CALLS)["times"]
    return times[1:] if len(times) > 2 else times


def _medians(times: Sequence[Sequence[float]]) -> tuple[float, float]:
    wall, cpu = zip(*times, strict=True)
    return statistics.median(wall), statistics.median(cpu)


def _compare(row: Row, workload: Workload, workers: Sequence[Worker], folder: Path) -> None:
    """Compare what the last calls left, output by output; the files may be large."""
    files = folder / "ours.npy", folder / "xla.npy"
    try:
        counts = [worker.ask("outputs")["count"] for worker in workers]
        if len(set(counts)) > 1:
            row.problems.append(f"{counts[0]} outputs, XLA:CPU has {counts[1]}")
            return
        row.difference = 0.0
        for number in range(counts[0]):
            for worker, file in zip(workers, files, strict=True):
                worker.ask("save", number=number, path=str(file))
            found = file_difference(*files)
            row.difference = max(row.difference, found)
            if not found <= workload.tolerance:
                row.problems.append(f"output {number} differs by {found:.1e} from XLA:CPU's")
    except MeasurementError as error:
        row.problems.append(f"values were not compared: {error}")
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def _compile_again(row: Row, path: Path, options: Options, cache: Path) -> None:
    """Compile in a new process with the disk cache that the first one left, and nothing else."""
    before = _entries(cache)
    try:
        with Worker("ours", options, cache) as worker:
            found = worker.ask("compile", path=str(path))
    except MeasurementError as error:
        row.problems.append(f"warm compile: {error}")
        return
    row.ours.compile_warm = float(found["seconds"])
    added = len(_entries(cache) - before)
    if not found["is_loaded"] or added:
        what = "the program" if not found["is_loaded"] else "its code"
        row.problems.append(f"warm compile: {what} was not found in the cache")


def _entries(cache: Path) -> set[Path]:
    """What lies in the cache: a compilation that was not there adds to it."""
    return {path for path in cache.rglob("*") if path.is_file()}
