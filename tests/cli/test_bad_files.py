"""Damaged inputs, programs and bundle texts, and outputs that cannot be written."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from tests.support.command_line import MODEL, Call

_PREFIX = struct.Struct("<5sHIQQ")


def _archive(path: Path, x: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    np.savez(path, in0=x)
    return path.read_bytes()


def _deflated_and_damaged(path: Path) -> bytes:
    np.savez_compressed(path, in0=np.arange(1024, dtype=np.float32).reshape(8, 128))
    data = bytearray(path.read_bytes())
    for at in range(100, 140):
        data[at] ^= 0x55
    return bytes(data)


@pytest.mark.parametrize("kind", ["empty", "cut", "flipped", "deflated", "npy", "pickle", "no npy"])
def test_a_damaged_input_file_is_named(kind: str, call: Call, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "in.npz"
    good = _archive(path, np.zeros((8, 128), np.float32))
    if kind == "npy":
        with path.open("wb") as file:
            np.save(file, np.zeros((8, 128), np.float32))
    elif kind == "no npy":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("in0.npy", b"hello")
    else:
        flipped = good[:300] + bytes([good[300] ^ 255]) + good[301:]
        damaged = {
            "empty": b"", "cut": good[: len(good) // 2], "flipped": flipped,
            "deflated": _deflated_and_damaged(path), "pickle": b"\x80\x04K\x01.",
        }  # fmt: skip
        path.write_bytes(damaged[kind])
    done = call("eval", model, "--inputs", path)
    assert done.code == 1
    assert f"cannot read {path}" in done.err
    assert done.err.count("\n") == 1


def test_an_array_that_is_missing_or_of_another_type_is_named(
    call: Call, model: Path, tmp_path: Path
) -> None:
    path = tmp_path / "in.npz"
    np.savez(path, in1=np.zeros((8, 128), np.float32))
    assert "has no array in0; the model wants in0" in call("eval", model, "--inputs", path).err
    np.savez(path, in0=np.zeros((8, 128), np.float64))
    done = call("eval", model, "--inputs", path)
    assert done.code == 1
    assert "in0 is float64[8, 128], the model wants float32[8, 128]" in done.err


def test_expected_outputs_are_read_before_the_run(call: Call, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    done = call("run", model, "--expect", tmp_path / "none.npz", "--outputs", out)
    assert done.code == 1
    assert "none.npz" in done.err
    assert not out.exists()


BAD_TEXTS = {
    "tuples": ("HloModule m\nENTRY e {\n  ROOT p = " + "(" * 90_000, 3),
    "calls": (
        "HloModule m\n"
        + "".join(
            f"c{i} {{\n  a = f32[8] parameter(0)\n  ROOT r = f32[8] "
            + (f"call(a), to_apply=c{i - 1}\n}}\n" if i else "negate(a)\n}\n")
            for i in range(1500)
        )
        + "ENTRY e {\n  a = f32[8] parameter(0)\n  ROOT r = f32[8] call(a), to_apply=c1499\n}\n",
        406,
    ),
    "dimension": (MODEL.replace("8,128]{1,0} parameter", "9" * 30 + ",128]{1,0} parameter"), 4),
    "rank": ("ENTRY e {\n  ROOT p = f32[" + ",".join("1" * 70) + "] parameter(0)\n}\n", 2),
    "dtypes": (MODEL.replace("f32[8,128]{1,0} parameter", "s32[8,128]{1,0} parameter"), 5),
    "nul": (MODEL.replace("add(x", "add(\0x"), 5),
}


@pytest.mark.parametrize("command", ["opt", "eval", "run"])
@pytest.mark.parametrize("name", BAD_TEXTS)
def test_a_bad_text_is_refused_with_its_line(
    name: str, command: str, call: Call, tmp_path: Path
) -> None:
    text, line = BAD_TEXTS[name]
    path = tmp_path / "bad.hlo"
    path.write_text(text)
    done = call(command, path)
    assert done.code == 1
    assert f"bad.hlo:{line}:" in done.err
    assert done.out == ""


def test_bytes_that_are_no_text_are_refused_with_their_line(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_bytes(MODEL.encode().replace(b"add", b"a\xffd"))
    done = call("eval", path)
    assert done.code == 1
    assert "bad.hlo:5:29: not UTF-8 text: byte 0xff" in done.err


def _with_header(data: bytes, edit: dict[str, object]) -> bytes:
    """A program with other header entries and a digest that fits."""
    magic, version, header_bytes, code_bytes, data_bytes = _PREFIX.unpack_from(data)
    end = _PREFIX.size + header_bytes
    header = json.loads(data[_PREFIX.size : end])
    text = json.dumps(header | edit).encode()
    prefix = _PREFIX.pack(magic, version, len(text), code_bytes, data_bytes)
    body = prefix + text + data[end:-32]
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("f31[8,128]{1,0:T(8,128)}", "unknown element type 'f31'"),
        ("f32[8,256]{1,0:T(8,128)}", "planes of \\[4096\\] bytes"),
        ("f32[8,128]{1,0:T(1.5,128)}", "buffer"),
        ("f32[8,128]{1,0:T(0,128)}", "tile sizes of at least 1"),
        ("(f32[8,128])", "want an array"),
        ("f32[8]{1,0}", "does not order 1 dimensions"),
    ],
)
def test_a_program_whose_buffers_lie_is_refused(
    shape: str, message: str, call: Call, program: Path
) -> None:
    data = program.read_bytes()
    _, _, size, _, _ = _PREFIX.unpack_from(data)
    buffers = json.loads(data[_PREFIX.size : _PREFIX.size + size])["buffers"]
    for buffer in buffers:
        if buffer[1] == "input":
            buffer[4] = shape
    program.write_bytes(_with_header(data, {"buffers": buffers}))
    done = call("run", program)
    assert done.code == 1
    assert program.name in done.err
    assert re.search(message, done.err)


def test_flipped_bits_never_get_through(call: Call, program: Path) -> None:
    whole = program.read_bytes()
    rng = random.Random(7)
    for _ in range(40):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        program.write_bytes(data)
        done = call("disasm", program)
        assert done.code == 1
        assert program.name in done.err


def test_an_error_in_bundle_text_has_line_and_column(call: Call, program: Path) -> None:
    text = call("disasm", program).out
    source, output = program.with_suffix(".tpu"), program.with_name("again.tpux")
    source.write_text(text)
    assert call("asm", source, "-o", output).code == 0
    assert output.read_bytes() == program.read_bytes()
    output.unlink()
    lines = text.split("\n")
    number = next(i for i, line in enumerate(lines) if "vadd.f32" in line)
    column = lines[number].index("vadd.f32") + 1
    source.write_text(text.replace("vadd.f32", "vadd.f33"))
    done = call("asm", source, "-o", output)
    assert done.code == 1
    assert f"{source}:{number + 1}:{column}: unknown instruction" in done.err
    assert not output.exists()
    source.write_text(text.replace("vadd.f32 v", "vadd.f32 v9"))
    done = call("asm", source, "-o", output)
    assert done.code == 1
    assert str(source) in done.err and "vadd.f32" in done.err
    assert not output.exists()


def test_bundle_text_is_no_model(call: Call, program: Path) -> None:
    source = program.with_suffix(".tpu")
    source.write_text(call("disasm", program).out)
    done = call("run", source)
    assert done.code == 2
    assert "tpuc asm" in done.err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
@pytest.mark.parametrize("command", [("compile", "-o"), ("run", "--outputs")])
def test_a_full_disk_is_named(command: tuple[str, str], call: Call, model: Path) -> None:
    done = call(command[0], model, command[1], "/dev/full")
    assert done.code == 1
    assert "/dev/full: No space left on device" in done.err
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize(("name", "message"), [("model.hlo/x", "not a folder"), ("no/x", "exist")])
def test_a_folder_that_is_none_is_named(
    name: str, message: str, call: Call, model: Path, tmp_path: Path
) -> None:
    for command, option in (("compile", "-o"), ("run", "--outputs"), ("eval", "--outputs")):
        done = call(command, model, option, tmp_path / name)
        assert done.code == 1
        assert message in done.err and name in done.err


def test_outputs_follow_links_keep_modes_and_leave_nothing_beside(
    call: Call, model: Path, tmp_path: Path
) -> None:
    real, link = tmp_path / "real.npz", tmp_path / "link.npz"
    real.write_bytes(b"old")
    real.chmod(0o640)
    link.symlink_to(real)
    assert call("eval", model, "--outputs", link).code == 0
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert np.load(real)["out0"].shape == (8, 128)
    mask = os.umask(0)
    os.umask(mask)
    fresh = tmp_path / "fresh.npz"
    assert call("eval", model, "--outputs", fresh).code == 0
    assert fresh.stat().st_mode & 0o777 == 0o666 & ~mask
    assert not [p for p in tmp_path.iterdir() if "part" in p.name]


def test_a_failed_run_leaves_the_old_output(call: Call, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.npz"
    out.write_bytes(b"old")
    assert call("run", model, "--outputs", out, "--max-cycles", "1").code == 1
    assert out.read_bytes() == b"old"


@pytest.mark.parametrize("option", ["--inputs", "--expect"])
def test_arrays_that_the_model_has_no_place_for(
    option: str, call: Call, model: Path, tmp_path: Path
) -> None:
    prefix = "in" if option == "--inputs" else "out"
    path = tmp_path / "a.npz"
    x = np.zeros((8, 128), np.float32)
    np.savez(path, **{f"{prefix}{n}": x for n in (0, 1, 7)}, other=x)  # type: ignore[arg-type]
    done = call("run", model, option, path)
    assert done.code == 1
    assert f"has an array {prefix}7; the model wants" in done.err
    assert done.err.count("\n") == 1


@pytest.mark.parametrize("text", ["", " \n\n"])
@pytest.mark.parametrize("name", ["m.hlo", "m.mlir"])
def test_an_empty_model(text: str, name: str, call: Call, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text)
    for command in ("run", "estimate", "opt", "eval"):
        done = call(command, path)
        assert done.code == 1
        assert "is empty" in done.err
        assert done.err.count("\n") == 1


def test_a_script_that_is_no_text_is_refused(call: Call, model: Path, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"run\n\x80")
    done = call("debug", model, "-x", script)
    assert done.code == 1 and f"cannot read {script}" in done.err


def test_results_of_a_sweep_are_never_added_to_another_file(
    call: Call, model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.txt"
    for content in (MODEL.encode(), bytes(range(256))):
        other.write_bytes(content)
        done = call("sweep", model, "--set", "vmem=64MiB", "--jobs", "1", "--results", other)
        assert done.code == 1 and str(other) in done.err
        assert other.read_bytes() == content


def test_two_things_that_want_standard_output_are_refused(call: Call, model: Path) -> None:
    for command in ("run", "estimate"):
        assert call(command, model, "--json", "--csv", "-").code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_standard_output_is_one_message() -> None:
    root = Path(__file__).resolve().parents[2]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tpuc", "schema", "--json"], stdout=full, stderr=subprocess.PIPE,
            text=True, cwd=root, check=False,
        )  # fmt: skip
        model = [sys.executable, "-m", "tpuc", "eval", "tests/data/mlp_train_tiny.hlo", "--json"]
        other = subprocess.run(
            model, stdout=full, stderr=subprocess.PIPE, text=True, cwd=root, check=False
        )
    assert done.returncode == 2
    assert other.returncode == 1 and "No space left" in other.stderr
    assert "Traceback" not in done.stderr + other.stderr


def test_a_name_with_a_newline_stands_in_quotes_on_one_line(call: Call, tmp_path: Path) -> None:
    done = call("estimate", tmp_path / "a\nb.hlo")
    assert done.code == 1 and done.err.count("\n") == 1 and "a\\nb.hlo" in done.err
    (tmp_path / "a\nb.hlo").write_text("bad")
    done = call("estimate", tmp_path / "a\nb.hlo")
    assert "a\\nb.hlo':1:4" in done.err
    done = call("compile", tmp_path / "a\nb.tpux", "-o", tmp_path / "o.tpux")
    assert done.code == 2 and "a\\nb.tpux' is compiled already" in done.err


def test_a_folder_that_was_removed_is_named(tmp_path: Path) -> None:
    script = f"""import os, sys
os.chdir({str(tmp_path)!r})
os.rmdir({str(tmp_path)!r})
sys.argv = ["tpuc", "sweep", "-", "--set", "vmem=4MiB"]
from tpuc.cli import main
main()"""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", script],
        input=MODEL,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.returncode == 1
    assert "the present folder: No such file or directory" in done.stderr


def test_a_binary_file_is_not_called_a_text(call: Call, tmp_path: Path) -> None:
    for name, kind in (("m.pb", "HloProto"), ("m.mlirbc", "MLIR bytecode")):
        path = tmp_path / name
        path.write_bytes(b"ab\xff\xfe")
        refused = call("estimate", path)
        assert refused.code == 1 and f"damaged, or no {kind}" in refused.err


def test_checks_run_on_the_machine_that_has_them(call: Call, model: Path) -> None:
    refused = call("run", model, "--checked", "--machine", "llvm")
    assert refused.code == 2 and "--checked executes on the NumPy machine" in refused.err
    assert call("run", model, "--checked").code == 0
    assert call("run", model, "--checked", "--machine", "numpy").code == 0


WRONG_CHIPS = {
    "no TOML": "[[[",
    "no parameters": "",
    "an unknown one": 'base = "v5e"\nvmen = "32MiB"\n',
    "a bad value": 'base = "v5e"\nvmem = "0MiB"\n',
}


@pytest.mark.parametrize("command", ["estimate", "targets", "sweep"])
@pytest.mark.parametrize("kind", [*WRONG_CHIPS, "missing"])
def test_a_wrong_chip_file_ends_as_a_wrong_model_does(
    kind: str, command: str, call: Call, model: Path, tmp_path: Path
) -> None:
    """The command line is right: what it names is wrong. A word of the command line is another matter."""
    chip = tmp_path / "mine.toml"
    if kind != "missing":
        chip.write_text(WRONG_CHIPS[kind])
    words = {
        "estimate": [model, "--target", chip],
        "targets": [chip],
        "sweep": [model, "--target", chip, "--set", "vregs=32", "--jobs", "1"],
    }[command]
    done = call(command, *words)
    assert done.code == 1 and done.err.startswith("error: ") and "mine.toml" in done.err
    assert done.err.count("\n") == 1
    chip.write_text('base = "v5e"\n')
    assert call("targets", chip).code == 0
    for wrong in (f"{chip}{{vmem=0}}", f"{chip}:9x", "v9"):
        assert call("estimate", model, "--target", wrong).code == 2
    done = call("targets", chip, "--set", "nope=3")
    assert done.code == 2 and "nope=3" in done.err


def test_prices_and_chips_that_are_wrong_end_alike(call: Call, model: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("[[[")
    codes = {call("estimate", model, option, wrong).code for option in ("--target", "--prices")}
    assert codes == {1}


@pytest.mark.parametrize("command", ["run", "opt", "eval", "view"])
def test_a_closed_standard_input_is_an_empty_model(command: str) -> None:
    root = Path(__file__).resolve().parents[2]
    line = f"exec {sys.executable} -m tpuc {command} - <&-"
    done = subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, cwd=root, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: standard input is empty: want HLO text or StableHLO\n"


def test_inputs_that_may_not_be_read_are_no_wrong_command_line(
    call: Call, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, access = tmp_path / "in.npz", os.access
    inputs.touch(mode=0)
    # root reads everything: what click would ask says no all the same
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.R_OK and access(path, mode))
    done = call("run", model, "--inputs", inputs)
    assert done.code == 1 and done.err.startswith(f"error: cannot read {inputs}: ")
