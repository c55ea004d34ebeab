"""Taps far apart as neighbours along quotients mean the same, and are made so where rows are read again."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.call_graph import sort_computations
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from compiler.hlo.verifier import verify
from compiler.passes import convolution_remainders
from compiler.passes.convolution_remainders import by_remainders
from compiler.rewrite.graph import replace
from runtime.api import compile as compile_model
from tpu_sim.isa.chips import load_chip

PLAIN = "b01f_01io->b01f"
CASES = {
    "padded": ("2,9,8,3", "3,3,3,4", "2,9,8,4", "size=3x3 pad=4_4x2_2 rhs_dilate=4x2", "", PLAIN),
    "uneven": ("1,11,5,2", "2,1,2,3", "1,8,5,3", "size=2x1 rhs_dilate=3x1", "", PLAIN),
    "distance beyond the image": (
        "1,4,4,2", "3,3,2,2", "1,4,4,2", "size=3x3 pad=6_6x1_1 rhs_dilate=6x1", "", PLAIN,
    ),
    "cropped": ("1,15,6,2", "3,2,2,2", "1,9,5,2", "size=3x2 pad=-1_-1x0_0 rhs_dilate=2x1", "", PLAIN),
    "turned": ("1,9,6,2", "3,3,2,4", "1,5,4,4", "size=3x3 rhs_dilate=2x1 rhs_reversal=1x1", "", PLAIN),
    "features first": (
        "2,3,9,6", "4,3,3,3", "2,4,5,4", "size=3x3 rhs_dilate=2x1", "", "bf01_oi01->bf01",
    ),
    "batch next to the features": (
        "9,6,2,3", "3,3,3,4", "5,6,2,4", "size=3x3 pad=0_0x1_1 rhs_dilate=2x1", "", "01bf_01io->01bf",
    ),
    "grouped": (
        "1,9,5,4", "3,1,2,6", "1,9,5,6", "size=3x1 pad=3_3x0_0 rhs_dilate=3x1",
        ", feature_group_count=2", PLAIN,
    ),
    "a signal": ("2,40,3", "3,3,4", "2,24,4", "size=3 rhs_dilate=8", "", "b0f_0io->b0f"),
    "strided along another": (
        "1,9,9,2", "3,3,2,2", "1,5,4,2", "size=3x3 stride=1x2 rhs_dilate=2x1", "", PLAIN,
    ),
    "three dimensions": (
        "1,7,4,4,2", "3,2,2,2,3", "1,3,3,4,3", "size=3x2x2 pad=0_0x0_0x0_1 rhs_dilate=2x1x1", "",
        "b012f_012io->b012f",
    ),
}  # fmt: skip
DEEP = "bf16[8,64,64,2048]", "bf16[3,3,2048,256]", "bf16[8,64,64,256]"
SMALL = load_chip("v5e{vmem=512KiB}")


def _module(image: str, kernel: str, result: str, window: str, attrs: str = "") -> HloModule:
    return parse_module(
        f"""HloModule m
ENTRY main {{
  x = {image} parameter(0)
  k = {kernel} parameter(1)
  ROOT c = {result} convolution(x, k), window={{{window}}}{attrs}
}}
"""
    )


def _of_case(name: str) -> HloModule:
    image, kernel, result, window, attrs, labels = CASES[name]
    shapes = (f"f32[{image}]", f"f32[{kernel}]", f"f32[{result}]")
    return _module(*shapes, window, f"{attrs}, dim_labels={labels}")


def _made(module: HloModule, chip_name: str = "v5e") -> HloInstruction | None:
    root = module.entry.root_instruction
    return by_remainders(root, "highest", load_chip(chip_name))


@pytest.mark.parametrize("name", CASES)
def test_it_means_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convolution_remainders, "_pays", lambda *_: True)
    module = _of_case(name)
    rng = np.random.default_rng(1)
    shapes = [p.array for p in module.entry.parameters]
    inputs = [rng.integers(-4, 5, s.dims).astype(np.float32) for s in shapes]
    (before,) = evaluate(module, inputs, "highest")
    root = module.entry.root_instruction
    made = _made(module)
    assert made is not None
    replace(root, made)
    module.entry.sort()
    sort_computations(module)
    verify(module)
    (after,) = evaluate(module, inputs, "highest")
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize(
    "window",
    [
        "size=3x3 pad=1_1x1_1",
        "size=3x3 pad=1_1x4_4 rhs_dilate=1x4",
        "size=3x3 pad=18_18x18_18 rhs_dilate=18x18 lhs_dilate=1x1 stride=2x2",
    ],
    ids=["neighbours", "neighbours in rows far apart", "strided"],
)
def test_other_taps_stay(window: str) -> None:
    image, kernel, result = DEEP
    result = result if "stride" not in window else "bf16[8,32,32,256]"
    assert _made(_module(image, kernel, result, window, f", dim_labels={PLAIN}")) is None


def test_it_is_made_where_rows_would_be_read_again() -> None:
    far = "size=3x3 pad=18_18x18_18 rhs_dilate=18x18"
    assert _made(_module(*DEEP, far, f", dim_labels={PLAIN}")) is not None
    small = ("bf16[1,64,64,64]", "bf16[3,3,64,64]", "bf16[1,64,64,64]")
    assert _made(_module(*small, far, f", dim_labels={PLAIN}")) is None


def test_the_chip_computes_the_same() -> None:
    shapes = ("bf16[8,20,12,128]", "bf16[3,3,128,128]", "bf16[8,20,12,128]")
    far = "size=3x3 pad=6_6x2_2 rhs_dilate=6x2"
    module = _module(*shapes, far, f", dim_labels={PLAIN}")
    assert by_remainders(module.entry.root_instruction, "default", SMALL) is not None
    rng = np.random.default_rng(2)
    parameters = module.entry.parameters
    inputs = [rng.integers(-4, 5, p.array.dims).astype(p.array.dtype.numpy) for p in parameters]
    (expected,) = evaluate(module, inputs)
    (result,) = compile_model(print_module(module), target=SMALL)(*inputs)
    np.testing.assert_array_equal(np.asarray(result, np.float32), expected.astype(np.float32))
