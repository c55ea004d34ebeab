"""Faults on purpose: ``python -m benchmarks.faults [NAME ...] [--times N] [--seed S]``.

Each fault is done to child processes, and a row says what came of it. The exit code is 1 if a child was ended
by a signal, hung, or gave a wrong answer.

    interrupts     signals at random moments of compiling and running
    kills          kill -9 while entries of the cache and outputs are written
    shared-cache   two processes on one small cache
    full-disk      no file may grow
    low-memory     address spaces of several sizes
    threads        eight threads compile and run at once
    growth         many executions of one program
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.faults.children import CHILDREN

_LIMIT_SECONDS = 3600.0
_MEMORIES_MB = (400, 1600, 16_800, 17_200, 17_600, 18_000, 19_000)
"""The emulated HBM alone reserves 16 GB of addresses."""


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    code: int
    last_line: str

    @property
    def is_good(self) -> bool:
        """It ended by itself and found nothing wrong."""
        return self.code == 0


class Children:
    """Runs the functions of `benchmarks.faults.children` in processes with a cache of their own."""

    def __init__(self, folder: str) -> None:
        self.environment = {
            **os.environ, "TPUC_FAULTS_FOLDER": folder, "TPUC_CACHE_DIR": f"{folder}/cache",
            "OPENBLAS_NUM_THREADS": "1",
        }  # fmt: skip
        self.environment.pop("TPUC_NO_CACHE", None)

    def start(self, name: str, times: int, seed: int, **variables: str) -> subprocess.Popen[str]:
        """A child process at work."""
        command = [sys.executable, "-m", "benchmarks.faults", "--child", name]
        command += ["--times", str(times), "--seed", str(seed)]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command, env={**self.environment, **variables}, stdout=pipe, stderr=pipe, text=True
        )

    def run(self, name: str, times: int, seed: int, **variables: str) -> Outcome:
        """A child process to its end."""
        return ended(self.start(name, times, seed, **variables))


def ended(child: subprocess.Popen[str]) -> Outcome:
    """The outcome of a child; one that hangs is ended."""
    try:
        out, err = child.communicate(timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        return Outcome(-1, "hung")
    lines = (out if child.returncode == 0 else err).strip().splitlines()
    return Outcome(child.returncode, lines[-1] if lines else "")


def _simple(name: str) -> Callable[[Children, int, int], Outcome]:
    return lambda children, times, seed: children.run(name, times, seed)


def _interrupts(children: Children, times: int, seed: int) -> Outcome:
    return children.run("interrupts", times, seed, TPUC_NO_CACHE="1")


def _kills(children: Children, times: int, seed: int) -> Outcome:
    rng = random.Random(seed)
    start = time.perf_counter()
    first = children.run("compile_and_save", 1, seed)
    span = time.perf_counter() - start
    if not first.is_good:
        return first
    for _ in range(times):
        child = children.start("compile_and_save", 1000, seed)
        time.sleep(span * rng.uniform(0.3, 2.0))
        child.send_signal(signal.SIGKILL)
        child.communicate()
        found = children.run("find_everything", 1, seed)
        if not found.is_good:
            return found
    return Outcome(0, f"{times} killed")


def _shared_cache(children: Children, times: int, seed: int) -> Outcome:
    outcomes = []
    for _ in range(2):
        started = [
            children.start("compile_and_save", times, seed, TPUC_CACHE_MAX_MB="1"),
            children.start("compile_and_save", times, seed, TPUC_CACHE_MAX_MB="1"),
        ]
        outcomes += [ended(child) for child in started]
    bad = [outcome for outcome in outcomes if not outcome.is_good]
    return bad[0] if bad else Outcome(0, f"4 processes, {times} programs each")


def _low_memory(children: Children, times: int, seed: int) -> Outcome:
    said = []
    for megabytes in _MEMORIES_MB:
        outcome = children.run("limited_memory", 1, megabytes)
        is_clean = outcome.code in (0, 1)  # 1: it failed while importing, with a message
        if not is_clean:
            return Outcome(outcome.code, f"at {megabytes} MB: {outcome.last_line}")
        said.append(f"{megabytes} MB {outcome.last_line[:20]}")
    return Outcome(0, ", ".join(said))


FAULTS: dict[str, tuple[Callable[[Children, int, int], Outcome], int]] = {
    "interrupts": (_interrupts, 1000),
    "kills": (_kills, 100),
    "shared-cache": (_shared_cache, 100),
    "full-disk": (_simple("limited_files"), 20),
    "low-memory": (_low_memory, 1),
    "threads": (_simple("threads"), 25),
    "growth": (_simple("growth"), 100_000),
}


def main() -> int:
    """Run the faults that were asked for, all by default."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.faults",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(FAULTS)}")
    parser.add_argument("--times", type=int, help="how often; each fault has a default of its own")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(CHILDREN[options.child](options.times, options.seed))
        return 0
    unknown = set(options.names) - set(FAULTS)
    if unknown:
        parser.error(f"{sorted(unknown)[0]!r} is none of {', '.join(FAULTS)}")
    failures = 0
    for name in options.names or FAULTS:
        function, usual = FAULTS[name]
        times = usual if options.times is None else options.times
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            outcome = function(Children(folder), times, options.seed)
        failures += not outcome.is_good
        verdict = "ok" if outcome.is_good else f"FAILED ({outcome.code})"
        seconds = time.perf_counter() - start
        print(f"{name:13s} {verdict:12s} {seconds:7.1f} s  {outcome.last_line}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
