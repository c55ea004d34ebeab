"""What spares a user a step: models from standard input, errors as JSON, the list of passes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tpuc
from compiler.passes.pipeline import ON_REQUEST, PARTITIONING, PASSES, PIPELINE
from tests.support.command_line import MODEL, Call
from tests.unit.runtime.test_origin_costs import LAYERS
from tpuc.commands.terminal import Steps

ROOT = Path(__file__).resolve().parents[2]


def _piped(text: str, *args: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tpuc", *args], input=text, capture_output=True, text=True,
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)} | environ, check=False, timeout=120,
    )  # fmt: skip


def test_an_output_of_ascii_gets_like_signs_in_as_many_columns() -> None:
    """Rows of a table stay as wide; the long path of a line is shortened with a sign that ASCII has not."""
    text = LAYERS.replace('"net.py"', '"/home/me/long/path/to/the/net.py"')
    args = ("estimate", "-", "--by", "line")
    done, rich = _piped(text, *args, PYTHONIOENCODING="ascii"), _piped(text, *args)
    assert done.returncode == 0 == rich.returncode, done.stderr
    assert "…/the/net.py:10" in rich.stdout and "~/the/net.py:10" in done.stdout
    assert done.stdout.isascii()
    row = next(line for line in done.stdout.splitlines() if "net.py:10" in line)
    other = next(line for line in rich.stdout.splitlines() if "net.py:10" in line)
    assert len(row) == len(other)


@pytest.mark.skipif(os.name != "posix", reason="closes a descriptor in a shell")
def test_a_closed_standard_output_is_one_message() -> None:
    command = f"{sys.executable} -m tpuc schema >&-"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "error: standard output: Bad file descriptor\n"


def test_a_model_comes_from_standard_input_and_is_checked() -> None:
    done = _piped(MODEL, "run", "-", "--check", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["errors"][0]["ok"]


def test_standard_input_that_is_no_model_is_refused() -> None:
    done = _piped("", "opt", "-")
    assert done.returncode == 1
    assert done.stderr == "error: standard input is empty: want HLO text or StableHLO\n"
    done = _piped("hello", "opt", "-")
    assert done.returncode == 1
    assert done.stderr == "error: standard input holds no HLO or StableHLO\n"


def test_standard_input_is_called_so(model: Path) -> None:
    text = model.read_text()
    assert "standard input on v5e" in _piped(text, "estimate", "-").stdout
    assert "passes changed standard input" in _piped(text, "passes", "-").stdout


def test_a_program_where_a_model_is_wanted_is_called_one(
    call: Call, program: Path, tmp_path: Path
) -> None:
    misnamed = tmp_path / "program.hlo"
    misnamed.write_bytes(program.read_bytes())
    assert f"{misnamed} is a compiled program" in call("estimate", misnamed).err
    with program.open("rb") as piped:
        done = subprocess.run(
            [sys.executable, "-m", "tpuc", "estimate", "-"],
            stdin=piped, capture_output=True, text=True, cwd=ROOT, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == ("error: standard input holds a compiled program: name its .tpux file\n")


def test_a_file_that_cannot_be_read_is_an_error_of_its_own_kind(call: Call, model: Path) -> None:
    for arguments in (["none.hlo"], [model, "--prices", "none.toml"]):
        error = json.loads(call("estimate", *arguments, "--json").out)["error"]
        assert error["kind"] == "UnreadableFileError"
        assert error["message"] == f"cannot read {arguments[-1]}: No such file or directory"


def test_an_error_is_json_for_who_asked_for_json(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(MODEL.replace("add(x, x)", "add(x x)"))
    done = call("estimate", path, "--json")
    assert done.code == 1
    error = json.loads(done.out)["error"]
    assert error["kind"] == "CompileError"
    assert error["at"] == {"file": str(path), "line": 5, "column": error["at"]["column"]}
    assert error["message"] in done.err


def test_wrong_usage_is_json_too(call: Call, model: Path) -> None:
    done = call("estimate", model, "--json", "--trips", "-1")
    assert done.code == 2
    assert json.loads(done.out)["error"]["kind"] == "usage"


def test_errors_go_to_standard_error_alone_without_json(call: Call, tmp_path: Path) -> None:
    done = call("estimate", tmp_path / "none.hlo")
    assert (done.code, done.out) == (1, "")


def test_every_pass_is_listed_with_what_it_does(call: Call) -> None:
    assert call("passes", "--target", "v9").code == 2
    rows = json.loads(call("passes", "--json").out)
    assert [row["name"] for row in rows] == [*PARTITIONING, *ON_REQUEST, *PIPELINE]
    assert {row["name"] for row in rows} == set(PASSES)
    assert all(len(row["what"]) > 10 for row in rows)


def test_the_passes_that_changed_a_model_are_listed(call: Call, model: Path) -> None:
    out = call("passes", model).out
    assert "layout-assignment" in out
    assert "fft-expander" not in out
    assert f"changed {model}\n" in out


@pytest.mark.parametrize("name", ["CompileError", "UnsupportedError", "MachineFault", "ChipError"])
def test_errors_are_to_be_caught_by_their_public_names(name: str) -> None:
    assert issubclass(getattr(tpuc, name), Exception)


def test_an_executable_shows_itself_in_a_line() -> None:
    executable = tpuc.compile(MODEL)
    text = repr(executable)
    assert text.startswith("<tpuc.Executable (f32[8,128]) -> (f32[8,128]) for ")
    assert len(text) < 200
    with pytest.raises(tpuc.CompileError, match="takes 1 inputs, got 2"):
        executable(np.zeros((8, 128), np.float32), np.zeros(1, np.float32))


def test_the_time_left_follows_from_what_is_done() -> None:
    now = [0.0]
    steps = Steps(lambda: now[0])
    assert steps.left("passes") == steps.left("kernel 1 of 5: a") == ""
    now[0] = 4.0
    assert steps.left("kernel 3 of 5: c") == ", 6 s left"
    assert steps.left("fusion") == ""


@pytest.mark.parametrize("text", [MODEL, LAYERS, "e {y = f32[8]{0} parameter(0)}"])
def test_a_byte_order_mark_is_no_part_of_a_model(call: Call, tmp_path: Path, text: str) -> None:
    path = tmp_path / "marked"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    plain = tmp_path / "plain"
    plain.write_text(text)
    assert call("opt", path, "--passes", "none").out == call("opt", plain, "--passes", "none").out
    marked = _piped(chr(0xFEFF) + text, "opt", "-", "--passes", "none")
    assert marked.returncode == 0, marked.stderr
    tpuc.compile(chr(0xFEFF) + text)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tpuc est", ["plain,estimate"]),
        ("tpuc estimate --pr", ["plain,--precision", "plain,--prices"]),
        ("tpuc estimate --sort c", ["plain,cycles", "plain,calls"]),
        ("tpuc run models/gp", ["file,models/gp"]),
        ("tpuc sweep a.hlo --plot pl", ["file,pl"]),
        ("tpuc estimate a.hlo --target v5", ["plain,v5e", "plain,v5p"]),
        ("tpuc estimate a.hlo --target v5e,v6", ["plain,v5e,v6e"]),
        ("tpuc view a.hlo --target my", ["file,my"]),
        ("tpuc targets v6", ["plain,v6e"]),
        (
            "tpuc run a.hlo --set hbm_b",
            ["plain,hbm_bandwidth=", "plain,hbm_bytes=", "plain,hbm_bytes_per_cycle="],
        ),
        ("tpuc sweep a.hlo --set slots.v", ["plain,slots.valu="]),
        ("tpuc run a.hlo --set vmem=", []),
        ("tpuc run a.hlo --skip cs", ["plain,cse"]),
        ("tpuc opt a.hlo --passes dce,cs", ["plain,dce,cse"]),
        ("tpuc opt a.llo --passes dead", ["plain,dead-code"]),
    ],
)
def test_a_shell_completes_commands_options_values_and_files(line: str, found: list[str]) -> None:
    environ = {"_TPUC_COMPLETE": "bash_complete", "COMP_WORDS": line}
    code = "import sys; sys.argv[0] = 'tpuc'; from tpuc.cli import main; main()"
    command = [sys.executable, "-c", code]
    environ["COMP_CWORD"] = str(len(line.split()) - 1)
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=os.environ | environ, check=False
    )
    assert done.stdout.split() == found, done.stderr
