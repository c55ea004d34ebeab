"""A kernel's profile is what a machine counts: the same cycles for the same causes, in the same bundles."""

from __future__ import annotations

import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from runtime.api import compile
from runtime.report import Traced
from tpu_sim.interp.numpy_lanes import NumpyLanes
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.instruction import ROWS, Slot
from tpu_sim.isa.program import HBM
from tpu_sim.machine.int_lanes import IntLanes
from tpu_sim.machine.kernel_profile import MOST_CYCLES, KernelProfile, profile_kernel

ROOT = Path(__file__).resolve().parents[3]
MODELS = (
    "tests/data/gpt2_fwd_tiny.hlo", "tests/data/kmeans_tiny.hlo", "tests/data/lstm_train_tiny.hlo",
    "tests/data/heat_stencil_tiny.hlo", "examples/mlp.hlo",
)  # fmt: skip
EDGES = [0, 1, 2, 31, 32, 33, 128, 0x3F800000, 0xBF800000, 0x4F000000, 0x7F7FFFFF, 0x7F800000,
         0xFF800000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x40490FDB]  # fmt: skip


@cache
def traced(model: str) -> Traced:
    report = compile(ROOT / model).estimate()
    assert report.traced is not None
    return report.traced


@cache
def profiles(model: str) -> dict[str, KernelProfile]:
    program, chip, _ = traced(model)
    return {name: profile_kernel(kernel, chip) for name, kernel in program.kernels.items()}


@pytest.mark.parametrize("model", MODELS)
def test_a_call_takes_what_the_machine_says_for_the_same_causes(model: str) -> None:
    _, _, result = traced(model)
    found = profiles(model)
    assert result.kernels
    for run in result.kernels:
        profile = found[run.name]
        assert profile.is_whole
        assert profile.cycles == run.cycles, run.name
        assert [profile.causes.get(cause, 0) for cause in Cause] == list(run.causes), run.name


@pytest.mark.parametrize("model", MODELS)
def test_bundles_and_intervals_account_for_the_call(model: str) -> None:
    program, chip, result = traced(model)
    for run in result.kernels:
        profile, kernel = profiles(model)[run.name], program.kernels[run.name]
        issued = sum(use.runs for use in profile.bundles)
        stalled = sum(sum(use.stalls.values()) for use in profile.bundles)
        overhead = profile.cycles - issued - stalled - chip.call_overhead_cycles
        assert overhead >= 0 and overhead % chip.loop_overhead_cycles == 0
        moved = 0
        for span in profile.transfers:
            assert 0 <= span.issue <= span.start < span.end <= span.done <= profile.cycles
            descriptor = kernel.descriptors[span.descriptor]
            moved += span.size * (descriptor.src_space, descriptor.dst_space).count(HBM)
        assert moved == run.hbm_bytes
        engine = sorted((span.start, span.end) for span in profile.transfers)
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(engine))
        waited = sum(span.end - span.start for span in profile.waits)
        assert waited >= run.dma_wait_cycles
        for spans in profile.bursts.values():
            assert all(s.end > s.start for s in spans)
            assert all(a.end <= b.start for a, b in itertools.pairwise(spans))
        assert sum(s.end - s.start for spans in profile.bursts.values() for s in spans) >= (
            0.9 * run.mxu_busy_cycles
        )


def test_it_stops_when_it_was_asked_to() -> None:
    program, chip, result = traced("examples/mlp.hlo")
    longest = max(result.kernels, key=lambda run: run.cycles)
    whole = longest.cycles
    assert 10_000 < whole < MOST_CYCLES
    part = profile_kernel(program.kernels[longest.name], chip, most_cycles=whole // 2)
    assert not part.is_whole
    assert whole // 2 < part.cycles < whole
    assert part.steps == profiles("examples/mlp.hlo")[longest.name].steps[: len(part.steps)]


@pytest.mark.parametrize(
    "name", sorted(n for n, r in ROWS.items() if r.slot is Slot.SCALAR and not r.is_state)
)
def test_scalar_instructions_mean_the_same_as_on_arrays(name: str) -> None:
    row = ROWS[name]
    sources = list(row.operands[1:])
    few = EDGES if len(sources) < 3 else EDGES[::4]
    grids = np.meshgrid(*[np.array(few, np.uint32)] * len(sources), indexing="ij")
    values = [grid.reshape(-1) for grid in grids]
    immediates = [o.kind.value == "i32" for o in sources]
    for case in zip(*[v.tolist() for v in values], strict=True):
        whole = [
            v - (1 << 32) if im and v >> 31 else v for v, im in zip(case, immediates, strict=True)
        ]
        arrays = [
            v if im else np.array([v], np.uint32) for v, im in zip(whole, immediates, strict=True)
        ]
        with np.errstate(all="ignore"):
            wanted = int(np.asarray(ROWS[name].does(NumpyLanes((1,)), *arrays)).reshape(-1)[0])
        assert ROWS[name].does(IntLanes(), *whole) == wanted, (name, case)
