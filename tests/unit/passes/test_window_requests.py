"""Windows asked for by name are obeyed, or refused by a message that says what is legal."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from compiler.diagnostics import CompileError
from compiler.driver import CompileOptions, compile_module
from compiler.hlo.parser import parse_module
from runtime.api import compile as compile_model
from tpu_sim.isa.chips import load_chip
from tpuc.cli import cli

Window = tuple[int, int, int]

DOT = """HloModule dot
ENTRY main {
  a = bf16[1024,2048] parameter(0)
  b = bf16[2048,512] parameter(1)
  ROOT d = bf16[1024,512] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
CONVOLUTION = """HloModule conv
ENTRY main {
  x = bf16[16,16,16,128] parameter(0)
  w = bf16[3,3,128,256] parameter(1)
  ROOT c = bf16[16,16,16,256] convolution(x, w), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
"""
FUSED = """HloModule fused
inner {
  p = bf16[256,256] parameter(0)
  q = bf16[256,256] parameter(1)
  r = bf16[256,256] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = bf16[256,256] add(r, p)
}
ENTRY main {
  a = bf16[256,256] parameter(0)
  b = bf16[256,256] parameter(1)
  f = bf16[256,256] fusion(a, b), kind=kOutput, calls=inner
  ROOT g = bf16[256,256] dot(f, b), lhs_contracting_dims={0}, rhs_contracting_dims={1}
}
"""
EXACT = """HloModule small
ENTRY main {
  a = s32[8,8] parameter(0)
  b = s32[8,8] parameter(1)
  ROOT d = s32[8,8] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def notes(text: str, windows: dict[str, Window]) -> list[str]:
    options = CompileOptions(windows=windows)
    compiled = compile_module(parse_module(text), load_chip("v5e"), options)
    return [kernel.note for kernel in compiled.program.kernels.values()]


@pytest.mark.parametrize(
    ("text", "name", "window", "grids"),
    [
        (DOT, "d", (128, 256, 128), ("8x4x8", "4x8x8")),
        (DOT, "fusion", (1024, 2048, 128), ("1x4x1", "4x1x1")),
        (DOT, "d", (99999, 99999, 99999), ("1x1x1",)),
        (CONVOLUTION, "c", (512, 1152, 128), ("8x2x1", "2x8x1")),
        (FUSED, "f", (64, 256, 128), ("4x2x1", "2x4x1")),
        (FUSED, "g", (128, 256, 256), ("2x1x1", "1x2x1")),
    ],
)
def test_a_window_is_obeyed(text: str, name: str, window: Window, grids: tuple[str, ...]) -> None:
    found = notes(text, {name: window})
    assert any(note.endswith(f"grid {grid}") for note in found for grid in grids), found


@pytest.mark.parametrize(
    ("text", "name", "window", "message"),
    [
        (DOT, "e", (128, 128, 128), r"no such dot.*In the model: d; kernels: fusion"),
        (DOT, "d", (100, 128, 128), r"--window d: blocks of 100 along M: want all 1024"),
        (DOT, "d", (24, 128, 128), r"--window d: M in blocks of 24: want multiples of 16"),
        (DOT, "d", (128, 384, 128), r"want one of 128, 256, 512, 1024, 2048"),
        (DOT, "d", (128, 128, 0), r"blocks of 0 along N"),
        (EXACT, "d", (8, 8, 8), r"no kernel multiplies matrices for it"),
    ],
)
def test_a_window_that_cannot_be_is_refused(
    text: str, name: str, window: Window, message: str
) -> None:
    with pytest.raises(CompileError, match=message):
        notes(text, {name: window})


def test_windows_beyond_vmem_are_refused() -> None:
    text = DOT.replace("1024,", "32768,").replace(",512]", ",8192]")
    with pytest.raises(CompileError, match=r"needs \d+ bytes of VMEM, v5e has 134217728"):
        notes(text, {"d": (32768, 2048, 8192)})


def test_the_option_of_the_library_and_of_the_command_agree(tmp_path: Path) -> None:
    path = tmp_path / "dot.hlo"
    path.write_text(DOT)
    options = CompileOptions(windows={"d": (256, 512, 256)})
    report = compile_model(path, options=options).estimate()
    done = CliRunner().invoke(cli, ["estimate", str(path), "--window", "d=256,512,256", "--json"])
    assert done.exit_code == 0, done.output
    assert f'"cycles": {report.cycles},' in done.stdout
    assert compile_model(path).estimate().cycles != report.cycles


@pytest.mark.parametrize("text", ["d", "d=1,2", "=1,2,3", "d=a,b,c"])
def test_the_command_refuses_other_forms(text: str, tmp_path: Path) -> None:
    path = tmp_path / "dot.hlo"
    path.write_text(DOT)
    done = CliRunner().invoke(cli, ["estimate", str(path), "--window", text])
    assert done.exit_code == 2
    assert "want NAME=bm,bk,bn" in done.output
