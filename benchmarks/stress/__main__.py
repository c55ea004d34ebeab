"""Threads that compile, run, fail and collect garbage on a slice of four chips, by JAX and by `tpuc.jit`.

    python -m benchmarks.stress --minutes 30 [--threads 8] [--seed 0] [--only NAME,..] [--every 60]

Each thread makes rounds of the kinds of `benchmarks.stress.rounds`, chosen at random: new programs, kept
ones, memory exhausted, exceptions while arrays are freed, callbacks in loops, callbacks that raise, donation,
all chips in any order, garbage. The main thread interrupts long runs and forks children that compute.
Every `--every` seconds all pause, and a line says what the process holds. The exit code is 1 for a wrong
value, an error that nobody provoked, or handles, files or bytes of HBM that are more at the end than after
the first pause.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
import traceback
from collections import Counter
from typing import Any

os.environ["JAX_PLATFORMS"] = "tpuc"
os.environ.setdefault("TPUC_TARGET", "v5e:2x2")

from benchmarks.sections import version
from benchmarks.stress import gauges
from benchmarks.stress.rounds import MAIN_ROUNDS, ROUNDS, Round, is_interruption

_PAUSE_SECONDS = 0.05
_MOST_SHOWN = 20


class Crowd:
    """Threads that make rounds until they are told to end; they rest while the main thread counts."""

    def __init__(self, threads: int, seed: int, kinds: tuple[Round, ...]) -> None:
        self.done: Counter[str] = Counter()
        self.interrupted = 0
        self.errors: list[str] = []
        self._kinds = kinds
        self._lock = threading.Lock()
        self._may_run, self._is_over = threading.Event(), threading.Event()
        self._may_run.set()
        self._busy = 0
        self._threads = [
            threading.Thread(target=self._work, args=(random.Random(f"{seed}.{number}"),))
            for number in range(threads)
        ]

    def start(self) -> None:
        """Let all threads begin."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Let all threads finish their rounds, and wait for them."""
        self._is_over.set()
        self._may_run.set()
        for thread in self._threads:
            thread.join()

    def rest(self) -> None:
        """Wait until no thread is in a round; none begins another before `go_on`."""
        self._may_run.clear()
        while self._busy:
            time.sleep(_PAUSE_SECONDS)

    def go_on(self) -> None:
        """The threads may begin rounds again."""
        self._may_run.set()

    def make(self, kind: Round, pick: random.Random) -> None:
        """A round, with what came of it."""
        try:
            kind(pick)
        except Exception as error:
            with self._lock:
                if is_interruption(error):
                    self.interrupted += 1
                else:
                    self.errors.append(f"{kind.__name__}: {traceback.format_exc()}")
        with self._lock:
            self.done[kind.__name__] += 1

    def _work(self, pick: random.Random) -> None:
        while not self._is_over.is_set():
            self._may_run.wait()
            with self._lock:
                self._busy += 1
            try:
                if self._may_run.is_set():
                    self.make(pick.choice(self._kinds), pick)
            finally:
                with self._lock:
                    self._busy -= 1


def measure(crowd: Crowd, began: float) -> gauges.Gauges:
    """What is held while nobody works, printed with the rounds so far."""
    crowd.rest()
    found = gauges.read()
    gauges.trim()
    trimmed = gauges.read().resident_mb
    crowd.go_on()
    print(
        f"{(time.monotonic() - began) / 60:6.1f} min, {sum(crowd.done.values()):,} rounds, {found.line()}, "
        f"resident after malloc_trim {trimmed:,.1f} MB",
        flush=True,
    )
    return found


def lost(first: gauges.Gauges, last: gauges.Gauges) -> list[str]:
    """What the process holds more of at the end, and should not."""
    names = ("handles", "files", "hbm_bytes")
    return [
        f"{name}: {getattr(first, name)} then {getattr(last, name)}"
        for name in names
        if getattr(last, name) > getattr(first, name)
    ]


def run(options: argparse.Namespace) -> int:
    """The whole of it; how many things went wrong."""
    wanted = options.only.split(",") if options.only else None
    kinds, mine = (
        tuple(k for k in row if not wanted or k.__name__ in wanted) for row in (ROUNDS, MAIN_ROUNDS)
    )
    print(
        f"{version()}; {options.threads} threads, {options.minutes:g} minutes, seed {options.seed}"
    )
    crowd, pick = (
        Crowd(options.threads if kinds else 0, options.seed, kinds),
        random.Random(options.seed),
    )
    warm_up(crowd, (*kinds, *mine), pick)
    began = time.monotonic()
    crowd.start()
    end, counted, first = began + 60 * options.minutes, began, measure(crowd, began)
    while time.monotonic() < end:
        if mine:
            crowd.make(pick.choice(mine), pick)
        time.sleep(_PAUSE_SECONDS)
        if time.monotonic() - counted > options.every:
            counted, _ = time.monotonic(), measure(crowd, began)
    crowd.end()
    return report(crowd, first, measure(crowd, began))


def warm_up(crowd: Crowd, kinds: tuple[Round, ...], pick: random.Random) -> None:
    """Each kind twice, so that what is kept once is there when the first count is made."""
    for kind in (*kinds, *kinds):
        crowd.make(kind, pick)


def report(crowd: Crowd, first: gauges.Gauges, last: gauges.Gauges) -> int:
    """Say what was done and what went wrong; how much that is."""
    print(", ".join(f"{name} {count}" for name, count in sorted(crowd.done.items())))
    print(f"{crowd.interrupted} runs ended by interrupts of others")
    wrong = [*crowd.errors, *lost(first, last)]
    print(*wrong[:_MOST_SHOWN], f"{len(wrong)} errors", sep="\n", flush=True)
    return len(wrong)


def main(arguments: Any = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kinds of rounds, by name")
    parser.add_argument("--every", type=float, default=60.0, help="seconds from count to count")
    sys.exit(1 if run(parser.parse_args(arguments)) else 0)


if __name__ == "__main__":
    main()
