"""`tpuc.special` against known values, traced and by itself."""

from __future__ import annotations

import math

import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.tracing import trace
from compiler.hlo.evaluator import evaluate
from runtime import special

X = np.float32([0.1, 0.5, 0.9, 1.7, 3.2])


def run(function, *args: np.ndarray) -> np.ndarray:
    module, _, _ = trace(function, args)
    return np.asarray(evaluate(module, list(args), "highest")[0])


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("erf", [math.erf(x) for x in X]),
        ("erfc", [math.erfc(x) for x in X]),
        ("gammaln", [math.lgamma(x) for x in X]),
        ("expit", [1 / (1 + math.exp(-x)) for x in X]),
    ],
)
def test_functions_of_one_argument(name: str, want: list[float]) -> None:
    np.testing.assert_allclose(run(getattr(special, name), X), want, 3e-6, 2e-6)


def test_the_inverse_of_erf() -> None:
    values = np.float32([-0.99, -0.3, 0, 0.5, 0.999])
    back = run(lambda y: special.erf(special.erfinv(y)), values)
    np.testing.assert_allclose(back, values, 2e-6, 1e-7)


def test_derivatives_of_the_gamma_function() -> None:
    step = 1e-3
    slope = [(math.lgamma(x + step) - math.lgamma(x - step)) / (2 * step) for x in X]
    np.testing.assert_allclose(run(special.digamma, X), slope, 1e-3, 1e-4)
    want = [math.pi**2 / 6, math.pi**2 / 6 - 1]
    np.testing.assert_allclose(run(lambda x: special.zeta(2.0, x), np.float32([1, 2])), want, 1e-5)


def test_integers_count_as_floats_and_complex_numbers_are_refused() -> None:
    assert run(special.erf, np.int32([0, 1])).dtype == np.float32
    with pytest.raises(CompileError, match="erf of complex64"):
        run(special.erf, np.complex64([1j]))


def test_on_the_chip() -> None:
    assert abs(float(special.erf(np.float32(0.5))) - math.erf(0.5)) < 1e-6
