"""Every stage between LLO and bundles is verified where everything is."""

from __future__ import annotations

import pytest

from compiler.backend import finalize
from compiler.backend.hazards import ScheduleError, check_schedule
from compiler.backend.op_table import op_table
from compiler.backend.scheduler import Schedule
from compiler.diagnostics import VerifyError
from compiler.llo.ir import LloKernel, blocks
from tests.support.random_kernels import random_kernel
from tpu_sim.isa.chips import load_chip
from tpu_sim.isa.instruction import ROWS, Instr
from tpu_sim.isa.rows.xlu import VXPOSE_PUSH, VXPOSE_SWAP

CHIP = load_chip("v5e")


def write_twice(kernel: LloKernel, *_: object) -> int:
    """A stage that breaks L2: an operation is there twice."""
    ops = next(b.ops for b in blocks(kernel.body) if any(o.row.name == "vld" for o in b.ops))
    ops.append(next(o for o in ops if o.row.name == "vld"))
    return 0


@pytest.mark.parametrize(
    ("stage", "what"),
    [
        ("remove_dead_code", "dead code removal"),
        ("unroll_parallel_loops", "unrolling"),
        ("spill_vregs", "spilling"),
    ],
)
def test_a_stage_that_breaks_the_llo_is_named(
    stage: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finalize, stage, write_twice)
    with pytest.raises(VerifyError, match=rf"is written twice(.|\n)*after {what}"):
        finalize.finalize_kernel(random_kernel(0, CHIP), CHIP)


def test_schedules_are_checked_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(ops: list[Instr], *_: object) -> Schedule:
        return Schedule([], {}, {}, 0)

    monkeypatch.setattr(finalize, "schedule_block", forgets)
    with pytest.raises(ScheduleError, match="not a permutation"):
        finalize.finalize_kernel(random_kernel(0, CHIP), CHIP)
    monkeypatch.setenv("TPUC_VERIFY", "0")
    with pytest.raises(KeyError):  # later, and not by name
        finalize.finalize_kernel(random_kernel(0, CHIP), CHIP)


@pytest.mark.parametrize(
    ("order", "is_right"),
    [
        ((0, 1, 2, 3), True),  # two units take no notice of each other
        ((2, 3, 0, 1), True),
        ((1, 0, 2, 3), False),
        ((0, 1, 3, 2), False),
    ],
)
def test_a_transpose_unit_keeps_its_order(order: tuple[int, ...], is_right: bool) -> None:
    ops = [Instr(ROWS["vlane"], (0,))]
    for unit in (0, 1):
        ops += [Instr(VXPOSE_PUSH, (unit, 0, 0)), Instr(VXPOSE_SWAP, (unit,))]
    infos = [op_table(CHIP)[o.row.name] for o in ops]
    bundles: list[list[int]] = [[0], *[[]] * 9, *([i + 1] for i in order)]
    schedule = Schedule(bundles, {0: 0}, {}, 0)
    if is_right:
        check_schedule(ops, infos, schedule, {})
    else:
        with pytest.raises(ScheduleError, match="out of order"):
            check_schedule(ops, infos, schedule, {})
