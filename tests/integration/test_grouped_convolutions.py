"""Convolutions in groups whose rows are odd: strides, holes, several images, beside the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.run_hlo import compile_text, expected, run_compiled

CASES = {
    "same": ("2,18,15,256", "2,18,15,256", "size=3x3 pad=1_1x1_1"),
    "holes": ("1,16,16,256", "1,33,33,256", "size=3x3 pad=2_2x2_2 lhs_dilate=2x2"),
    "strides": ("3,29,30,256", "3,15,15,256", "size=3x3 stride=2x2 pad=1_1x1_1"),
    "reversed": ("4,12,13,256", "4,12,13,256", "size=3x3 pad=1_1x1_1 rhs_reversal=1x1"),
}
LABELS = "dim_labels=b01f_01io->b01f"


@pytest.mark.parametrize("case", CASES)
def test_values(case: str) -> None:
    """Small whole numbers, whose products are exact."""
    image, result, window = CASES[case]
    text = f"""HloModule m
ENTRY main {{
  x = f32[{image}] parameter(0)
  k = f32[3,3,128,256] parameter(1)
  ROOT c = f32[{result}] convolution(x, k), window={{{window}}}, {LABELS}, feature_group_count=2
}}
"""
    rng = np.random.default_rng(len(case))
    dims = [tuple(int(n) for n in image.split(",")), (3, 3, 128, 256)]
    inputs = [rng.integers(-4, 5, d).astype(np.float32) for d in dims]
    (made,) = run_compiled(compile_text(text), inputs, "llvm").outputs
    (wanted,) = expected(text, inputs)
    assert np.array_equal(made, wanted)


def test_groups_without_positions() -> None:
    """A product of matrices in groups, written as a convolution."""
    text = """HloModule m
ENTRY main {
  x = f32[256,16] parameter(0)
  k = f32[8,16] parameter(1)
  ROOT c = f32[8,128] convolution(x, k), dim_labels=bf_oi->fb, batch_group_count=2
}
"""
    rng = np.random.default_rng(0)
    inputs = [rng.integers(-4, 5, dims).astype(np.float32) for dims in ((256, 16), (8, 16))]
    (made,) = run_compiled(compile_text(text), inputs, "llvm").outputs
    (wanted,) = expected(text, inputs)
    assert np.array_equal(made, wanted)
