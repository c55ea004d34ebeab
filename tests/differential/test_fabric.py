"""What a transfer costs is the fabric's: both machines ask it, and a translation holds none of it."""

from __future__ import annotations

import pytest

from tests.support.isa_programs import (
    COPIES,
    HBM_BYTES,
    LOAD_X,
    TWO_WINDOWS,
    V5E,
    kernel_program,
    kernel_text,
    program_text,
)
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.assembly_parser import parse_program
from tpu_sim.isa.checker import check_program
from tpu_sim.isa.container import dump_program, load_program
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.timing import DmaCost, dma_cost
from tpu_sim.jit.llvm_machine import LlvmMachine
from tpu_sim.machine.fabric import LocalFabric
from tpu_sim.machine.memory import HbmMemory

LATE = 5000


class SlowFabric(LocalFabric):
    """The chip's own, far away."""

    def cost(self, source: int, target: int) -> DmaCost:
        """What it costs, and `LATE` cycles more until it is there."""
        near = super().cost(source, target)
        return DmaCost(near.factor, near.setup, near.latency + LATE)


@pytest.mark.parametrize("kind", [NumpyMachine, LlvmMachine])
def test_a_transfer_costs_what_the_fabric_says(
    kind: type[NumpyMachine] | type[LlvmMachine],
) -> None:
    program = kernel_program(LOAD_X)
    near = kind(V5E).run(program, HbmMemory(HBM_BYTES))
    far = kind(V5E, fabric=SlowFabric(V5E)).run(program, HbmMemory(HBM_BYTES))
    assert far.cycles == near.cycles + LATE
    assert far.dma_wait_cycles == near.dma_wait_cycles + LATE


def test_the_local_fabric_is_the_chip() -> None:
    assert LocalFabric(V5E).cost(0, 0) == dma_cost(0, 0, V5E)


def test_a_descriptor_names_a_core_that_no_fabric_reaches_yet() -> None:
    remote = COPIES.replace("dims []", "dims [] core 3", 1)
    program = parse_program(program_text(kernel_text(LOAD_X, TWO_WINDOWS + remote)))
    assert program.kernels["k"].descriptors[0].core == 3
    assert print_program(parse_program(print_program(program))) == print_program(program)
    assert load_program(dump_program(program)).kernels == program.kernels
    with pytest.raises(ProgramError, match="core 3: no fabric reaches another core"):
        check_program(program, V5E)
