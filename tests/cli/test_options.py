"""What options mean together, what goes to which stream, and what JSON holds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from compiler.llo.passes.pipeline import LLO_PIPELINE
from tests.support.command_line import MODEL, Call
from tpu_sim.isa import chips

_PROMISED = {
    "target", "cycles", "seconds", "kernels", "hbm_bytes", "hbm_peak_bytes", "mxu_utilisation",
    "mxu_busy", "compile_seconds", "execute_seconds",
}  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        ("--seed", "-1"), ("--tol", "-1"), ("--tol", "x"), ("--tol", "nan"), ("--max-cycles", "0"),
        ("--threads", "0"), ("--threads", "100000"), ("--target", "v99"), ("--target", ""),
        ("--check", "--expect", "x.npz"), ("--machine", "gpu"), ("--precision", "low"),
    ],
)  # fmt: skip
def test_a_bad_option_is_a_usage_error(options: tuple[str, ...], call: Call, model: Path) -> None:
    done = call("run", model, *options)
    assert done.code == 2
    assert "Error:" in done.err
    assert done.out == ""


@pytest.mark.parametrize("passes", ["frobnicate", "dce,frobnicate", "scheduling,tiling,dce,foo"])
def test_an_unknown_pass_is_a_usage_error(passes: str, call: Call, model: Path) -> None:
    done = call("opt", model, "--passes", passes)
    assert done.code == 2
    assert "there is no pass" in done.err


def test_an_unknown_pass_that_is_left_out_is_a_usage_error(call: Call, model: Path) -> None:
    done = call("estimate", model, "--skip", "cse,frobnicate")
    assert done.code == 2
    assert "there is no pass 'frobnicate'" in done.err
    done = call("estimate", model, "--skip", "algebraic-simplifyer")
    assert "did you mean algebraic-simplifier" in done.err and "`tpuc passes`" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "-o"),
        ("view", "-o"),
        ("run", "--dump-ir"),
        ("run", "--chakra"),
        ("run", "--csv"),
        ("eval", "--outputs"),
        ("sweep", "--set", "vregs=32", "--results"),
    ],
)
def test_an_empty_name_is_a_usage_error(
    arguments: tuple[str, ...], call: Call, model: Path
) -> None:
    command, *options = arguments
    done = call(command, model, *options, "")
    assert done.code == 2 and "the name is empty" in done.err, done.err


def test_a_program_is_not_compared_with_the_evaluator(call: Call, program: Path) -> None:
    done = call("run", program, "--check")
    assert done.code == 2
    assert "--expect" in done.err


def test_json_is_one_object_with_what_is_promised(call: Call, model: Path) -> None:
    done = call("run", model, "--json", "--check")
    assert done.code == 0 and done.err == ""
    record = json.loads(done.out)
    assert record.keys() >= _PROMISED
    assert record["kernels"][0].keys() >= {"name", "cycles", "mxu_utilisation", "hbm_bytes"}
    assert record["errors"] == [{"output": 0, "absolute": 0.0, "normalised": 0.0, "ok": True}]


def test_json_has_no_infinity(call: Call, model: Path, tmp_path: Path) -> None:
    inputs, expect = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(inputs, in0=np.ones((8, 128), np.float32))
    np.savez(expect, out0=np.full((8, 128), np.nan, np.float32))
    done = call("eval", model, "--inputs", inputs, "--expect", expect, "--json")
    assert done.code == 1

    def refuse(constant: str) -> None:
        pytest.fail(f"{constant} is no JSON")

    record = json.loads(done.out, parse_constant=refuse)
    assert record["errors"] == [{"output": 0, "absolute": None, "normalised": None, "ok": False}]


def test_a_piped_run_shows_no_progress(call: Call, model: Path) -> None:
    done = call("run", model)
    assert done.code == 0
    assert done.err == ""
    assert "\x1b" not in done.out


def test_dumps_go_down_to_the_bundles(call: Call, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "ir"
    assert call("run", model, "--dump-ir", folder).code == 0
    names = {path.name for path in folder.iterdir()}
    assert {"00.input.hlo", "kernels.llo", "program.tpu"} <= names
    assert (folder / "kernels.llo").read_text().startswith("kernel ")
    again = tmp_path / "again.tpux"
    assert call("asm", folder / "program.tpu", "-o", again).code == 0
    assert call("run", again).code == 0
    for path in folder.glob("*.hlo"):
        assert call("opt", path, "--passes", "none").out == path.read_text()


def test_dumps_show_each_llo_pass(call: Call, model: Path, tmp_path: Path) -> None:
    """A pass that changed something has a text, and the dumped texts go through the same passes."""
    assert call("run", model, "--dump-ir", tmp_path).code == 0
    kernels, last = list((tmp_path / "kernels").iterdir()), len(LLO_PIPELINE)
    assert {"main"} < {folder.name for folder in kernels}
    for folder in kernels:
        texts = sorted(folder.glob("*.llo"))
        assert texts[0].name == "00.lowered.llo"
        assert texts[-1].name == f"{last:02}.after_{LLO_PIPELINE[-1]}.llo"
        assert call("opt", texts[0]).out == texts[-1].read_text()
        bundles = call("opt", texts[-1], "--passes", "schedule").out
        assert bundles == (folder / f"{last + 1:02}.schedule.tpu").read_text()
        assert bundles in (tmp_path / "program.tpu").read_text()


def test_llo_passes_on_the_command_line(call: Call, tmp_path: Path) -> None:
    kernel = tmp_path / "k.llo"
    kernel.write_text('kernel "k" args 0 flags 0 flops 0 ops 0 least 0 variables [] note "" {\n}\n')
    assert call("opt", kernel, "--passes", "none").out == kernel.read_text()
    assert "no pass 'fusion'" in call("opt", kernel, "--passes", "fusion").err
    wrong = call("opt", kernel, "--passes", "spill,unroll")
    assert wrong.code == 2 and "must run before" in wrong.err
    assert call("opt", kernel, "--style", "short").code == 2
    kernel.write_text("kernel")
    refused = call("opt", kernel)
    assert refused.code == 1 and "k.llo:1:1" in refused.err


def test_a_program_of_a_chip_file_needs_that_file(call: Call, model: Path, tmp_path: Path) -> None:
    chip, program = tmp_path / "mine.toml", tmp_path / "p.tpux"
    text = (Path(chips.__file__).parent / "chip_data" / "v5e.toml").read_text()
    chip.write_text(text.replace('"v5e"', '"mine"', 1))
    assert call("compile", model, "--target", chip, "-o", program).code == 0
    assert "unknown chip 'mine'" in call("run", program).err
    assert "mine" in call("run", program, "--target", chip).out
    assert call("run", program, "--target", "v5e").code == 2
    listing = call("disasm", program, "--target", chip).out
    source = tmp_path / "p.tpu"
    source.write_text(listing)
    again = tmp_path / "q.tpux"
    assert call("asm", source, "-o", again).code == 1
    assert call("asm", source, "-o", again, "--target", chip).code == 0
    assert again.read_bytes() == program.read_bytes()


@pytest.mark.parametrize("where", ["a file", "missing"])
def test_a_cache_folder_that_cannot_be_is_no_error(
    where: str, call: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUC_CACHE_DIR", str(model if where == "a file" else "/proc/none"))
    done = call("run", model, "--check")
    assert done.code == 0
    (line,) = done.err.splitlines()  # one, in people's words, with what to do
    assert line.startswith("warning: the cache folder") and "nothing compiled is kept" in line
    assert "set TPUC_CACHE_DIR" in line


def test_a_bound_of_the_cache_that_is_no_number_is_an_error(
    call: Call, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TPUC_CACHE_MAX_MB", "2 GB")
    done = call("run", model)
    assert done.code == 1 and "TPUC_CACHE_MAX_MB is '2 GB': want a whole number" in done.err


def test_names_that_look_like_markup_are_printed_as_they_are(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "[/x] [bold]m :smile:.hlo"  # the first is a folder
    path.parent.mkdir()
    path.write_text(MODEL)
    for command in ("run", "estimate", "eval"):
        done = call(command, path)
        assert done.code == 0, done.err
    assert "[/x] [bold]m :smile:.hlo" in call("run", path).out.replace("\n", "")


def test_an_error_is_said_once(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(MODEL.replace("y = f32[8,128]", "y = f32[8,64]"))
    done = call("run", path)
    assert done.code == 1 and done.err.startswith("error[V7]: %y: ")


def test_small_kernels_have_small_units(call: Call, model: Path) -> None:
    out = call("run", model).out
    assert " us " in out and " kB " in out and "0.0 MB" not in out
