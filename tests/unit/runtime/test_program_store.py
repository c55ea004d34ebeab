"""Programs kept on disk: found by the model's text, equal to what the compiler makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tpuc
from compiler.diagnostics import CompileError
from compiler.options import CompileOptions
from runtime import api, program_store
from runtime.executable import Executable
from runtime.jit import jit
from runtime.machines import MachineOptions
from tpu_sim.isa import source_digest
from tpu_sim.isa.container import content_digest, dump_program, load_program
from tpu_sim.isa.errors import TpuxError
from tpu_sim.jit import llvm_machine, program_translator
from tpu_sim.machine.disk_cache import default_cache_folder

MODEL = """
HloModule sums

ENTRY e {
  x = f32[16,128] parameter(0)
  w = f32[128,256] parameter(1)
  d = f32[16,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  c = f32[] constant(2.5)
  b = f32[16,256] broadcast(c), dimensions={}
  ROOT r = f32[16,256] add(d, b)
}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, whatever happens to the source while the test runs."""
    monkeypatch.setattr(program_store, "is_source_as_loaded", lambda *packages: True)
    monkeypatch.setattr(llvm_machine, "is_source_as_loaded", lambda *packages: True)
    monkeypatch.setenv("TPUC_CACHE_DIR", str(tmp_path / "cache"))
    for variable in ("TPUC_NO_CACHE", "TPUC_CACHE_MAX_MB"):
        monkeypatch.delenv(variable, raising=False)
    return default_cache_folder()


def was_found(executable: Executable) -> bool:
    return "load" in executable.stages


def arguments() -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.random((16, 128), np.float32), rng.random((128, 256), np.float32)]


def result(executable: Executable) -> bytes:
    return np.asarray(executable(*arguments())[0]).tobytes()


def test_the_second_compile_is_a_load_with_the_same_results() -> None:
    first, second = api.compile(MODEL), api.compile(MODEL)
    assert (was_found(first), was_found(second)) == (False, True)
    assert result(first) == result(second)
    assert first.report is not None and second.report is not None
    assert first.report.cycles == second.report.cycles
    assert first.report.kernels == second.report.kernels
    assert first.estimate().cycles == second.estimate().cycles


def test_what_is_found_is_the_program_with_its_texts(tmp_path: Path) -> None:
    first, second = api.compile(MODEL), api.compile(MODEL)
    for number, executable in enumerate((first, second)):
        executable.save(tmp_path / f"{number}.tpux")
    assert (tmp_path / "0.tpux").read_bytes() == (tmp_path / "1.tpux").read_bytes()
    for level in ("hlo", "llo", "tpu"):
        assert first.text(level) == second.text(level)


def test_untouched_blocks_are_written_as_they_were_read() -> None:
    data = dump_program(api.compile(MODEL).program)
    lazy = load_program(data, lazily=True)
    assert dump_program(lazy) == data
    kernel = next(iter(lazy.kernels.values()))
    assert any(node for node in kernel.body)
    eager = load_program(data)
    assert [b.bundles for b in _blocks(lazy)] == [b.bundles for b in _blocks(eager)]
    assert dump_program(lazy) == data  # now decoded


def _blocks(program):  # type: ignore[no-untyped-def]  # of any nesting
    pending = [node for kernel in program.kernels.values() for node in kernel.body]
    while pending:
        node = pending.pop(0)
        if hasattr(node, "name") and type(node).__name__.endswith("Block"):
            yield node
        for part in ("body", "then", "orelse", "test"):
            pending += getattr(node, part, [])


@pytest.mark.parametrize(
    "other",
    [
        {"source": MODEL.replace("2.5", "3.5")},
        {"precision": "highest"},
        {"target": "v5p"},
        {"options": CompileOptions(f64_as_f32=True)},
        {"options": CompileOptions(windows={"d": (16, 128, 128)})},
    ],
    ids=["text", "precision", "target", "f64", "windows"],
)
def test_another_question_is_not_answered_by_it(other: dict[str, object]) -> None:
    api.compile(MODEL)
    asked: dict[str, object] = {"source": MODEL, **other}
    assert not was_found(api.compile(**asked))  # type: ignore[arg-type]
    assert was_found(api.compile(**asked))  # type: ignore[arg-type]


def test_another_compiler_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    api.compile(MODEL)
    monkeypatch.setattr(program_store, "source_digest", lambda *packages: "another")
    assert not was_found(api.compile(MODEL))


def test_what_changed_source_makes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_store, "is_source_as_loaded", lambda *packages: False)
    for _ in range(2):
        assert not was_found(api.compile(MODEL))


def test_switches_turn_it_off(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    off = MachineOptions(cache=False)
    for _ in range(2):
        assert not was_found(api.compile(MODEL, machine=off))
    monkeypatch.setenv("TPUC_NO_CACHE", "1")
    for _ in range(2):
        assert not was_found(api.compile(MODEL))
    assert not folder.exists()


def test_stages_are_written_anew(tmp_path: Path) -> None:
    api.compile(MODEL)
    options = CompileOptions(dump_dir=tmp_path / "ir")
    assert not was_found(api.compile(MODEL, options=options))
    assert list((tmp_path / "ir").iterdir())


@pytest.mark.parametrize("damage", ["flip", "cut", "gone"])
def test_damage_costs_time_only(folder: Path, damage: str) -> None:
    expected = result(api.compile(MODEL))
    for path in folder.iterdir():
        data = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]) if damage == "flip" else data[:-9])
    again = api.compile(MODEL)
    assert not was_found(again)
    assert result(again) == expected


def test_a_program_found_without_its_native_code_is_translated(folder: Path) -> None:
    expected = result(api.compile(MODEL))
    keys = {path.name for path in folder.iterdir()}
    probe = api.compile(MODEL)
    assert was_found(probe)
    for key in keys:  # all but the program itself
        if b"TPUX" not in (folder / key).read_bytes()[:64]:
            (folder / key).unlink()
    assert result(api.compile(MODEL)) == expected


def test_native_code_is_found_without_looking_at_the_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = result(api.compile(MODEL))

    def refuse(*_: object) -> None:
        raise AssertionError("the program was looked at")

    monkeypatch.setattr(llvm_machine, "check_program", refuse)
    monkeypatch.setattr(program_translator, "translate_program", refuse)
    assert result(api.compile(MODEL)) == expected


def test_a_saved_program_is_checked_and_translated_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.tpux"
    api.compile(MODEL, machine=MachineOptions(cache=False)).save(path)
    expected = result(api.load_executable(path))
    loaded = api.load_executable(path)
    assert loaded.digest == content_digest(path.read_bytes())

    def refuse(*_: object) -> None:
        raise AssertionError("checked again")

    monkeypatch.setattr(program_store, "checked_program", refuse)
    monkeypatch.setattr(program_translator, "translate_program", refuse)
    assert result(api.load_executable(path)) == expected


def test_a_damaged_program_file_is_refused_always(tmp_path: Path) -> None:
    path = tmp_path / "m.tpux"
    api.compile(MODEL).save(path)
    api.load_executable(path)
    data = path.read_bytes()
    path.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    for _ in range(2):
        with pytest.raises(TpuxError, match="digest"):
            api.load_executable(path)


def test_errors_are_not_kept() -> None:
    for _ in range(2):
        with pytest.raises(CompileError):
            api.compile(MODEL.replace("f32[16,256] dot", "f32[16,255] dot"))


def test_traced_functions_are_found() -> None:
    def double(x):  # type: ignore[no-untyped-def]
        return np.maximum(x, 1.0) * 2

    x = np.arange(-4, 4, dtype=np.float32)
    for found in (False, True):
        function = jit(double)
        np.testing.assert_array_equal(function(x), np.maximum(x, 1.0) * 2)
        assert function.executable is not None
        assert was_found(function.executable) is found


@pytest.mark.slow
def test_a_hit_imports_neither_compiler_nor_parser_nor_translator(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(MODEL)
    code = (
        "import sys, numpy, tpuc\n"
        f"exe = tpuc.compile({str(path)!r})\n"
        "exe(numpy.ones((16, 128), 'f4'), numpy.ones((128, 256), 'f4'))\n"
        "heavy = {'lark', 'networkx', 'compiler.driver', 'compiler.backend', 'compiler.passes'}\n"
        "heavy |= {'tpu_sim.jit.program_translator', 'tpu_sim.jit.regions'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    said = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        for _ in range(2)
    ]
    assert "compiler.driver" in said[0]
    assert said[1] == "[]"


def test_precision_and_options_are_not_both_given(tmp_path: Path) -> None:
    options = CompileOptions(precision="highest")
    with pytest.raises(ValueError, match="precision is given twice"):
        api.compile(MODEL, precision="default", options=options)
    executable = api.compile(MODEL, options=options)
    assert executable.program.metadata["precision"] == "highest"
    path = tmp_path / "p.tpux"
    executable.save(path)
    with pytest.raises(ValueError, match="compiled already"):
        api.compile(path, options=options)
    assert api.compile(path).program.metadata["precision"] == "highest"
    with pytest.raises(CompileError, match="with precision highest, not default"):
        api.compile(path, precision="default")


def test_other_libraries_make_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    digest = source_digest.source_digest.__wrapped__
    before = digest("tpu_sim")
    assert digest("tpu_sim") == before
    version = source_digest._version
    for library in ("networkx", "lark", "ml_dtypes"):
        assert any(character.isdigit() for character in version(library))
        newer = {library: "99"}
        monkeypatch.setattr(source_digest, "_version", lambda n, o=newer: o.get(n) or version(n))
        assert digest("tpu_sim") != before


def test_completion_shows_the_public_names() -> None:
    code = "import tpuc; print(*[n for n in dir(tpuc) if not n.startswith('_')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names = [name for name in tpuc.__all__ if not name.startswith("_")]
    assert done.stdout.split() == names
