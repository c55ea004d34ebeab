"""Reduces of one kernel over the same elements: one pass, with the values of passes of their own."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from compiler.backend import stages
from compiler.kernels.plan import ReduceStage
from tests.support.run_hlo import ADD, MAX, check_text, expected, normal, run_text, small_blocks


def _gradient(image: tuple[int, ...], taps: int, dtype: str, window: str) -> str:
    """The gradient of a depthwise kernel of so many taps; `image` is [batch, time, features]."""
    batch, time, features = image
    shape = f"{dtype}[{batch},{time},{features}]"
    attributes = f"dim_labels=f0b_i0o->0bf, batch_group_count={features}"
    return f"""HloModule m
ENTRY main {{
  x = {shape} parameter(0)
  g = {shape} parameter(1)
  ROOT d = {dtype}[{taps},1,{features}] convolution(x, g), window={{{window}}}, {attributes}
}}
"""


GRADIENTS = {
    "taps around each element": ((3, 21, 40), 9, "size=21 pad=4_4"),
    "two column tiles": ((2, 16, 200), 5, "size=16 pad=2_2"),
    "taps apart": ((8, 17, 24), 4, "size=17 pad=3_3 stride=2"),
    "more taps than one pass takes": ((1, 40, 16), 31, "size=40 pad=15_15"),
}


@pytest.mark.parametrize("dtype", ["bf16", "f32", "s32"])
@pytest.mark.parametrize("name", GRADIENTS)
def test_the_gradient_of_a_depthwise_kernel(name: str, dtype: str) -> None:
    """Whole numbers: sums are exact in whatever order."""
    image, taps, window = GRADIENTS[name]
    numpy = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "s32": np.int32}[dtype]
    rng = np.random.default_rng(3)
    arrays = [rng.integers(-2, 3, image).astype(numpy) for _ in range(2)]
    check_text(_gradient(image, taps, dtype, window), arrays, tolerance=0.0)


def test_what_is_not_finite_stays_with_its_taps() -> None:
    image, taps, window = GRADIENTS["taps around each element"]
    x, g = normal(1, *image), normal(2, *image)
    x[1, 3, 5], g[0, 20, 7] = np.inf, np.nan
    text = _gradient(image, taps, "f32", window)
    (found,) = run_text(text, [x, g]).outputs
    (want,) = expected(text, [x, g])
    np.testing.assert_array_equal(np.isnan(found), np.isnan(want))
    np.testing.assert_array_equal(np.isinf(found), np.isinf(want))


SUMS = (
    """HloModule m
"""
    + ADD
    + MAX
    + """
ENTRY main {
  x = f32[3,37,150] parameter(0)
  y = f32[3,37,150] parameter(1)
  zero = f32[] constant(0)
  least = f32[] constant(-inf)
  d = f32[3,37,150] subtract(x, y)
  e = f32[3,37,150] multiply(d, y)
  a = f32[RESULT] reduce(d, zero), dimensions={DIMS}, to_apply=%add_f32
  b = f32[RESULT] reduce(e, zero), dimensions={DIMS}, to_apply=%add_f32
  c = f32[RESULT] reduce(d, least), dimensions={DIMS}, to_apply=%max_f32
  ROOT r = (f32[RESULT], f32[RESULT], f32[RESULT]) tuple(a, b, c)
}
"""
)


@pytest.mark.parametrize("blocks", [1, 8, 100])
@pytest.mark.parametrize(
    ("dims", "result"),
    [("0,1", "150"), ("1", "3,150"), ("0,1,2", ""), ("0", "37,150"), ("2", "3,37"), ("1,2", "3")],
)
def test_sums_and_a_maximum(dims: str, result: str, blocks: int) -> None:
    text = SUMS.replace("DIMS", dims).replace("RESULT", result)
    with small_blocks(blocks):
        check_text(text, [normal(1, 3, 37, 150), normal(2, 3, 37, 150)])


def test_a_sum_that_another_reads_is_there_before() -> None:
    """A variance is of what is left of the mean: two passes."""
    text = (
        "HloModule m\n"
        + ADD
        + """
ENTRY main {
  x = f32[24,130] parameter(0)
  zero = f32[] constant(0)
  a = f32[130] reduce(x, zero), dimensions={0}, to_apply=%add_f32
  m = f32[24,130] broadcast(a), dimensions={1}
  d = f32[24,130] subtract(x, m)
  s = f32[24,130] multiply(d, d)
  b = f32[130] reduce(s, zero), dimensions={0}, to_apply=%add_f32
  ROOT r = (f32[130], f32[130]) tuple(a, b)
}
"""
    )
    check_text(text, [normal(4, 24, 130)])


def test_one_pass_is_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifteen taps load and widen each register of the cotangent once."""
    text = _gradient((4, 512, 128), 15, "bf16", "size=512 pad=7_7")
    arrays = [normal(5, 4, 512, 128, dtype="bfloat16") for _ in range(2)]

    def cycles() -> int:
        return run_text(text, arrays, "default").result.cycles

    together = cycles()

    def apart(_emitter: object, stage: ReduceStage, *_more: Sequence[object]) -> list[ReduceStage]:
        return [stage]

    monkeypatch.setattr(stages, "reduced_together", apart)
    assert 1.5 * together < cycles()
