"""Which version of the project is measured."""

from __future__ import annotations

import subprocess

from benchmarks.performance.measure import ROOT


def commit() -> str:
    """The checked-out commit, marked where files differ from it."""
    git = ["git", "-C", str(ROOT)]
    try:
        done = subprocess.run(
            [*git, "describe", "--always", "--dirty"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "(no commit)"
    return done.stdout.strip()
