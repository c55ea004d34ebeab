"""Whole models, compiled and executed: the values that JAX gave on the same inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.run_hlo import Array, compile_text, normalised_error, run_compiled, small_blocks

DATA = Path(__file__).parents[1] / "data"
MODELS = sorted(path.stem for path in DATA.glob("*_tiny.hlo"))
TOLERANCE = 2e-5


def load(name: str) -> tuple[str, list[Array], list[Array]]:
    arrays = np.load(DATA / f"{name}.npz")
    inputs = [arrays[f"in{n}"] for n in range(sum(key.startswith("in") for key in arrays))]
    outputs = [arrays[f"out{n}"] for n in range(sum(key.startswith("out") for key in arrays))]
    return (DATA / f"{name}.hlo").read_text(), inputs, outputs


def check(wanted: list[Array], found: list[Array]) -> None:
    for want, got in zip(wanted, found, strict=True):
        if got.dtype.kind in "biu":
            assert float(np.mean(want != got)) <= 0.01
        else:
            same = want.view(got.dtype) if want.dtype.kind == "V" else want
            assert normalised_error(same, got) <= TOLERANCE


@pytest.mark.parametrize("name", MODELS)
def test_model_on_the_llvm_machine(name: str) -> None:
    text, inputs, outputs = load(name)
    run = run_compiled(compile_text(text), inputs, "llvm")
    check(outputs, run.outputs)
    assert run.result.cycles > 0


@pytest.mark.parametrize("name", ["gpt2_fwd_tiny", "kmeans_tiny", "mlp_train_tiny"])
def test_model_in_many_grid_steps_without_races(name: str) -> None:
    text, inputs, outputs = load(name)
    with small_blocks(1):
        compiled = compile_text(text)
    check(outputs, run_compiled(compiled, inputs, "numpy").outputs)


def test_identical_fusions_share_a_kernel() -> None:
    text, _, _ = load("gpt2_train_tiny")
    compiled = compile_text(text)
    fusions = [i for i in compiled.module.entry if i.opcode in ("fusion", "copy")]
    assert len(compiled.program.kernels) < len(fusions)


def test_llo_can_be_asked_for_after_compilation() -> None:
    text, _, _ = load("mlp_train_tiny")
    compiled = compile_text(text)
    name = next(iter(compiled.program.kernels))
    assert compiled.llo_text(name).startswith(f'kernel "{name}"')
    assert 'kernel "main"' in compiled.llo_text()
