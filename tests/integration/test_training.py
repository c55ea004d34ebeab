"""The training examples learn on the emulated chip; their steps are what the evaluator says."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.training import picture
from compiler.frontends.numpy.pytree import flatten
from compiler.frontends.numpy.tracing import trace
from compiler.hlo.evaluator import evaluate

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "training"


def example(name: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(FOLDER)
    return runpy.run_path(str(FOLDER / f"{name}.py"))


def test_the_perceptron_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, cycles = example("mlp", monkeypatch)["main"](30)
    assert losses[0] > 1 and losses[-1] < 0.3
    assert losses[20] < losses[10] < losses[5]
    assert cycles > 10_000


def test_the_transformer_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    losses, cycles = example("transformer", monkeypatch)["main"](10)
    assert losses[0] > 3.5 and losses[-1] < losses[0] - 0.8
    assert cycles > 100_000


def test_a_step_of_the_perceptron_is_the_evaluators(monkeypatch: pytest.MonkeyPatch) -> None:
    found = example("mlp", monkeypatch)
    params = found["parameters"]()
    args = (params, found["adam"].start(params), *found["spirals"]())
    module, _, _ = trace(found["step"].function, args)
    *want, loss = evaluate(module, [np.asarray(leaf) for leaf in flatten(args)[0]])
    results, _ = flatten(found["step"](*args))
    np.testing.assert_allclose(results[-1], loss, rtol=1e-3)
    for got, right in zip(results[:6], want[:6], strict=True):
        # Adam moves every weight by about the rate, up or down: few are at its edge.
        assert np.mean(np.abs(np.asarray(got) - right) > 1e-3) < 0.02


def test_the_picture_holds_all_steps() -> None:
    text = picture({"mlp": [2.0, 1.0, 0.1], "transformer": [4.0, 3.0, 2.0]})
    assert text.count("<polyline") == 2 and text.endswith("</svg>\n")
