"""Sums of many terms for several tiles side by side: the values of one tile after the other."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.backend.vector import chain_stage, stage
from tests.support.run_hlo import ADD, check_text, expected, normal, run_text


def _depthwise(image: tuple[int, ...], window: str, dtype: str) -> str:
    """7x7 taps of ``[height, width, batch, features]``, each feature by itself."""
    shape = f"{dtype}[{','.join(map(str, image))}]"
    features = image[-1]
    labels = f"dim_labels=01bf_01io->01bf, feature_group_count={features}"
    return f"""
  x = {shape} parameter(0)
  w = {dtype}[7,7,1,{features}] parameter(1)
  y = {shape} convolution(x, w), window={{{window}}}, {labels}"""


ALONE = "HloModule m\nENTRY main {BODY\n  ROOT r = SHAPE negate(y)\n}\n"
NORMALISED = (
    "HloModule m\n"
    + ADD
    + """
ENTRY main {BODY
  wide = WIDE convert(y)
  zero = f32[] constant(0)
  s = f32[KEPT] reduce(wide, zero), dimensions={3}, to_apply=%add_f32
  spread = WIDE broadcast(s), dimensions={0,1,2}
  d = WIDE subtract(wide, spread)
  q = WIDE multiply(d, d)
  v = f32[KEPT] reduce(q, zero), dimensions={3}, to_apply=%add_f32
  ROOT r = (WIDE, f32[KEPT]) tuple(d, v)
}
"""
)
IMAGES = {
    "whole tiles": ((5, 11, 16, 40), "size=7x7 pad=3_3x3_3"),
    "two columns, dilated": ((8, 9, 16, 200), "size=7x7 pad=6_6x6_6 rhs_dilate=2x2"),
    "part of a tile": ((7, 8, 5, 24), "size=7x7 pad=3_3x3_3 rhs_reversal=1x1"),
}


def _text(form: str, image: tuple[int, ...], window: str, dtype: str) -> str:
    dims = ",".join(map(str, image))
    kept = ",".join(map(str, image[:3]))
    text = form.replace("BODY", _depthwise(image, window, dtype)).replace("WIDE", f"f32[{dims}]")
    return text.replace("KEPT", kept).replace("SHAPE", f"{dtype}[{dims}]")


@pytest.mark.parametrize("form", [ALONE, NORMALISED], ids=["alone", "normalised"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("name", IMAGES)
def test_values(name: str, dtype: str, form: str) -> None:
    """Small whole numbers: sums are exact."""
    image, window = IMAGES[name]
    numpy = ml_dtypes.bfloat16 if dtype == "bf16" else np.float32
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-1, 2, d).astype(numpy) for d in (image, (7, 7, 1, image[-1]))]
    check_text(_text(form, image, window, dtype), arrays, tolerance=0.0)


def test_what_is_not_finite_meets_its_taps() -> None:
    image, window = IMAGES["whole tiles"]
    x, w = normal(1, *image), normal(2, 7, 7, 1, image[-1])
    x[4, 6, 3, 7], x[0, 0, 9, 1], w[3, 2, 0, 5] = np.inf, np.nan, -np.inf
    text = _text(ALONE, image, window, "f32")
    (found,), (want,) = run_text(text, [x, w]).outputs, expected(text, [x, w])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(want))


@pytest.mark.parametrize("form", [ALONE, NORMALISED], ids=["alone", "normalised"])
def test_side_by_side_is_shorter(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights and what neighbours share are loaded once, and no sum waits for itself."""
    text = _text(form, (5, 16, 16, 96), "size=7x7 pad=3_3x3_3", "bf16")
    arrays = [
        normal(s, *d, dtype="bfloat16") for s, d in enumerate([(5, 16, 16, 96), (7, 7, 1, 96)])
    ]
    together = run_text(text, arrays, "default")
    for module in (chain_stage, stage):
        monkeypatch.setattr(module, "long_sums", lambda *_: [])
    apart = run_text(text, arrays, "default")
    assert 1.5 * together.result.cycles < apart.result.cycles
    for one, other in zip(together.outputs, apart.outputs, strict=True):
        np.testing.assert_array_equal(one, other)
