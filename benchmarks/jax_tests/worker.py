"""Runs one of JAX's test files in this process, and writes each test's outcome as a line of JSON.

A line is written when a test starts, too: if the process dies, the last one says in which test.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from hashlib import sha256
from pathlib import Path
from types import FrameType

import pytest

_MOST_MESSAGE = 400


class _Timeout(Exception):
    """A test took too long."""


class Recorder:
    """A pytest plug-in: chooses a sample, skips what is `known`, records outcomes, ends slow tests."""

    def __init__(self, out: Path, known: set[str], sample: int, seed: str, seconds: float) -> None:
        self._out = out.open("a")
        self._known, self._sample, self._seed, self._seconds = known, sample, seed, seconds
        self._started = self._worked = 0.0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """The same sample on each platform, without what has an outcome already."""
        if 0 < self._sample < len(items):
            items.sort(key=lambda item: sha256(f"{self._seed}{item.nodeid}".encode()).digest())
            del items[self._sample :]
        items[:] = [item for item in items if item.nodeid not in self._known]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self._started, self._worked = time.monotonic(), time.process_time()
        self._write(nodeid, "started", "")
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test's set-up, call or tear-down is over."""
        if report.when != "call" and report.outcome == "passed":
            return
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._write(report.nodeid, str(report.outcome), _message(report))

    def _write(self, test: str, outcome: str, message: str) -> None:
        seconds = round(time.monotonic() - self._started, 2)
        worked = round(time.process_time() - self._worked, 2)
        row = {"test": test, "outcome": outcome, "message": message, "seconds": seconds}
        row["processor_seconds"] = worked
        print(json.dumps(row), file=self._out, flush=True)


def _message(report: pytest.TestReport) -> str:
    """Why a test failed or was skipped: what pytest says of the exception, without its context."""
    if report.outcome == "passed":
        return ""
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)[:_MOST_MESSAGE]
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])[:_MOST_MESSAGE]
    return str(report.longrepr)[-_MOST_MESSAGE:]


def _on_alarm(_: int, __: FrameType | None) -> None:
    raise _Timeout("the test took too long")


def main() -> None:
    """Arguments: test file, configuration, output, sample size and seed, seconds for a test."""
    file, configuration, out, sample, seed, seconds = sys.argv[1:]
    known = set()
    if Path(out).exists():
        known = {json.loads(line)["test"] for line in Path(out).read_text().splitlines()}
    signal.signal(signal.SIGALRM, _on_alarm)
    recorder = Recorder(Path(out), known, int(sample), seed, float(seconds))
    quiet = ["-q", "--no-header", "--tb=short", "-p", "no:cacheprovider", "-p", "no:xdist"]
    code = pytest.main([file, "-c", configuration, *quiet], plugins=[recorder])
    sys.exit(0 if code in (0, 1, 5) else int(code))


if __name__ == "__main__":
    main()
