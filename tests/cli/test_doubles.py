"""``--f64-as-f32``: without it f64 is an error, with it a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_usage import tpuc

TEXT = """HloModule m
ENTRY e {
  x = f64[3,5] parameter(0)
  n = s64[3,5] parameter(1)
  f = f64[3,5] convert(n)
  ROOT y = f64[3,5] add(x, f)
}
"""
WARNING = "warning: --f64-as-f32"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "doubles.hlo"
    path.write_text(TEXT)
    return path


def test_refused_without_the_option(model: Path) -> None:
    done = tpuc("run", model)
    assert done.returncode == 1
    assert "a TPU has no f64" in done.stderr
    assert "--f64-as-f32" in done.stderr


def test_run_checks_against_f64(model: Path) -> None:
    done = tpuc("run", model, "--f64-as-f32", "--check", "--no-cache")
    assert done.returncode == 0, done.stderr
    assert WARNING in done.stderr


def test_compiled_program_keeps_the_host_types(model: Path, tmp_path: Path) -> None:
    program = tmp_path / "doubles.tpux"
    assert tpuc("compile", model, "--f64-as-f32", "-o", program).returncode == 0
    text = tmp_path / "doubles.tpu"
    text.write_text(tpuc("disasm", program).stdout)
    assert 'host "f64[3,5]"' in text.read_text()
    again = tmp_path / "again.tpux"
    assert tpuc("asm", text, "-o", again).returncode == 0
    assert again.read_bytes() == program.read_bytes()
    refused = tpuc("run", again, "--f64-as-f32")
    assert refused.returncode == 2
    assert "compiled already" in refused.stderr


def test_opt_and_eval(model: Path) -> None:
    shown = tpuc("opt", model, "--f64-as-f32", "--passes", "none")
    assert shown.returncode == 0 and WARNING in shown.stderr
    assert "f32[3,5] add" in shown.stdout
    done = tpuc("eval", model, "--f64-as-f32")
    assert done.returncode == 0 and WARNING in done.stderr
    assert "float64[3, 5]" in done.stdout
