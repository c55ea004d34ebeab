"""`tpuc.random`: the generator's published answers, JAX's numbers for the same keys, distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.random import threefry
from compiler.frontends.numpy.tracing import trace
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from tpuc import random

BF16 = np.dtype(ml_dtypes.bfloat16)


def run(function: Callable[..., Any], *args: Any) -> Any:
    """The traced function, evaluated."""
    module, _, _ = trace(function, args)
    return evaluate(parse_module(print_module(module)), list(map(np.asarray, args)), "highest")[0]


@pytest.mark.parametrize(
    ("key", "counter", "want"),
    [  # the known answers of Random123 1.09, threefry2x32 of 20 rounds
        ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
        ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
    ],
)
def test_known_answers(key: Any, counter: Any, want: Any) -> None:
    def words(k: Any, c: Any) -> Any:
        return np.stack(threefry(k, c[0], c[1]))

    assert run(words, np.uint32(key), np.uint32(counter)).tolist() == list(want)


def of_key(name: str, *args: Any, **options: Any) -> Callable[[Any], Any]:
    return lambda key: getattr(random, name)(key, *args, **options)


WEIGHTS = np.float32([[0.1, 2.0, -1.0], [0.0, 0.0, 3.0]])
SAME_AS_JAX = {
    "split": of_key("split", 5),
    "split of a shape": of_key("split", (2, 3)),
    "fold_in": of_key("fold_in", 77),
    "bits": of_key("bits", (3, 5, 7)),
    "bits of 16": of_key("bits", (9,), np.uint16),
    "bits of 8": of_key("bits", (130,), np.uint8),
    "scalar": of_key("uniform"),
    "uniform": of_key("uniform", (4, 33), np.float32, -2.0, 5.0),
    "uniform f16": of_key("uniform", (50,), np.float16),
    "uniform bf16": of_key("uniform", (50,), BF16),
    "normal": of_key("normal", (300,)),
    "truncated_normal": of_key("truncated_normal", -1.0, 2.0, (100,)),
    "randint": of_key("randint", (200,), -7, 1000),
    "randint u8": of_key("randint", (200,), 3, 200, np.uint8),
    "randint u8, all": of_key("randint", (200,), 0, 256, np.uint8),
    "randint, empty": of_key("randint", (5,), 3, 3),
    "bernoulli": of_key("bernoulli", 0.3, (64,)),
    "gumbel": of_key("gumbel", (64,)),
    "exponential": of_key("exponential", (64,)),
    "laplace": of_key("laplace", (64,)),
    "categorical": of_key("categorical", WEIGHTS),
    "categorical, shape": of_key("categorical", WEIGHTS, -1, (4, 2)),
    "permutation": of_key("permutation", 100),
    "permutation of rows": of_key("permutation", np.arange(24, dtype=np.int32).reshape(8, 3)),
    "cauchy": of_key("cauchy", (40,)),
    "logistic": of_key("logistic", (40,)),
    "logistic bf16": of_key("logistic", (40,), BF16),
    "maxwell": of_key("maxwell", (7, 5)),
    "rademacher": of_key("rademacher", (40,)),
    "pareto": of_key("pareto", np.float32([0.5, 2.0, 7.0]), (6, 3)),
    "rayleigh": of_key("rayleigh", np.float32([0.5, 2.0])),
    "lognormal": of_key("lognormal", np.float32(0.7), (30,)),
    "weibull_min": of_key("weibull_min", 2.0, 1.5, (30,)),
    "triangular": of_key("triangular", -1.0, np.float32([0.0, 0.5, 2.0]), 3.0, (9, 3)),
    "geometric": of_key("geometric", np.float32([0.1, 0.5, 0.9]), (20, 3)),
    "gamma": of_key("gamma", np.float32([0.2, 0.9, 1.0, 3.5, 80.0]), (20, 5)),
    "gamma scalar": of_key("gamma", np.float32(0.4)),
    "loggamma": of_key("loggamma", np.float32([0.001, 0.9, 4.0]), (10, 3)),
    "beta": of_key("beta", np.float32([0.5, 2.0]), np.float32(3.0), (10, 2)),
    "dirichlet": of_key("dirichlet", np.float32([[0.5, 2.0, 1.0], [3.0, 3.0, 3.0]])),
    "dirichlet, shape": of_key("dirichlet", np.float32([0.5, 2.0, 1.0]), (4,)),
    "t": of_key("t", np.float32([1.0, 5.0]), (10, 2)),
    "chisquare": of_key("chisquare", np.float32([1.0, 5.0]), (10, 2)),
    "poisson": of_key("poisson", np.float32([0.0, 0.3, 4.0, 9.9, 10.0, 300.0]), (20, 6)),
    "choice": of_key("choice", 10, (20,)),
    "choice without": of_key("choice", 10, (6,), False),
}


@pytest.mark.parametrize("name", SAME_AS_JAX)
def test_numbers_are_those_of_jax(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = pytest.importorskip("jax")
    function = SAME_AS_JAX[name]
    got = run(function, np.uint32([0x1234, 0x9ABCDEF0]))
    monkeypatch.setattr(__import__(__name__, fromlist=["random"]), "random", jax.random)
    with jax.default_device(jax.devices("cpu")[0]):
        key = jax.random.wrap_key_data(np.uint32([0x1234, 0x9ABCDEF0]))
        want = function(key)
        is_key = jax.dtypes.issubdtype(want.dtype, jax.dtypes.prng_key)
        want = np.asarray(jax.random.key_data(want) if is_key else want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype.kind in "iub":
        assert (got == want).all()
    else:
        is_exact = name in ("scalar", "uniform f16", "uniform bf16")
        tolerance = 0 if is_exact else 3e-6
        np.testing.assert_allclose(
            got.astype(np.float64), want.astype(np.float64), tolerance, tolerance
        )


def test_a_key_of_a_seed_on_the_chip() -> None:
    assert np.asarray(random.key(42)).tolist() == [0, 42]
    assert np.asarray(random.key(-1)).tolist() == [0, 0xFFFFFFFF]
    keys = np.asarray(random.split(random.key(0)))
    assert keys.tolist() == [[1797259609, 2579123966], [928981903, 3453687069]]
    assert 0 <= float(random.uniform(keys[0])) < 1


def test_distributions() -> None:
    drawn = run(of_key("normal", (20_000,)), np.uint32([1, 2]))
    assert abs(drawn.mean()) < 0.03 and abs(drawn.std() - 1) < 0.02
    assert sorted(run(of_key("permutation", 500), np.uint32([1, 2])).tolist()) == list(range(500))


def test_what_is_no_key_or_type_is_refused() -> None:
    with pytest.raises(CompileError, match=r"is no key: want uint32\[2\]"):
        run(of_key("uniform"), np.float32([1, 2]))
    with pytest.raises(CompileError, match="want float32, float16 or bfloat16"):
        run(of_key("normal", (3,), np.int32), np.uint32([1, 2]))
    with pytest.raises(CompileError, match="do not broadcast to shape"):
        run(of_key("gamma", np.ones(5, np.float32), (3,)), np.uint32([1, 2]))
    with pytest.raises(CompileError, match=r"shape \[5\] and \[3\] do not broadcast$"):
        run(of_key("beta", np.ones(5, np.float32), np.ones(3, np.float32)), np.uint32([1, 2]))
    with pytest.raises(CompileError, match="alpha is a scalar"):
        run(of_key("dirichlet", np.float32(1)), np.uint32([1, 2]))
    with pytest.raises(CompileError, match="does not fit 32 bits"):
        random.key(1 << 40)
    with pytest.raises(CompileError, match="20 of 10 elements without putting back"):
        run(of_key("choice", 10, (20,), False), np.uint32([1, 2]))
