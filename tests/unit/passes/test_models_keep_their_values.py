"""The whole pipeline keeps what small models compute, and their buffers are never clobbered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from compiler.analysis.buffer_assignment import assign_buffers
from compiler.analysis.buffer_check import check_buffers
from compiler.analysis.window_planner import WindowPlanner
from compiler.hlo.evaluator import evaluate
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import PIPELINE, run_pipeline
from tpu_sim.isa.chips import load_chip

DATA = Path(__file__).parents[2] / "data"
MODELS = (
    "cg_while_tiny",
    "gpt2_fwd_tiny",
    "gpt2_train_tiny",
    "heat_stencil_tiny",
    "kmeans_tiny",
    "llama_fwd_scan_tiny",
    "lstm_train_tiny",
    "mandelbrot_while_tiny",
    "mlp_train_tiny",
)
TOLERANCE = 2e-6  # of the largest element: f32 sums in another order


def _load(name: str) -> tuple[HloModule, list[npt.NDArray[np.generic]]]:
    module = parse_module((DATA / f"{name}.hlo").read_text(), f"{name}.hlo")
    stored = np.load(DATA / f"{name}.npz")
    return module, [stored[f"in{i}"] for i in range(len(module.entry.parameters))]


def _assert_close(
    found: list[npt.NDArray[np.generic]], wanted: list[npt.NDArray[np.generic]]
) -> None:
    for a, b in zip(found, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        x, y = a.astype(np.float64), b.astype(np.float64)
        scale = float(np.abs(y).max(initial=0.0)) + 1e-30
        np.testing.assert_allclose(x, y, rtol=0, atol=TOLERANCE * scale)


@pytest.mark.parametrize("name", MODELS)
def test_pipeline_keeps_the_values_of(name: str) -> None:
    module, args = _load(name)
    wanted = evaluate(module, args, "highest")
    run_pipeline(module, load_chip("v5e"))
    _assert_close(evaluate(module, args, "highest"), wanted)


@pytest.mark.parametrize("name", MODELS)
def test_no_buffer_is_overwritten_early_in(name: str) -> None:
    module, _ = _load(name)
    chip = load_chip("v5e")
    run_pipeline(module, chip)
    check_buffers(module, assign_buffers(module, chip), WindowPlanner(chip))


@pytest.mark.parametrize("name", ("llama_fwd_scan_tiny", "lstm_train_tiny"))
def test_unfused_pipeline_keeps_the_values_of(name: str) -> None:
    module, args = _load(name)
    wanted = evaluate(module, args, "highest")
    run_pipeline(module, load_chip("v5e"), passes=[p for p in PIPELINE if p != "fusion"])
    _assert_close(evaluate(module, args, "highest"), wanted)


def test_a_layer_norm_and_its_residual_are_one_kernel_with_their_dot() -> None:
    module, _ = _load("gpt2_fwd_tiny")
    run_pipeline(module, load_chip("v5e"))
    fusions = [i for i in module.entry if i.opcode == "fusion"]
    assert len(fusions) <= 20, [f.name for f in fusions]
