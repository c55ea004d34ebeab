"""How long the first steps take: ``import tpuc``, and ``tpuc run`` of a small model."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.performance.measure import ROOT
from benchmarks.performance.workloads import EXAMPLES

SMALL_MODEL = "mlp"
_TIMES = 5


def start_seconds() -> dict[str, float]:
    """Median seconds, the interpreter's own start included, by what is started."""
    with tempfile.TemporaryDirectory(prefix="tpuc-benchmark-") as cache:
        run = ["-m", "tpuc", "run", str(EXAMPLES / f"{SMALL_MODEL}.hlo"), "--json"]
        _seconds(run, cache)  # fills the cache
        return {
            "python": _median(["-c", "pass"], cache),
            "import": _median(["-c", "import tpuc"], cache),
            "run": _median(run, cache),
        }


def _median(arguments: list[str], cache: str) -> float:
    return statistics.median(_seconds(arguments, cache) for _ in range(_TIMES))


def _seconds(arguments: list[str], cache: str) -> float:
    environment = os.environ | {"TPUC_CACHE_DIR": str(Path(cache)), "OPENBLAS_NUM_THREADS": "1"}
    started = time.perf_counter()
    command = [sys.executable, *arguments]
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    return time.perf_counter() - started
