"""The buffer check finds what would be overwritten, and nothing it lets through is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.analysis.buffer_assignment import BufferAssignment, assign_buffers
from compiler.analysis.buffer_check import check_buffers
from compiler.analysis.window_planner import WindowPlanner
from compiler.backend.kernel_options import KernelOptions
from compiler.backend.lower_module import lower_module
from compiler.diagnostics import VerifyError
from compiler.driver import CompiledModule
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.parser import parse_module
from compiler.passes.control_unsharing import unshare
from compiler.passes.pipeline import PIPELINE, run_pipeline
from tests.support.module_checks import inputs_for
from tests.support.random_control import control_module
from tests.support.run_hlo import expected, run_compiled
from tpu_sim.isa.chips import load_chip

CHIP = load_chip("v5e")
WITHOUT_COPIES = tuple(name for name in PIPELINE if name != "copy-insertion")
TEXT = """HloModule m
ENTRY e {
  x = f32[64,128] parameter(0)
  y = f32[64,128] reverse(x), dimensions={0}
  z = f32[64,128] reverse(y), dimensions={1}
  ROOT t = (f32[64,128], f32[64,128]) tuple(y, z)
}
"""


def compiled(text: str, passes: tuple[str, ...] = PIPELINE) -> tuple[HloModule, BufferAssignment]:
    module = parse_module(text)
    run_pipeline(module, CHIP, passes=passes, precision="highest")
    unshare(module)
    return module, assign_buffers(module, CHIP)


def moved(
    buffers: BufferAssignment, instr: HloInstruction, onto: HloInstruction, by: int = 0
) -> None:
    """Put one instruction's array where another's lies, or nearly."""
    number, place = buffers.slots[instr, 0], buffers.of(onto)
    allocation = replace(buffers.allocations[number], offset=place.offset + by)
    buffers.allocations[number] = allocation


def check(module: HloModule, buffers: BufferAssignment) -> None:
    check_buffers(module, buffers, WindowPlanner(CHIP, "highest"))


def test_a_result_over_what_the_kernel_still_reads() -> None:
    module, buffers = compiled(TEXT)
    check(module, buffers)
    y, z = module.entry.root_instruction.operands
    moved(buffers, z, y)
    with pytest.raises(VerifyError, match=r"B2.*writes over its operand"):
        check(module, buffers)


def test_a_part_of_a_value_that_is_read_later() -> None:
    module, buffers = compiled(TEXT.replace("reverse(y)", "reverse(x)"))
    check(module, buffers)
    y, z = module.entry.root_instruction.operands
    moved(buffers, z, y, 512)
    with pytest.raises(VerifyError, match=r"B1.*the caller needs"):
        check(module, buffers)


def test_a_parameter_that_is_not_donated() -> None:
    module, buffers = compiled(TEXT)
    z = module.entry.root_instruction.operands[1]
    moved(buffers, z, module.entry.parameters[0])
    with pytest.raises(VerifyError, match=r"B3.*the next run needs"):
        check(module, buffers)


def is_caught(module: HloModule, buffers: BufferAssignment) -> bool:
    try:
        check(module, buffers)
    except VerifyError:
        return True
    return False


def test_without_copies_what_passes_is_right_and_what_is_wrong_is_caught() -> None:
    caught = 0
    for seed in range(24):
        text = control_module(seed)
        if "s64" in text:  # the host sees other arrays than the program has
            continue
        inputs = inputs_for(text, seed)
        module, buffers = compiled(text, WITHOUT_COPIES)
        if is_caught(module, buffers):
            caught += 1
            continue
        lowered = lower_module(module, buffers, CHIP, KernelOptions("highest"))
        run = run_compiled(CompiledModule(lowered.program, module, buffers, lowered, {}), inputs)
        for want, got in zip(expected(text, inputs), run.outputs, strict=True):
            np.testing.assert_array_equal(got, want)
    assert caught > 3
