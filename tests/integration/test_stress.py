"""The stress program for seconds: every kind of round, signals and forks, and nothing is left behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.stress", "--minutes", "0.1", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False
    )


def test_every_kind_of_round_leaves_nothing() -> None:
    done = run("--threads", "3")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert "0 errors" in done.stdout
    for kind in ("compile_anew", "exhaust", "call_back", "fork", "interrupt", "use_all_devices"):
        assert f"{kind} " in done.stdout


def test_what_interrupts_cut_short_is_given_back() -> None:
    """Handles that a signal's handler took out of Python's hands were never let go of."""
    done = run("--threads", "2", "--only", "run_again,interrupt", "--seed", "2")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
