"""Every stage between LLO and bundles is verified where everything is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.diagnostics import KernelLimitError, VerifyError
from compiler.llo.finalize import finalize_kernel
from compiler.llo.ir import LloKernel
from compiler.llo.op_table import op_table
from compiler.llo.passes import spill
from compiler.llo.passes.pass_manager import LloPassManager
from compiler.llo.passes.pipeline import LLO_PASSES, LLO_PIPELINE, LloPass
from compiler.llo.passes.sreg_allocation import live_ranges
from compiler.llo.schedule import bundles
from compiler.llo.schedule.schedule_check import ScheduleError, check_schedule
from compiler.llo.schedule.scheduler import Schedule
from compiler.llo.walk import blocks
from tests.support.random_kernels import random_kernel
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.instruction import ROWS, Instr
from tpu_sim.isa.rows.xlu import VXPOSE_PUSH, VXPOSE_SWAP

CHIP = load_chip("v5e")


def write_twice(kernel: LloKernel, chip: Chip) -> bool:
    """A pass that breaks L2: an operation is there twice."""
    ops = next(b.ops for b in blocks(kernel.body) if any(o.row.name == "vld" for o in b.ops))
    ops.append(next(o for o in ops if o.row.name == "vld"))
    return True


def in_one_register(kernel: LloKernel, chip: Chip) -> bool:
    """A pass that establishes nothing of what it says."""
    kernel.registers = dict.fromkeys(live_ranges(kernel, op_table(chip)).first, 1)
    return True


@pytest.mark.parametrize("name", LLO_PIPELINE)
def test_a_pass_that_breaks_the_llo_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LLO_PASSES, name, replace(LLO_PASSES[name], run=write_twice))
    with pytest.raises(VerifyError, match=rf"is written twice(.|\n)*after pass '{name}'"):
        finalize_kernel(random_kernel(0, CHIP), CHIP)


def test_a_pass_that_does_not_establish_its_fact_is_named() -> None:
    broken = replace(LLO_PASSES["sreg-allocation"], run=in_one_register)
    with pytest.raises(VerifyError, match=r"sregs-assigned does not hold: s\d+ and s\d+"):
        LloPassManager(CHIP, [broken]).run(random_kernel(0, CHIP))
    idle = replace(LLO_PASSES["spill"], run=lambda kernel, chip: False)
    with pytest.raises(VerifyError, match=r"vectors-fit does not hold: block \d+"):
        LloPassManager(replace(CHIP, vregs=6), [idle]).run(random_kernel(0, CHIP))


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_pass_that_lies_about_changes_is_exposed(is_changed: bool) -> None:
    def lies(kernel: LloKernel, chip: Chip) -> bool:
        if not is_changed:
            next(blocks(kernel.body)).name = "other"
        return is_changed

    liar = LloPass("liar", "lies", lies)
    with pytest.raises(AssertionError, match="'liar' says it changed"):
        LloPassManager(CHIP, [liar]).run(random_kernel(0, CHIP))


def test_schedules_are_checked_without_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets(ops: list[Instr], *_: object) -> Schedule:
        return Schedule([], {}, {}, 0)

    monkeypatch.setattr(bundles, "known_schedule", forgets)
    with pytest.raises(ScheduleError, match="not a permutation"):
        finalize_kernel(random_kernel(0, CHIP), CHIP)
    monkeypatch.setenv("TPUC_VERIFY", "0")
    with pytest.raises(KeyError):  # later, and not by name
        finalize_kernel(random_kernel(0, CHIP), CHIP)


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
    order_of: list[list[int]] = [[0], *[[]] * 9, *([i + 1] for i in order)]
    schedule = Schedule(order_of, {0: 0}, {}, 0)
    if is_right:
        check_schedule(ops, infos, schedule, {})
    else:
        with pytest.raises(ScheduleError, match="out of order"):
            check_schedule(ops, infos, schedule, {})


def test_too_many_spill_slots_are_a_limit_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """So its fusion is split where it has more than one operation; else the kernel has a name."""
    monkeypatch.setattr(spill, "MAX_SPILL_SLOTS", 0)
    chip = replace(CHIP, vregs=6)
    kernel = random_kernel(0, chip)
    with pytest.raises(KernelLimitError, match=rf"kernel {kernel.name}: a block needs \d+ spill"):
        spill.spill_vregs(kernel, chip)
