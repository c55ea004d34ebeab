"""The seeds of a campaign: batches in child processes, and what came of each, kept as it comes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.limits import GIGABYTES, OUT_OF_MEMORY, Stopwatch
from benchmarks.sections import version

BATCH = 50
PATIENCE = 100.0
"""Seconds of work without a line, after which a child is killed: longer than its own limit."""
_LOOK_SECONDS = 2.0


class Ledger:
    """One line of JSON a seed in ``folder/seeds.jsonl``: a campaign that is stopped goes on there.

    Without a folder nothing is kept. `series` tells campaigns apart that share a folder.
    """

    def __init__(self, folder: Path | None, series: str, seeds: range) -> None:
        self.series = series
        self.seeds = seeds
        self.records: list[dict[str, Any]] = []
        self._version = version()
        self._path: Path | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._path = folder / "seeds.jsonl"
            if self._path.exists():
                self.records = [r for r in _whole_lines(self._path) if self._is_ours(r)]
                with self._path.open("a", encoding="utf-8") as file:
                    file.write("\n")  # behind a line that a kill may have cut

    def _is_ours(self, record: dict[str, Any]) -> bool:
        return record["series"] == self.series and record["seed"] in self.seeds

    def missing(self) -> list[range]:
        """The runs of seeds that have no record yet."""
        done = {record["seed"] for record in self.records}
        runs: list[range] = []
        for seed in self.seeds:
            if seed in done:
                continue
            if runs and runs[-1].stop == seed:
                runs[-1] = range(runs[-1].start, seed + 1)
            else:
                runs.append(range(seed, seed + 1))
        return runs

    def keep(self, record: dict[str, Any]) -> None:
        """What became of one more seed."""
        kept = {**record, "series": self.series, "version": self._version}
        self.records.append(kept)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(kept) + "\n")

    def page(self, told: str, heading: str) -> str:
        """A section of a page: how many seeds ran at which version, and a table of how they ended."""
        kinds = Counter(record["kind"] for record in self.records)
        versions = Counter(record["version"] for record in self.records)
        ran = "; ".join(f"{count} at {name}" for name, count in versions.items())
        rows = "\n".join(f"| {kind} | {count} |" for kind, count in kinds.most_common())
        return (
            f"Seeds {self.seeds.start} to {self.seeds.stop - 1}{told}, {len(self.records)} "
            f"programs: {ran}.\n\n| {heading} | programs |\n| --- | ---: |\n{rows}"
        )


def _whole_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file, without lines that were cut by a kill."""
    for line in path.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


@dataclass
class Plan:
    """What to run: `module`, started with a first and a last seed and `arguments`, `batch` seeds a process.

    It prints ``{"begin": seed}`` and then a record ``{"seed": .., "kind": .., "detail": ..}``.
    """

    module: str
    seeds: Sequence[range]
    jobs: int = 1
    arguments: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    batch: int = BATCH


def run(plan: Plan, tell: Callable[[dict[str, Any]], None]) -> None:
    """Run all seeds; `tell` gets one record a seed, from several threads in turn."""
    batches: queue.Queue[tuple[int, int]] = queue.Queue()
    for seeds in plan.seeds:
        for first in range(seeds.start, seeds.stop, plan.batch):
            batches.put((first, min(first + plan.batch, seeds.stop)))
    lock = threading.Lock()

    def work() -> None:
        while True:
            try:
                first, last = batches.get_nowait()
            except queue.Empty:
                return
            for record in _batch(plan, first, last):
                with lock:
                    tell(record)

    threads = [threading.Thread(target=work) for _ in range(plan.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _batch(plan: Plan, first: int, last: int) -> Iterator[dict[str, Any]]:
    """The records of a batch; after a death it goes on behind the seed that died."""
    while first < last:
        command = [sys.executable, "-m", plan.module, str(first), str(last), *plan.arguments]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", **plan.environment}
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
            start_new_session=True,
        )  # fmt: skip
        running = first
        try:
            for record in _lines(child):
                if "begin" in record:
                    running = int(record["begin"])
                else:
                    running = int(record["seed"]) + 1
                    yield record
            code = child.wait()
            if code == 0 and running >= last:
                return
            yield _death(running, f"the process died: {_cause(code)}")
        except TimeoutError:
            yield _death(running, f"no sign of life for {PATIENCE:.0f} s", "hang")
        finally:
            _end(child)
        first = running + 1


def _lines(child: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert child.stdout is not None
    rest = b""
    watch = Stopwatch(child.pid, PATIENCE)
    while True:
        if not select.select([child.stdout], [], [], _LOOK_SECONDS)[0]:
            if watch.is_over():
                raise TimeoutError
            continue
        data = os.read(child.stdout.fileno(), 1 << 16)
        if not data:
            return
        watch.restart()
        *whole, rest = (rest + data).split(b"\n")
        for line in whole:
            yield json.loads(line)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a child and what it started."""
    with child, contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)


def _cause(code: int) -> str:
    if code == OUT_OF_MEMORY:
        return f"more than {GIGABYTES} GB of memory"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _death(seed: int, detail: str, kind: str = "crash") -> dict[str, Any]:
    return {"seed": seed, "kind": kind, "detail": detail, "signature": detail, "notes": {}}
