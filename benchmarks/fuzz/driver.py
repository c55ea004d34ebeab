"""Batches of seeds in child processes, and what came of them."""

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
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.fuzz.worker import GIGABYTES, OUT_OF_MEMORY
from benchmarks.limits import Stopwatch

BATCH = 50
PATIENCE = 100.0
"""Seconds of work without a line, after which a child is killed: longer than its own limit."""
_LOOK_SECONDS = 2.0


@dataclass
class Plan:
    """What to run. `command`: a module to start with a first and a last seed."""

    first: int
    last: int
    jobs: int = 1
    arguments: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    module: str = "benchmarks.fuzz.worker"


def run(plan: Plan, tell: Callable[[dict[str, Any]], None]) -> None:
    """Run all seeds; `tell` gets one record a seed, from several threads in turn."""
    batches: queue.Queue[tuple[int, int]] = queue.Queue()
    for first in range(plan.first, plan.last, BATCH):
        batches.put((first, min(first + BATCH, plan.last)))
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
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _cause(code: int) -> str:
    if code == OUT_OF_MEMORY:
        return f"more than {GIGABYTES} GB of memory"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def _death(seed: int, detail: str, kind: str = "crash") -> dict[str, Any]:
    return {"seed": seed, "kind": kind, "detail": detail, "signature": detail, "notes": {}}
