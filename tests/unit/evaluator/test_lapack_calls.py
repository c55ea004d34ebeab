"""LAPACK calls: the evaluator against the expansions that the compiler makes of them."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tests.unit.passes.expanders.test_lapack import PASSES, Array, adjoint, call, matrix
from tpu_sim.isa.chips import load_chip

CODES = {c: f" = {ord(c)} : ui8" for c in "LUNTCAS"}


def both(text: str, inputs: list[Array]) -> tuple[list[Array], list[Array]]:
    direct = [np.asarray(x) for x in evaluate(parse_module(text), inputs)]
    module = parse_module(text)
    run_pipeline(module, load_chip("v5e"), passes=PASSES)
    return direct, [np.asarray(x) for x in evaluate(module, inputs, "highest")]


def assert_close(text: str, inputs: list[Array], *, signs: tuple[int, ...] = ()) -> None:
    """Results in `signs` may differ by the signs of their vectors."""
    for number, (a, b) in enumerate(zip(*both(text, inputs), strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape
        if number in signs:
            a, b = np.abs(a), np.abs(b)
        np.testing.assert_allclose(a, b, atol=5e-5, rtol=5e-5)


@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_factors_and_solutions(dtype: str, uplo: str) -> None:
    letter = "s" if dtype == "f32" else "c"
    x = matrix(dtype, 2, 5, 5)
    square = (x @ adjoint(x) + np.eye(5)).astype(x.dtype)
    shape, side = f"{dtype}[2,5,5]", f"uplo{CODES[uplo]}"
    assert_close(call(f"{letter}potrf", [square], [shape, "s32[2]"], side), [square])
    assert_close(call(f"{letter}getrf", [x], [shape, "s32[2,5]", "s32[2]"]), [x])
    assert_close(call(f"{letter}geqrf", [x], [shape, f"{dtype}[2,5]"]), [x])
    for trans in "NTC":
        config = f"side{CODES['L']}, {side}, diag{CODES['N']}, trans_x{CODES[trans]}"
        assert_close(call(f"{letter}trsm", [square, x], [shape], config), [square, x])
    values = [shape, "f32[2,5]", "s32[2]"]
    name = "ssyevd" if dtype == "f32" else "cheevd"
    assert_close(call(name, [square], values, f"mode = 86 : ui8, {side}"), [square], signs=(0,))


@pytest.mark.parametrize("mode", "ASN")
def test_singular_values(mode: str) -> None:
    x = matrix("f32", 4, 3)
    n = 4 if mode == "A" else 3
    shapes = ["f32[4,3]", "f32[3]", f"f32[4,{n}]", "f32[3,3]", "s32[]"]
    text = call("sgesdd", [x], shapes, f"mode{CODES[mode]}")
    if mode != "N":
        assert_close(text, [x], signs=(2, 3))
        return
    direct, expansion = both(text, [x])
    np.testing.assert_allclose(direct[1], expansion[1], rtol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_factors_of_what_is_not_finite_are_nan(value: float) -> None:
    x = matrix("f32", 2, 3, 3)
    x = x + adjoint(x)
    x[1, 0, 2] = x[1, 2, 0] = value
    shapes = ["f32[2,3,3]", "f32[2,3]", "f32[2,3,3]", "f32[2,3,3]", "s32[2]"]
    for name, results, at in (("ssyevd", [*shapes[:2], "s32[2]"], 1), ("sgesdd", shapes, 1)):
        config = f"mode{CODES['A']}, uplo{CODES['L']}"
        found = both(call(name, [x], results, config), [x])
        for values in found:
            assert np.isfinite(values[at][0]).all()
            assert np.isnan(values[at][1]).all()
