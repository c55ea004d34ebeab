"""What a transfer costs is the fabric's: both machines ask it, and a translation holds none of it."""

from __future__ import annotations

import pytest

from tests.support.isa_programs import (
    HBM_BYTES,
    LOAD_X,
    V5E,
    kernel_program,
)
from tpu_sim.interp.numpy_machine import NumpyMachine
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
