"""Hosts and their feature sets: what native code is made for, and that all give the same bits."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cross_compile import LIBRARY_LEVEL, PROGRAM_LEVEL, object_and_assembly
from tests.support.random_programs import random_program
from tests.support.run_hlo import compile_text
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.program import Program
from tpu_sim.jit.engine import Engine
from tpu_sim.jit.host import (
    FEATURES_VARIABLE,
    LEVELS,
    Arch,
    Host,
    UnsupportedHostError,
    detect_host,
    host_of,
)
from tpu_sim.jit.library import library_text
from tpu_sim.jit.pass_forms import MATMUL_DOT, MATMUL_TILES, pass_forms
from tpu_sim.jit.program_translator import translate_program
from tpu_sim.jit.translated import RUN, ModuleKind

ROOT = Path(__file__).parents[3]
CHIP = load_chip("v5e")
MEMORY_CALLS = {"memcpy", "memset", "memmove"}


def usable_sets() -> list[str]:
    """Feature sets of the running machine."""
    names = ["native"]
    for name in LEVELS:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(FEATURES_VARIABLE, name)
            try:
                detect_host()
            except UnsupportedHostError:
                continue
            names.append(name)
    return names


def assembly(text: str, host: Host, level: int) -> str:
    """Assembly of a module for any host that this LLVM can make code for."""
    code, made = object_and_assembly(text, host, level)
    assert code
    return made


def callees(text: str) -> set[str]:
    """Names of the functions that assembly calls."""
    return {name.partition("@")[0] for name in re.findall(r"\b(?:bl|callq?)\s+([a-z_]\w*)", text)}


def programs() -> list[Program]:
    model = (ROOT / "tests/data/mlp_train_tiny.hlo").read_text()
    return [compile_text(model).program, random_program(CHIP, 200, 2, 100)]


@pytest.mark.parametrize("name", LEVELS)
def test_the_library_compiles_for_every_feature_set(name: str) -> None:
    host = host_of(name)
    made = assembly(library_text(host), host, LIBRARY_LEVEL)
    called = callees(made)
    assert "tpuc_kernel_v1_enter" in called
    assert not {c for c in called if c.startswith("fma")}, "a multiply-add became a call"
    assert ("zmm" in made) == (name == "avx512")
    assert len(re.findall(r"\bfmla\b|vfmadd", made)) >= 8 and "tdpbf16ps" not in made


def with_features(*more: str, has_matrix_unit: bool = False) -> Host:
    known = host_of("avx512")
    features = ",".join((known.features, *(f"+{feature}" for feature in more)))
    return Host(known.arch, "x86-64-v4", features, has_matrix_unit)


def bf16_forms(host: Host) -> list[str]:
    return [form.name for form in pass_forms(host)["bf16"]]


def test_tiles_are_used_where_the_host_has_them() -> None:
    host = with_features("amx-tile", "amx-bf16", has_matrix_unit=True)
    made = assembly(library_text(host), host, LIBRARY_LEVEL)
    assert made.count("tdpbf16ps") == 32 and made.count("ldtilecfg") == 2
    assert bf16_forms(host)[0] == MATMUL_TILES not in bf16_forms(host_of("avx512"))


def test_dot_products_are_used_where_the_host_has_them() -> None:
    host = with_features("avx512bf16", "avx512vnni")
    made = assembly(library_text(host), host, LIBRARY_LEVEL)
    assert made.count("vdpbf16ps") == 16 and made.count("vpdpbusd") > 2 * 16
    assert bf16_forms(host)[0] == MATMUL_DOT not in bf16_forms(host_of("avx512"))


def test_byte_products_are_used_where_only_256_bits_have_them() -> None:
    known = host_of("avx2")
    host = Host(known.arch, known.cpu, f"{known.features},+avxvnni")
    made = assembly(library_text(host), host, LIBRARY_LEVEL)
    assert "vpdpbusd" in made and "zmm" not in made


def test_programs_name_no_host() -> None:
    """Their text is the same for all hosts, and aarch64 has code for it."""
    host = host_of("neon")
    for program in programs():
        for kind in (RUN, ModuleKind(values=False)):
            text = translate_program(program, CHIP, kind, threads=2).text
            assert "x86" not in text and "aarch64" not in text
            made = assembly(text, host, PROGRAM_LEVEL)
            outside = callees(made) - set(re.findall(r"^(\w+):", made, re.MULTILINE))
            assert {name for name in outside if not name.startswith("tpuc_")} <= MEMORY_CALLS


def test_unknown_and_foreign_sets_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = "avx2" if detect_host().arch is Arch.AARCH64 else "neon"
    for name in ("sse9", foreign):
        monkeypatch.setenv(FEATURES_VARIABLE, name)
        with pytest.raises(UnsupportedHostError, match=f"{name}: want one of native"):
            detect_host()


def test_code_of_different_sets_is_kept_apart() -> None:
    keys = {Engine(host_of(name), None).object_key("text") for name in LEVELS}
    assert len(keys) == len(LEVELS)


def test_all_feature_sets_give_the_same_memory_and_cycles(tmp_path: Path) -> None:
    names = usable_sets()
    if len(names) < 2:
        pytest.skip("this host has one feature set")
    found = {}
    for name in names:
        environment = {
            **os.environ, FEATURES_VARIABLE: name, "TPUC_CACHE_DIR": str(tmp_path / name),
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        run = subprocess.run(
            [sys.executable, "-m", "tests.support.host_run"],
            env=environment, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
        host, *found[name] = run.stdout.splitlines()
        assert host.startswith("host ")
    assert len(found["native"]) > 10
    for name in names:
        assert found[name] == found["native"], name
