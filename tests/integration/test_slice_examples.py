"""The examples of slices run and agree with NumPy, by the collectives that their texts promise."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "slice"

KINDS = {
    "data_parallel": {"all-reduce": 2},
    "tensor_parallel": {"all-reduce": 2},
    "fsdp": {"all-gather": 3, "reduce-scatter": 3},
    "pipeline": {"collective-permute": 8, "all-to-all": 6, "all-gather": 1},
    "expert_parallel": {"all-to-all": 2},
}


def test_every_example_is_here() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(KINDS)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_example(name: str) -> None:
    found, want, program = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]("v5e:2x2")
    assert len(found) == len(want)
    for one, right in zip(found, want, strict=True):
        np.testing.assert_allclose(np.asarray(one), right, rtol=1e-5, atol=1e-5)
    kinds = [collective["kind"] for collective in program.collectives]
    assert {kind: kinds.count(kind) for kind in kinds} == KINDS[name]
