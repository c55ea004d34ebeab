"""Models printed without their large constants: every command says so, every run that its results
mean nothing, also of programs from the cache and from a file."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest

import tpuc as package
from compiler.diagnostics import ElidedConstantsWarning
from tests.cli.test_usage import tpuc

TEXT = """HloModule m
ENTRY e {
  x = f32[2,20] parameter(0)
  w = f32[20,3] constant({...})
  ROOT r = f32[2,3] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
NOTE = "warning: 1 constant is elided in the model's text, the first is %w: values are made up"
RESULTS = "so results mean nothing"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "elided.hlo"
    path.write_text(TEXT)
    return path


def test_every_run_says_that_results_mean_nothing(model: Path) -> None:
    for _ in range(2):  # the second one comes from the cache
        done = tpuc("run", model)
        assert done.returncode == 0
        assert done.stderr.count(f"{NOTE}, {RESULTS}") == 1
        assert "UserWarning" not in done.stderr


def test_compiled_programs_remember(model: Path, tmp_path: Path) -> None:
    program, text = tmp_path / "elided.tpux", tmp_path / "elided.tpu"
    done = tpuc("compile", model, "-o", program)
    assert NOTE in done.stderr and RESULTS not in done.stderr
    text.write_text(tpuc("disasm", program).stdout)
    again = tmp_path / "again.tpux"
    assert tpuc("asm", text, "-o", again).returncode == 0
    for path in (program, again):
        assert f"{NOTE}, {RESULTS}" in tpuc("run", path).stderr


@pytest.mark.parametrize("command", [("estimate",), ("opt", "--passes", "none"), ("eval",)])
def test_other_commands_say_it_too(command: tuple[str, ...], model: Path) -> None:
    name, *options = command
    done = tpuc(name, model, *options)
    assert done.returncode == 0
    assert done.stderr.count(NOTE) == 1
    assert (RESULTS in done.stderr) == (name == "eval")


def test_calls_warn_every_time() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ElidedConstantsWarning)  # only of what is parsed anew
        executable = package.compile(TEXT)
    for _ in range(2):
        with pytest.warns(ElidedConstantsWarning, match=RESULTS):
            executable(np.zeros((2, 20), np.float32))
