"""Products of constants are folded at the precision of the compilation, or their own."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tpu_sim.isa.chips import load_chip

PRODUCTS = {
    "dot": "f32[2,2] dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "convolution": "f32[2,2] convolution(a, b), dim_labels=bf_io->bf",
}


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("stated", ["", ", operand_precision={highest,highest}"])
@pytest.mark.parametrize("precision", ["default", "high", "highest"])
def test_folded_products(product: str, stated: str, precision: str) -> None:
    text = f"""HloModule m
ENTRY e {{
  a = f32[2,2] constant({{{{1.001, 2.003}}, {{0.3333333, 0.1}}}})
  b = f32[2,2] constant({{{{1.001, 2.003}}, {{0.3333333, 0.1}}}})
  ROOT r = {PRODUCTS[product]}{stated}
}}
"""
    (want,) = evaluate(parse_module(text), [], precision)
    module = parse_module(text)
    run_pipeline(module, load_chip("v5e"), passes=["constant-folding"], precision=precision)
    root = module.entry.root_instruction
    assert root.opcode == "constant"
    np.testing.assert_array_equal(root.attrs["literal"], want)
    exact = np.array([[1.001, 2.003], [0.3333333, 0.1]]) @ [[1.001, 2.003], [0.3333333, 0.1]]
    is_exact = stated or precision == "highest"
    assert np.allclose(np.asarray(root.attrs["literal"]), exact, rtol=1e-6) == bool(is_exact) or (
        precision == "high"
    )
