"""Random scatters and gathers give the evaluator's values whatever fits VMEM.

In blocks, streamed, in pieces: each plan occurs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from compiler.diagnostics import UnsupportedError
from compiler.driver import CompiledModule
from tests.support.random_scatters import Case, random_gather, random_scatter
from tests.support.run_hlo import compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

_CASES = 24


def compiled(case: Case, vmem_bytes: int) -> CompiledModule:
    chip = replace(load_chip("v5e"), vmem_bytes=vmem_bytes, hbm_bytes=1 << 40)
    return compile_text(case.text, chip=chip)


def compiled_if_rest_fits(case: Case, vmem_bytes: int) -> CompiledModule | None:
    """None where a kernel that arranges indices or updates wants more VMEM."""
    try:
        return compiled(case, vmem_bytes)
    except UnsupportedError as error:
        assert "no window" in str(error)
        assert "gather(" not in str(error)
        assert "scatter(" not in str(error)
        return None


def check(case: Case, made: CompiledModule, machine: str) -> None:
    run = run_compiled(made, case.inputs, machine)
    for want, got in zip(expected(case.text, case.inputs), run.outputs, strict=True):
        assert np.array_equal(want.astype(np.float64), got.astype(np.float64)), case.text


@pytest.mark.parametrize("seed", range(_CASES))
def test_any_dimension_numbers(seed: int) -> None:
    for make in (random_scatter, random_gather):
        case = make(seed, 6000, 12)
        check(case, compiled(case, 1 << 27), "numpy")


def test_scatters_in_little_vmem() -> None:
    """Updates and operands that must be cut: each way of doing so occurs, on both machines."""
    notes: list[str] = []
    for seed in range(_CASES):
        case = random_scatter(seed, 20000, 6, is_flat=True, has_order=False)
        made = compiled_if_rest_fits(case, 64 << 10)
        if made is None:
            continue
        check(case, made, "llvm")
        if seed % 6 == 0:
            check(case, made, "numpy")
        notes += [k.note for k in made.program.kernels.values()] + made.lowered.remarks
    assert any("scatter streamed" in note for note in notes)
    assert any(note.endswith("scatter") for note in notes)
    assert any("in pieces" in note for note in notes)


def test_gathers_in_little_vmem() -> None:
    notes: list[str] = []
    for seed in range(_CASES):
        case = random_gather(seed, 20000, 6, is_flat=True)
        made = compiled(case, 48 << 10)
        check(case, made, "llvm")
        if seed % 4 == 0:
            check(case, made, "numpy")
        notes += [k.note for k in made.program.kernels.values()] + made.lowered.remarks
    assert any("gather streamed" in note for note in notes)
    assert any(note.endswith("gather") for note in notes)
    assert any("in pieces" in note for note in notes)


@pytest.mark.parametrize("make", [random_scatter, random_gather])
def test_arrays_of_real_sizes_compile(make: Callable[..., Case]) -> None:
    """Arrays of up to 2^26 elements, on chips of any VMEM."""
    made = [
        compiled_if_rest_fits(make(seed, 1 << 26, 1000, is_flat=True), mebibytes << 20)
        for seed in range(6)
        for mebibytes in (1, 4, 16, 128)
    ]
    assert sum(m is not None for m in made) >= 22
