"""Native code for aarch64 under user-mode emulation: kernels and programs against NumPy.

Needs a cross compiler and an emulator (Debian: gcc-aarch64-linux-gnu, libc6-dev-arm64-cross, qemu-user).
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.differential.test_machines_agree import (
    HBM_BYTES,
    equal_as_floats,
    random_contents,
)
from tests.support.emulated_host import EmulatedHost, missing_tools
from tests.support.random_programs import WINDOW_ROWS, random_program
from tests.unit.jit.test_kernels import edge_operands, extreme_bytes, stated
from tpu_sim.interp import mxu
from tpu_sim.interp.numpy_machine import NumpyMachine
from tpu_sim.isa.chips import load_chip
from tpu_sim.jit.host import Arch, host_of
from tpu_sim.jit.installation import random_operands
from tpu_sim.machine.memory import HbmMemory

MISSING = missing_tools(Arch.AARCH64)
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")
CHIP = load_chip("v5e")


@pytest.fixture(scope="module")
def aarch64(tmp_path_factory: pytest.TempPathFactory) -> EmulatedHost:
    return EmulatedHost(host_of("neon"), tmp_path_factory.mktemp("aarch64"))


def test_every_form_of_each_pass_is_the_stated_arithmetic(aarch64: EmulatedHost) -> None:
    cases, expected = [], []
    for kind, name in aarch64.forms:
        for operands in (
            random_operands,
            edge_operands if kind == "bf16" else extreme_bytes,
        ):
            for seed in range(4):
                left, weights = operands(seed)
                cases.append((name, left, weights))
                rows, block = stated(left, weights)
                with np.errstate(all="ignore"):
                    expected.append(mxu.PASSES[kind](rows, block))
    found = aarch64.passes(cases)
    for (name, *_), got, want in zip(cases, found, expected, strict=True):
        assert np.array_equal(got, want), name


@pytest.mark.parametrize("seed", [3, 102, 203, 207])
def test_random_programs_leave_the_same_memory_and_cycles(aarch64: EmulatedHost, seed: int) -> None:
    program = random_program(CHIP, seed, 3, 150 if seed > 200 else 40)
    memories = []
    for machine in ("numpy", "emulated"):
        hbm = HbmMemory(HBM_BYTES)
        hbm.write(0, random_contents(seed))
        if machine == "numpy":
            cycles = NumpyMachine(CHIP).run(program, hbm).cycles
        else:
            found = aarch64.run(program, CHIP, hbm)
            assert (found.status, found.cycles) == (0, cycles)
        memories.append(hbm.bytes.view(np.uint32).copy())
    plain, native = memories
    window = WINDOW_ROWS * 128
    floats = slice(3 * window, 4 * window)
    assert equal_as_floats(plain[floats], native[floats]).all()
    plain[floats], native[floats] = 0, 0
    assert np.array_equal(plain, native)
