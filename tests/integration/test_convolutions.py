"""Convolutions in every order of dimensions the compiler gives them, against the evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tpuc
from compiler.hlo.parser import parse_module
from compiler.passes import (
    convolution_folding,
    convolution_group_merging,
    convolution_plans,
    convolution_sides,
)
from compiler.passes.context import PassContext
from compiler.passes.convolution_canonicalizer import canonicalize_convolutions
from compiler.passes.expanders import tap_expander
from compiler.passes.expanders.simple_expansions import expand_simple
from tests.support.run_hlo import check_text, compile_text, expected, run_text
from tpu_sim.isa.chips import load_chip

Dims = tuple[int, ...]


def _text(
    image: Dims, kernel: Dims, result: Dims, labels: str, window: str, dtype: str, more: str = ""
) -> str:
    shapes = [f"{dtype}[{','.join(map(str, d))}]" for d in (image, kernel, result)]
    return f"""HloModule conv
ENTRY main {{
  x = {shapes[0]} parameter(0)
  w = {shapes[1]} parameter(1)
  ROOT y = {shapes[2]} convolution(x, w), window={{{window}}}, dim_labels={labels}{more}
}}
"""


FORWARD, GRADIENT = "b01f_01io->b01f", "f01b_i01o->01bf"
CASES = {
    "same": ((16, 6, 7, 40), (3, 3, 40, 48), (16, 6, 7, 48), FORWARD, "size=3x3 pad=1_1x1_1", ""),
    "two column tiles": (
        (16, 5, 5, 200), (3, 3, 200, 136), (16, 5, 5, 136), FORWARD, "size=3x3 pad=1_1x1_1", "",
    ),
    "strided": (
        (32, 9, 8, 40), (3, 3, 40, 32), (32, 5, 4, 32), FORWARD, "size=3x3 stride=2x2 pad=1_1x0_1", "",
    ),
    "dilated": (
        (16, 8, 8, 32), (3, 3, 32, 40), (16, 8, 8, 40), FORWARD, "size=3x3 pad=2_2x2_2 rhs_dilate=2x2", "",
    ),
    "gradient of the image": (
        (16, 4, 4, 32), (3, 3, 32, 40), (16, 8, 8, 40), FORWARD,
        "size=3x3 pad=1_2x1_2 lhs_dilate=2x2 rhs_reversal=1x1", "",
    ),
    "gradient of the kernel": (
        (32, 6, 6, 40), (32, 6, 6, 48), (3, 3, 40, 48), GRADIENT, "size=6x6 pad=1_1x1_1", "",
    ),
    "gradient of a strided kernel": (
        (16, 9, 9, 40), (16, 4, 4, 32), (3, 3, 40, 32), GRADIENT, "size=4x4 rhs_dilate=2x2", "",
    ),
    "gradient of a transposed kernel": (
        (6, 5, 4, 24), (6, 11, 9, 5), (5, 3, 24, 5), GRADIENT, "size=11x9 pad=2_4x1_3 lhs_dilate=2x2", "",
    ),
    "gradient of a transposed kernel, strided": (
        (8, 5, 7, 16), (8, 13, 5, 8), (4, 3, 16, 8), GRADIENT,
        "size=13x5 stride=2x1 pad=4_3x-1_1 lhs_dilate=3x1", "",
    ),
    "groups of a part of the lanes": (
        (16, 6, 6, 192), (3, 3, 96, 192), (16, 6, 6, 192), FORWARD, "size=3x3 pad=1_1x1_1",
        ", feature_group_count=2",
    ),
    "one tap, odd width": (
        (16, 7, 7, 40), (1, 1, 40, 136), (16, 7, 7, 136), FORWARD, "size=1x1", "",
    ),
    "one tap, strided": (
        (16, 9, 9, 40), (1, 1, 40, 48), (16, 5, 5, 48), FORWARD, "size=1x1 stride=2x2", "",
    ),
    "depthwise": (
        (16, 7, 9, 40), (3, 3, 1, 40), (16, 7, 9, 40), FORWARD, "size=3x3 pad=1_1x1_1",
        ", feature_group_count=40",
    ),
    "depthwise of a small batch": (
        (3, 7, 9, 40), (3, 3, 1, 40), (3, 4, 5, 40), FORWARD, "size=3x3 stride=2x2 pad=1_1x1_1",
        ", feature_group_count=40",
    ),
    "grouped": (
        (16, 6, 6, 64), (3, 3, 32, 64), (16, 6, 6, 64), FORWARD, "size=3x3 pad=1_1x1_1",
        ", feature_group_count=2",
    ),
    "small batch": ((3, 6, 7, 40), (3, 3, 40, 48), (3, 6, 7, 48), FORWARD, "size=3x3 pad=1_1x1_1", ""),
    "gradient of a depthwise kernel": (
        (3, 7, 6, 16), (3, 7, 6, 16), (3, 3, 1, 16), GRADIENT, "size=7x6 pad=1_1x1_1",
        ", batch_group_count=16",
    ),
    "gradient of a strided depthwise kernel": (
        (16, 9, 9, 8), (16, 4, 4, 8), (3, 3, 1, 8), GRADIENT, "size=4x4 rhs_dilate=2x2",
        ", batch_group_count=8",
    ),
    "few positions, two features a group": (
        (3, 8, 7, 32), (7, 6, 2, 16), (3, 2, 2, 16), FORWARD, "size=7x6 rhs_reversal=1x0",
        ", feature_group_count=16",
    ),
    "few positions, features first": (
        (2, 16, 9), (16, 1, 7), (2, 16, 2), "bf0_oi0->bf0", "size=7 stride=2", ", feature_group_count=16",
    ),
    "groups of the batch": (
        (6, 5, 7, 8), (2, 3, 8, 12), (2, 4, 5, 12), FORWARD, "size=2x3", ", batch_group_count=3",
    ),
    "one feature out of several per group": (
        (2, 6, 7, 24), (3, 3, 8, 3), (2, 4, 5, 3), FORWARD, "size=3x3", ", feature_group_count=3",
    ),
    "features first": (
        (16, 40, 6, 6), (48, 40, 3, 3), (16, 48, 6, 6), "bf01_oi01->bf01", "size=3x3 pad=1_1x1_1", "",
    ),
    "three dimensions": (
        (16, 3, 4, 5, 32), (2, 2, 2, 32, 40), (16, 2, 3, 4, 40), "b012f_012io->b012f", "size=2x2x2", "",
    ),
}  # fmt: skip


MANY_TAPS = {
    "one dimension": ((2, 30, 1), (12, 1, 1), (2, 19, 1), "b0f_0io->b0f", "size=12", ""),
    "strided and dilated": (
        (1, 14, 12, 2), (4, 3, 2, 3), (1, 15, 6, 3), FORWARD,
        "size=4x3 stride=1x2 pad=3_4x1_0 rhs_dilate=2x1 rhs_reversal=0x1", "",
    ),
    "grouped": (
        (1, 7, 8, 4), (3, 4, 2, 6), (1, 5, 5, 6), FORWARD, "size=3x4", ", feature_group_count=2",
    ),
    "depthwise": (
        (1, 7, 8, 3), (3, 4, 1, 3), (1, 5, 5, 3), FORWARD, "size=3x4", ", feature_group_count=3",
    ),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["s32", "s8", "f32", "bf16"])
@pytest.mark.parametrize("name", MANY_TAPS)
def test_many_taps_are_a_loop(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_expander, "MAX_SLICES", 5)
    monkeypatch.setattr(convolution_folding, "_WORTH", 0)
    image, kernel, result, labels, window, more = MANY_TAPS[name]
    text = _text(image, kernel, result, labels, window, dtype, more)
    rng = np.random.default_rng(7)
    types = [p.array.dtype.numpy for p in parse_module(text).entry.parameters]
    arrays = [rng.integers(-2, 3, d).astype(t) for d, t in zip((image, kernel), types, strict=True)]
    check_text(text, arrays, "default")


@pytest.mark.parametrize("more", ["", ", feature_group_count=2", ", feature_group_count=4"])
def test_a_loop_of_bytes_adds_wide_products(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tap_expander, "MAX_SLICES", 5)
    groups = int(more[-1]) if more else 1
    text = f"""HloModule conv
ENTRY main {{
  x = u8[1,7,8,4] parameter(0)
  w = s8[3,4,{4 // groups},4] parameter(1)
  ROOT y = s32[1,5,5,4] convolution(x, w), window={{size=3x4}}, dim_labels={FORWARD}{more}
}}
"""
    rng = np.random.default_rng(8)
    image = rng.integers(0, 256, (1, 7, 8, 4)).astype(np.uint8)
    kernel = rng.integers(-128, 128, (3, 4, 4 // groups, 4)).astype(np.int8)
    check_text(text, [image, kernel], tolerance=0)


@pytest.mark.parametrize("dtype", ["c64", "s64", "u64", "s32"])
@pytest.mark.parametrize(
    "name",
    [
        "depthwise of a small batch",
        "gradient of a depthwise kernel",
        "few positions, two features a group",
    ],
)
def test_values_beyond_32_bits(name: str, dtype: str) -> None:
    """Products that need all bits of a 64-bit integer, or both parts of a complex number."""
    image, kernel, result, labels, window, more = CASES[name]
    text = _text(image, kernel, result, labels, window, dtype, more)
    rng = np.random.default_rng(9)
    (of_image, of_kernel) = (p.array.dtype.numpy for p in parse_module(text).entry.parameters)
    x, w = rng.integers(0, 1 << 20, image), rng.integers(0, 1 << 20, kernel)
    if dtype == "c64":
        x, w = (x % 7 + 1j * (x % 5 - 2)), (w % 5 + 1j * (w % 7 - 3))
    arrays = [x.astype(of_image), w.astype(of_kernel)]
    (result_found,) = tpuc.compile(text, precision="highest")(*arrays)
    np.testing.assert_array_equal(np.asarray(result_found), expected(text, arrays)[0])


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, dtype: str) -> None:
    """Small whole numbers: products and sums are exact whatever the order."""
    image, kernel, result, labels, window, more = CASES[name]
    text = _text(image, kernel, result, labels, window, dtype, more)
    rng = np.random.default_rng(7)
    types = [p.array.dtype.numpy for p in parse_module(text).entry.parameters]
    arrays = [rng.integers(-2, 3, d).astype(t) for d, t in zip((image, kernel), types, strict=True)]
    check_text(text, arrays, "default")


@pytest.mark.parametrize("batch", [3, 16])
def test_a_large_image_is_rounded_for_the_vector_unit(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tap_expander, "_ROUNDED_SHARE", 1 << 40)
    text = f"""HloModule conv
ENTRY main {{
  x = f32[{batch},7,9,40] parameter(0)
  w = f32[3,3,1,40] parameter(1)
  a = f32[{batch},7,9,40] tanh(x)
  ROOT y = f32[{batch},4,5,40] convolution(a, w), window={{size=3x3 stride=2x2 pad=1_1x1_1}},
    dim_labels=b01f_01io->b01f, feature_group_count=40
}}
"""
    rng = np.random.default_rng(7)
    x = rng.normal(size=(batch, 7, 9, 40)).astype(np.float32)
    w = rng.integers(-2, 3, (3, 3, 1, 40)).astype(np.float32)
    (want,) = expected(text, [x, w], "default")
    for machine in ("numpy", "llvm"):
        (got,) = run_text(text, [x, w], "default", machine).outputs
        np.testing.assert_allclose(got, want, atol=0.02)  # tanh may round to the next bf16


def test_a_depthwise_convolution_needs_no_matrix_unit() -> None:
    image, kernel, result, labels, window, more = CASES["depthwise"]
    text = _text(image, kernel, result, labels, window, "bf16", more)
    program = compile_text(text, "default").program
    assert not any(kernel.flops for kernel in program.kernels.values())


FEW_FEATURES = {
    "strided": (
        (8, 19, 18, 3), (7, 7, 3, 16), (8, 10, 9, 16), FORWARD, "size=7x7 stride=2x2 pad=3_3x3_3",
    ),
    "gradient of the image": (
        (4, 8, 9, 16), (7, 7, 16, 3), (4, 16, 18, 3), FORWARD,
        "size=7x7 pad=4_3x4_3 lhs_dilate=2x2 rhs_reversal=1x1",
    ),
    "gradient of the kernel": (
        (16, 18, 16, 3), (16, 8, 8, 16), (5, 5, 3, 16), GRADIENT,
        "size=8x8 pad=1_0x1_2 rhs_dilate=2x2",
    ),
    "three dimensions": (
        (1, 5, 4, 16, 8), (3, 2, 3, 8, 16), (1, 5, 3, 16, 16), "b012f_012io->b012f",
        "size=3x2x3 pad=1_1x0_0x1_1",
    ),
    "features first": (
        (4, 3, 12, 9), (16, 3, 5, 5), (4, 16, 12, 9), "bf01_oi01->bf01", "size=5x5 pad=2_2x2_2",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FEW_FEATURES)
def test_folded(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of convolutions that are folded, and both machines with the same cycles."""
    monkeypatch.setattr(convolution_folding, "_WORTH", 1e9)
    monkeypatch.setattr(convolution_plans, "COUNTS", (4,))
    image, kernel, result, labels, window = FEW_FEATURES[name]
    dtype = "f32" if name == "strided" else "bf16"
    text = _text(image, kernel, result, labels, window, dtype)
    module = parse_module(text)
    assert convolution_folding.fold_convolutions(module, PassContext(load_chip("v5e")))
    rng = np.random.default_rng(7)
    types = [p.array.dtype.numpy for p in module.entry.parameters]
    arrays = [rng.integers(-2, 3, d).astype(t) for d, t in zip((image, kernel), types, strict=True)]
    reference = check_text(text, arrays, "default")
    native = check_text(text, arrays, "default", "llvm")
    assert native.result.cycles == reference.result.cycles


UNEVEN = (
    (16, 18, 18, 3), (16, 9, 9, 16), (5, 5, 3, 16), GRADIENT, "size=9x9 pad=2_1x2_1 rhs_dilate=2x2",
)  # fmt: skip
"""A kernel's gradient whose last block of the window is not full."""


@pytest.mark.parametrize("side", [0, 1], ids=["image", "kernel"])
@pytest.mark.parametrize("name", [*FEW_FEATURES, "uneven blocks"])
def test_what_is_not_finite_stays_in_its_windows(
    name: str, side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convolution_folding, "_WORTH", 1e9)
    monkeypatch.setattr(convolution_plans, "COUNTS", (4,))
    image, kernel, result, labels, window = FEW_FEATURES.get(name, UNEVEN)
    text = _text(image, kernel, result, labels, window, "f32" if name == "strided" else "bf16")
    rng = np.random.default_rng(7)
    types = [p.array.dtype.numpy for p in parse_module(text).entry.parameters]
    arrays = [rng.integers(-2, 3, d).astype(t) for d, t in zip((image, kernel), types, strict=True)]
    for value in (np.inf, -np.inf, np.nan):
        arrays[side].flat[rng.integers(arrays[side].size)] = value
    arrays[side].flat[-1] = np.nan  # also where a last block reads beyond
    (want,) = expected(text, arrays, "default")
    assert np.any(~np.isfinite(want.astype(np.float32)))
    for machine in ("numpy", "llvm"):
        (got,) = run_text(text, arrays, "default", machine).outputs
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("side", [0, 1], ids=["image", "kernel"])
def test_a_hole_beside_what_is_not_finite(side: int) -> None:
    """The gradient of a transposed convolution's kernel reads no holes; zero times infinity is NaN."""
    image, kernel, result, labels, window, _ = CASES["gradient of a transposed kernel"]
    text = _text(image, kernel, result, labels, window, "f32")
    rng = np.random.default_rng(7)
    arrays = [rng.integers(-2, 3, d).astype(np.float32) for d in (image, kernel)]
    arrays[side].flat[17] = np.inf
    (want,) = expected(text, arrays, "default")
    assert np.isnan(want).any()
    for machine in ("numpy", "llvm"):
        (got,) = run_text(text, arrays, "default", machine).outputs
        np.testing.assert_array_equal(got, want)


FEW_OUT = {
    "3x3": ((3, 9, 11, 16), (3, 9, 11, 3), (3, 3, 16, 3), "size=9x11 pad=1_1x1_1", "f32"),
    "cropped, dilated": (
        (2, 12, 10, 8),
        (2, 9, 9, 2),
        (2, 2, 8, 2),
        "size=9x9 pad=-1_0x1_1 stride=2x2",
        "bf16",
    ),
}
"""Gradients of kernels with few features out, whose other side is slid."""


@pytest.mark.parametrize("place", [None, (0, 0), (1, 7), (0, 4, 5), (1, 4, 5)], ids=str)
@pytest.mark.parametrize("name", FEW_OUT)
def test_gradients_of_kernels_with_few_features_out(
    name: str, place: tuple[int, ...] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is not finite, at a border or within, is so where its windows say."""
    monkeypatch.setattr(convolution_sides, "_WORTH", 1e9)
    image, kernel, result, window, dtype = FEW_OUT[name]
    text = _text(image, kernel, result, GRADIENT, window, dtype)
    module = parse_module(text)
    assert canonicalize_convolutions(module, PassContext(load_chip("v5e")))
    rng = np.random.default_rng(7)
    types = [p.array.dtype.numpy for p in module.entry.parameters]
    arrays = [rng.integers(-2, 3, d).astype(t) for d, t in zip((image, kernel), types, strict=True)]
    if place is not None:
        side, *spatial = place
        arrays[side][(1, *spatial)] = np.inf
    (want,) = expected(text, arrays, "default")
    is_cropped = place == (0, 0) and name != "3x3"
    assert np.isfinite(want.astype(np.float32)).all() == (place is None or is_cropped)
    for machine in ("numpy", "llvm"):
        (got,) = run_text(text, arrays, "default", machine).outputs
        np.testing.assert_array_equal(got.astype(np.float32), want.astype(np.float32))


GROUPED = {
    "two by two": (
        (16, 6, 6, 64), (3, 3, 8, 64), (16, 6, 6, 64), FORWARD, "size=3x3 pad=1_1x1_1",
        ", feature_group_count=8",
    ),
    "more features out, strided": (
        (3, 7, 9, 8), (3, 2, 2, 24), (3, 4, 4, 24), FORWARD, "size=3x2 stride=2x2 pad=1_1x0_0",
        ", feature_group_count=4",
    ),
    "all in one, one tap": (
        (4, 5, 5, 12), (1, 1, 3, 8), (4, 5, 5, 8), FORWARD, "size=1x1", ", feature_group_count=4",
    ),
    "two left": (
        (2, 5, 5, 192), (3, 3, 24, 160), (2, 3, 3, 160), FORWARD, "size=3x3", ", feature_group_count=8",
    ),
    "features first, turned": (
        (2, 12, 6, 7), (16, 3, 3, 3), (2, 16, 6, 7), "bf01_oi01->bf01",
        "size=3x3 pad=1_1x1_1 rhs_reversal=1x0", ", feature_group_count=4",
    ),
}  # fmt: skip


@pytest.mark.parametrize("is_finite", [True, False])
@pytest.mark.parametrize("name", GROUPED)
def test_groups_lie_together(name: str, is_finite: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One infinity makes no NaN in other groups than its own."""
    monkeypatch.setattr(convolution_group_merging, "_MORE_KERNELS", 0)
    image, kernel, result, labels, window, more = GROUPED[name]
    text = _text(image, kernel, result, labels, window, "f32", more)
    module = parse_module(text)
    assert convolution_folding.fold_convolutions(module, PassContext(load_chip("v5e")))
    rng = np.random.default_rng(7)
    arrays = [rng.integers(-2, 3, d).astype(np.float32) for d in (image, kernel)]
    if not is_finite:
        arrays[0].flat[rng.integers(arrays[0].size)] = np.inf
        arrays[1].flat[rng.integers(arrays[1].size)] = np.nan
    (want,) = expected(text, arrays, "default")
    assert np.isfinite(want).all() == is_finite
    for machine in ("numpy", "llvm"):
        (got,) = run_text(text, arrays, "default", machine).outputs
        np.testing.assert_array_equal(got, want)


GROUPED_GRADIENTS = {
    "all in one": (
        (8, 6, 6, 16), (8, 6, 6, 24), (3, 3, 2, 24), "f01b_i01o->01bf", "size=6x6 pad=1_1x1_1", 8,
    ),
    "two left": (
        (192, 5, 4, 4), (4, 5, 4, 128), (3, 3, 24, 128), "b01f_i01o->01bf", "size=5x4 pad=1_1x1_1", 8,
    ),
    "features first": (
        (6, 2, 5), (2, 12, 5), (2, 3, 12), "bf0_io0->b0f", "size=5 pad=1_1", 3,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GROUPED_GRADIENTS)
def test_gradients_of_kernels_in_groups(name: str) -> None:
    image, kernel, result, labels, window, groups = GROUPED_GRADIENTS[name]
    text = _text(image, kernel, result, labels, window, "f32", f", batch_group_count={groups}")
    rng = np.random.default_rng(7)
    arrays = [rng.integers(-2, 3, d).astype(np.float32) for d in (image, kernel)]
    check_text(text, arrays, "default")
    module = parse_module(text)
    expand_simple(module, PassContext(load_chip("v5e")))
    convolutions = [i for i in module.entry if i.opcode == "convolution"]
    assert len(convolutions) == (2 if name == "two left" else 1)
    assert all(c.feature_group_count == c.batch_group_count == 1 for c in convolutions)


def test_taps_of_many_features_are_picked_while_emitting() -> None:
    """Nine taps of 1,024 features are more column tiles than may each have code; 960 are filled up."""
    cycles = []
    for features in (512, 1024, 960):
        image, kernel = (1, 4, 4, features), (3, 3, features, 16)
        text = _text(image, kernel, (1, 4, 4, 16), FORWARD, "size=3x3 pad=1_1x1_1", "bf16")
        rng = np.random.default_rng(7)
        arrays = [rng.integers(-1, 2, d).astype(ml_dtypes.bfloat16) for d in (image, kernel)]
        cycles.append(check_text(text, arrays, "default").result.cycles)
    assert max(cycles) < 2.5 * cycles[0]
