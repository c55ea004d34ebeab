"""The step that JAX exports without a device trains on a slice as on JAX's CPU."""

from __future__ import annotations

import runpy
from pathlib import Path

import jax
import numpy as np
import pytest

import tpuc

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "jax" / "sharded_training_step.py"


@pytest.mark.parametrize(
    ("copies", "target"), [(1, "v5e:2x2"), (2, "v5e:4x2")], ids=["one", "copies"]
)
def test_a_step_gives_the_loss_and_the_weights_of_jax(copies: int, target: str) -> None:
    step = runpy.run_path(str(SCRIPT))
    config, rng = step["CONFIGS"]["tiny"], np.random.default_rng(0)
    dims = step["weights"](config)
    state = {
        name: (np.ones if "norm" in name else lambda d: rng.normal(0, 0.1, d))(shape)
        for name, (shape, _) in dims.items()
    }
    weights = {name: value.astype(np.float32) for name, value in state.items()}
    zeros = {name: np.zeros_like(value) for name, value in weights.items()}
    tokens = rng.integers(0, config.vocabulary, (8, config.sequence + 1)).astype(np.int32)
    arguments = (weights, zeros, zeros, tokens)
    with jax.default_device(jax.devices("cpu")[0]):
        run = jax.jit(lambda *args: step["step"](config, lambda x, *_: x, *args))
        want = [np.asarray(leaf) for leaf in jax.tree.leaves(run(*arguments))]
    program = tpuc.compile(step["exported"]("tiny", 2, 2, 8, copies), target=target)
    found = program(*jax.tree.leaves(arguments))
    assert {"all-gather", "reduce-scatter"} <= {one["kind"] for one in program.collectives}
    assert float(found[-1]) == pytest.approx(float(want[-1]), rel=1e-3)
    moments = slice(
        len(weights), 2 * len(weights)
    )  # a step of Adam keeps the sign of a gradient alone
    for one, right in zip(found[moments], want[moments], strict=True):
        assert np.linalg.norm(np.asarray(one) - right) <= 0.05 * np.linalg.norm(right)
