"""Each invariant of kernel plans has a plan that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from compiler.analysis.indexing import const
from compiler.analysis.window_planner import WindowPlanner
from compiler.diagnostics import VerifyError
from compiler.hlo.parser import parse_module
from compiler.kernels.plan import KernelPlan, MatmulStage, RootStage, Scratch
from compiler.kernels.verifier import verify_plan
from compiler.passes.pipeline import run_pipeline
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")
DOT = """HloModule m
ENTRY e {
  x = f32[256,512] parameter(0)
  w = f32[512,384] parameter(1)
  d = f32[256,384] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT s = f32[256,384] negate(d)
}
"""


@pytest.fixture(scope="module")
def dot() -> KernelPlan:
    module = parse_module(DOT)
    run_pipeline(module, CHIP)
    (fusion,) = (i for i in module.entry if i.opcode == "fusion")
    return WindowPlanner(CHIP).kernel(fusion)


def made_twice(kernel: KernelPlan) -> KernelPlan:
    return replace(kernel, stages=(*kernel.stages, RootStage((0,))))


def made_by_nobody(kernel: KernelPlan) -> KernelPlan:
    return replace(kernel, stages=kernel.stages[:1])


def read_too_early(kernel: KernelPlan) -> KernelPlan:
    return replace(kernel, stages=kernel.stages[::-1])


def matmul(kernel: KernelPlan, **changes: object) -> KernelPlan:
    first, *rest = kernel.stages
    assert isinstance(first, MatmulStage)
    return replace(kernel, stages=(replace(first, **changes), *rest))  # type: ignore[arg-type]


def scratch(kernel: KernelPlan, **changes: object) -> KernelPlan:
    stage = kernel.stages[0]
    assert isinstance(stage, MatmulStage) and isinstance(stage.target, Scratch)
    return matmul(kernel, target=replace(stage.target, **changes))  # type: ignore[arg-type]


def too_many_parts(kernel: KernelPlan) -> KernelPlan:
    stage = kernel.stages[0]
    assert isinstance(stage, MatmulStage)
    left, right = stage.operands
    return matmul(kernel, operands=(replace(left, parts=left.parts * 2), right))


BROKEN: dict[str, tuple[str, Callable[[KernelPlan], KernelPlan]]] = {
    "made twice": ("K1", made_twice),
    "made by nobody": ("K1", made_by_nobody),
    "read too early": ("K2", read_too_early),
    "other rank": ("K3", lambda kernel: scratch(kernel, extent=(8,))),
    "empty": ("K3", lambda kernel: scratch(kernel, extent=(0, 128))),
    "outside": ("K3", lambda kernel: scratch(kernel, low=(const(256), const(0)))),
    "parts": ("K4", too_many_parts),
    "split": ("K5", lambda kernel: matmul(kernel, is_split=True)),
    "too large": ("K6", lambda kernel: scratch(kernel, extent=(1 << 20, 1 << 10))),
}


@pytest.mark.parametrize(("number", "broken"), BROKEN.values(), ids=BROKEN.keys())
def test_broken_plans_are_refused(
    number: str, broken: Callable[[KernelPlan], KernelPlan], dot: KernelPlan
) -> None:
    verify_plan(dot, CHIP)
    with pytest.raises(VerifyError, match=rf"error\[{number}\]"):
        verify_plan(broken(dot), CHIP)
