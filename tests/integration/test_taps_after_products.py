"""Convolutions of few features out, whose taps come after the product: values, beside the evaluator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tpuc
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.convolution_estimate import adds_planes, sizes_of
from tpu_sim.isa.chips import load_chip

NUMPY = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
CASES = {
    # image, kernel, window, labels, result, type
    "padded": ("2,40,130,64", "3,3,64,3", "3x3 pad=1_1x1_1", "b01f_01io->b01f", "2,40,130,3", "f32"),
    "dilated, padded unequally": (
        "2,40,100,64", "3,3,64,2", "3x3 pad=2_1x0_3 rhs_dilate=2x1", "b01f_01io->b01f", "2,39,101,2", "bf16",
    ),
    "reversed, features first": (
        "4,64,24,150", "2,64,3,5", "3x5 pad=1_1x2_2 rhs_reversal=1x0", "bf01_oi01->bf01", "4,2,24,150", "f32",
    ),
    "three dimensions, cut": (
        "2,6,20,130,32", "3,3,1,32,3", "3x3x1 pad=1_1x-1_2x0_0", "b012f_012io->b012f", "2,6,19,130,3", "f32",
    ),
    "one feature": (
        "16,30,128,64", "3,3,64,1", "3x3 pad=1_1x1_1", "b01f_01io->b01f", "16,30,128,1", "f16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    image, kernel, window, labels, result, dtype = CASES[name]
    text = f"""HloModule m
ENTRY e {{
  x = {dtype}[{image}] parameter(0)
  k = {dtype}[{kernel}] parameter(1)
  ROOT r = {dtype}[{result}] convolution(x, k), window={{size={window}}}, dim_labels={labels}
}}
"""
    conv = parse_module(text).entry.root_instruction
    assert adds_planes(sizes_of(conv, "default"), load_chip("v5e"))
    rng = np.random.default_rng(1)
    args = [
        rng.integers(-2, 3, tuple(map(int, dims.split(",")))).astype(NUMPY[dtype])
        for dims in (image, kernel)
    ]
    (got,) = tpuc.compile(text)(*args)
    (want,) = evaluate(parse_module(text), args)
    np.testing.assert_array_equal(np.asarray(got), want)
