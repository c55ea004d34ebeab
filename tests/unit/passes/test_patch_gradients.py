"""Gradients of kernels over disjoint patches are products of the patches."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.passes.context import PassContext
from compiler.passes.convolution_canonicalizer import canonicalize_convolutions
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
ENTRY main {{
  x = f32[{image}] parameter(0)
  g = f32[{kernel}] parameter(1)
  ROOT c = f32[{result}] convolution(x, g), window={{{window}}}, dim_labels={labels}
}}
"""
TWO = "f01b_i01o->01bf"


@pytest.mark.parametrize(
    ("case", "is_product"),
    [
        (("2,12,8,3", "2,3,2,5", "4,4,3,5", "size=3x2 rhs_dilate=4x4", TWO), True),
        (("2,13,9,3", "2,3,2,5", "4,3,3,5", "size=3x2 pad=0_-1x0_-2 rhs_dilate=4x4", TWO), True),
        (("2,12,8,3", "2,3,1,5", "4,8,3,5", "size=3x1 rhs_dilate=4x1", TWO), True),
        (("2,12,8,3", "2,3,2,5", "5,4,3,5", "size=3x2 pad=0_1x0_0 rhs_dilate=4x4", TWO), False),
        (("2,12,8,3", "2,12,8,5", "1,1,3,5", "size=12x8", TWO), False),
        (("2,3,12", "2,5,3", "4,3,5", "size=3 rhs_dilate=4", "fb0_io0->0bf"), True),
    ],
    ids=["square", "remainder", "rows", "padded", "one-position", "line"],
)
def test_a_sum_over_patches_means_the_same(
    case: tuple[str, str, str, str, str], is_product: bool
) -> None:
    image, kernel, result, window, labels = case
    text = TEXT.format(image=image, kernel=kernel, result=result, window=window, labels=labels)
    module, made = parse_module(text), parse_module(text)
    canonicalize_convolutions(made, PassContext(load_chip("v5e")))
    verify(made)
    assert any(i.opcode == "dot" for i in made.entry) == is_product
    rng = np.random.default_rng(5)
    inputs = [rng.integers(-3, 4, p.array.dims).astype("float32") for p in module.entry.parameters]
    (wanted,), (found,) = (evaluate(m, inputs, "highest") for m in (module, made))
    np.testing.assert_array_equal(found, wanted)
