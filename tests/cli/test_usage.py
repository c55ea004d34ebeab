"""The command line refuses wrong input with one message and the right exit code, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests" / "data"

GOOD = """HloModule m, entry_computation_layout={(f32[8,128]{1,0})->f32[8,128]{1,0}}

ENTRY e {
  x = f32[8,128]{1,0} parameter(0)
  ROOT y = f32[8,128]{1,0} add(x, x)
}
"""


def tpuc(*args: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tpuc", *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, env=environment, check=False, timeout=120
    )


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.hlo"
    path.write_text(GOOD)
    return path


BAD_MODELS = {
    "syntax": (GOOD.replace("add(x, x)", "add(x x)"), "bad.hlo:5:"),
    "opcode": (GOOD.replace("add(", "frobnicate("), "frobnicate"),
    "shape": (GOOD.replace("y = f32[8,128]", "y = f32[8,64]"), "f32[8,64]"),
    "dtype": (GOOD.replace("y = f32[", "y = s32["), "s32[8,128]"),
    "undefined": (GOOD.replace("add(x, x)", "add(x, z)"), "z"),
    "cycle": (GOOD.replace("add(x, x)", "add(x, y)"), "y"),
    "operand count": (GOOD.replace("add(x, x)", "add(x)"), "add"),
    "f64": (GOOD.replace("f32", "f64"), "f64"),
    "empty": ("", "bad.hlo"),
}


@pytest.mark.parametrize("name", BAD_MODELS)
def test_a_bad_model_is_one_message_and_exit_code_1(name: str, tmp_path: Path) -> None:
    text, wanted = BAD_MODELS[name]
    path = tmp_path / "bad.hlo"
    path.write_text(text)
    done = tpuc("run", path)
    assert done.returncode == 1, done.stderr
    assert wanted in done.stderr
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = tpuc("run", tmp_path / "none.hlo")
    assert done.returncode == 1
    assert "none.hlo" in done.stderr


def test_inputs_that_do_not_fit_are_named(good: Path, tmp_path: Path) -> None:
    import numpy as np

    wrong = tmp_path / "in.npz"
    np.savez(wrong, in0=np.zeros((8, 64), np.float32))
    done = tpuc("run", good, "--inputs", wrong)
    assert done.returncode == 1
    assert "in0" in done.stderr and "[8, 64]" in done.stderr and "[8, 128]" in done.stderr
    np.savez(wrong, other=np.zeros(3))
    done = tpuc("run", good, "--inputs", wrong)
    assert done.returncode == 1
    assert "in0" in done.stderr


def test_an_unwritable_output_is_refused_before_work(good: Path, tmp_path: Path) -> None:
    done = tpuc("run", good, "--outputs", tmp_path / "no" / "such" / "out.npz")
    assert done.returncode == 1
    assert "does not exist" in done.stderr


def test_a_foreign_or_damaged_program_is_refused(good: Path, tmp_path: Path) -> None:
    program = tmp_path / "p.tpux"
    program.write_bytes(b"not a program at all")
    assert tpuc("run", program).returncode == 1
    assert tpuc("compile", good, "-o", program).returncode == 0
    whole = program.read_bytes()
    for damaged in (whole[:-7], whole[:40] + b"\xff" + whole[41:], b""):
        program.write_bytes(damaged)
        done = tpuc("run", program)
        assert done.returncode == 1, done.stderr
        assert "p.tpux" in done.stderr
        assert "internal error" not in done.stderr


def test_options_that_contradict_a_program_are_usage_errors(good: Path, tmp_path: Path) -> None:
    program = tmp_path / "p.tpux"
    assert tpuc("compile", good, "-o", program, "--precision", "high").returncode == 0
    assert tpuc("run", program, "--target", "v4").returncode == 2
    assert tpuc("run", program, "--precision", "highest").returncode == 2
    assert tpuc("run", program, "--precision", "high", "--target", "v5e").returncode == 0
    assert tpuc("compile", program, "-o", tmp_path / "q.tpux").returncode == 2


def test_unknown_options_and_commands_are_usage_errors(good: Path) -> None:
    assert tpuc("run", good, "--frobnicate").returncode == 2
    assert tpuc("frobnicate").returncode == 2
    assert tpuc("run").returncode == 2
    assert tpuc("run", good, "--target", "v99").returncode == 2


def test_a_model_too_big_for_hbm_names_its_buffers(tmp_path: Path) -> None:
    path = tmp_path / "big.hlo"
    path.write_text(GOOD.replace("[8,128]", "[524288,8192]"))
    done = tpuc("compile", path, "-o", tmp_path / "big.tpux")
    assert done.returncode == 1
    assert "RESOURCE_EXHAUSTED" in done.stderr
    assert not (tmp_path / "big.tpux").exists()


def test_expect_decides_the_exit_code(good: Path, tmp_path: Path) -> None:
    import numpy as np

    x = np.arange(1024, dtype=np.float32).reshape(8, 128)
    inputs, right, wrong = (tmp_path / f"{n}.npz" for n in ("in", "right", "wrong"))
    np.savez(inputs, in0=x)
    np.savez(right, out0=x + x)
    np.savez(wrong, out0=x)
    assert tpuc("run", good, "--inputs", inputs, "--expect", right).returncode == 0
    done = tpuc("run", good, "--inputs", inputs, "--expect", wrong)
    assert done.returncode == 1
    assert "FAIL" in done.stdout
    assert tpuc("run", good, "--inputs", inputs, "--expect", wrong, "--tol", "2").returncode == 0


def test_a_stranger_called_compiler_is_named(tmp_path: Path) -> None:
    (tmp_path / "compiler").mkdir()
    (tmp_path / "compiler" / "__init__.py").write_text("")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", "import tpuc"], capture_output=True, text=True, env=environment,
        check=False, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert "shadows" in done.stderr and str(tmp_path) in done.stderr


def test_import_is_light() -> None:
    code = "import sys, tpuc; print('llvmlite' in sys.modules, 'networkx' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    assert done.stdout.split() == ["False", "False"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "MODEL", "--tol", "0.1"], "--expect or --check"),
        (["eval", "MODEL", "--tol", "0.1"], "give --expect"),
        (["estimate", "MODEL", "--trace", "t.pb"], "NAME.xplane.pb"),
        (
            ["run", "MODEL", "--trace", "t.perfetto"],
            "want NAME.json (for ui.perfetto.dev) or NAME.x",
        ),
        (["run", "MODEL", "--trace", "json"], "want NAME.json"),
        (["opt", "MODEL", "--target", ""], "want CHIP"),
        (["passes", "MODEL", "--target", ""], "want CHIP"),
    ],
)
def test_options_that_would_do_nothing_are_refused(
    arguments: list[str], message: str, good: Path
) -> None:
    done = tpuc(*(good if word == "MODEL" else word for word in arguments))
    assert done.returncode == 2
    assert message in done.stderr
