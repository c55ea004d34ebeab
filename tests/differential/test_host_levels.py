"""The comparisons of machines and kernels again, at each level of host features but the present one.

What a level computes must not hang on what else the CPU could do, so each is a run of pytest of its
own, with ``TPUC_HOST_FEATURES`` set. A level that this host lacks is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tpu_sim.jit.host import FEATURES_VARIABLE, LEVELS, NATIVE, UnsupportedHostError, detect_host

ROOT = Path(__file__).parents[2]
PRESENT = os.environ.get(FEATURES_VARIABLE) or NATIVE
MODULES = (
    "tests/unit/jit/test_kernels.py",
    "tests/differential/test_machines_agree.py",
    "tests/differential/test_grid_kernels.py",
    "tests/differential/test_machine_programs.py",
)
_NOT_INHERITED = ("PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTEST_XDIST_WORKER")


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("level", [level for level in (NATIVE, *LEVELS) if level != PRESENT])
def test_machines_agree_at(level: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FEATURES_VARIABLE, level)
    try:
        detect_host()
    except UnsupportedHostError as error:
        pytest.skip(f"{level}: {error}")
    for name in _NOT_INHERITED:
        monkeypatch.delenv(name, raising=False)
    plugins = ("no:xdist", "no:cacheprovider")
    options = [word for plugin in plugins for word in ("-p", plugin)]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", *options, module],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert run.returncode == 0, f"{module} with {FEATURES_VARIABLE}={level}:\n{run.stdout[-4000:]}"
