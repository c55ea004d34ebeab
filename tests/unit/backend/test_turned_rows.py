"""Left sides of products that lie turned, with rows of images whose positions fill no whole blocks of 128."""

from __future__ import annotations

import pytest

from compiler.driver import CompileOptions
from runtime.api import compile as compile_model
from tests.support.run_hlo import check_text, normal


def _text(images: int, positions: int, rows: int, dtype: str, heads: int = 3) -> str:
    """``[image, head, feature, position]`` times weights, its positions filled up to `rows`."""
    merged, features = images * rows, heads * 32
    shape = f"{dtype}[{images},{positions},{heads},32]"
    return f"""HloModule m
ENTRY main {{
  p = {dtype}[{images},{heads},32,{positions}] parameter(0)
  w = {dtype}[{features},64] parameter(1)
  t = {shape} transpose(p), dimensions={{0,3,1,2}}
  r = {dtype}[{images},{positions},{features}] reshape(t)
  z = {dtype}[] constant(0)
  f = {dtype}[{images},{rows},{features}] pad(r, z), padding=0_0x0_{rows - positions}x0_0
  m = {dtype}[{merged},{features}] reshape(f)
  ROOT d = f32[{merged},64] dot(m, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("images", "positions", "rows"),
    [(9, 77, 80), (4, 197, 208), (3, 144, 144), (2, 130, 144), (3, 64, 64), (5, 20, 32)],
)
def test_values(images: int, positions: int, rows: int, dtype: str) -> None:
    text = _text(images, positions, rows, dtype)
    kind = "float32" if dtype == "f32" else "bfloat16"
    inputs = [normal(1, images, 3, 32, positions, dtype=kind), normal(2, 96, 64, dtype=kind)]
    for machine in ("numpy", "llvm"):
        check_text(text, inputs, "default", machine, tolerance=1e-4)


def test_no_lane_looks_its_own_row_up() -> None:
    """Blocks end where an image does, whatever the number of images that a loop goes through."""
    options = CompileOptions(windows={"d": (3328, 128, 64)})
    text = compile_model(_text(16, 197, 208, "f32", heads=4), options=options).text("llo")
    assert "vxpose.push" in text
    assert "vld.idx" not in text
