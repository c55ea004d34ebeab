"""Emulated HBM: sparse, bounded, and given back to the host."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tpu_sim.isa.chips import chip_names, load_chip
from tpu_sim.machine.faults import OutOfMemoryRangeFault
from tpu_sim.machine.memory import HbmMemory


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.parametrize("name", chip_names())
def test_a_whole_chip_costs_nothing_until_touched(name: str) -> None:
    before = resident_bytes()
    hbm = HbmMemory(load_chip(name).hbm_bytes)
    hbm.write(hbm.size_bytes - 4, b"last")
    assert hbm.read(hbm.size_bytes - 6, 6) == b"\0\0last"
    assert resident_bytes() - before < 64 << 20


def test_views_and_native_addresses_see_the_same_bytes() -> None:
    hbm = HbmMemory(1 << 20)
    hbm.view(512, 8)[:] = np.arange(8, dtype=np.uint8)
    assert ctypes.string_at(hbm.address + 512, 8) == bytes(range(8))


def test_ranges_outside_fault() -> None:
    hbm = HbmMemory(1024)
    for offset, size in ((-1, 4), (1021, 4), (0, 1025), (4, -1)):
        with pytest.raises(OutOfMemoryRangeFault):
            hbm.read(offset, size)
    with pytest.raises(OutOfMemoryRangeFault):
        hbm.write(1023, b"ab")


def test_discard_zeroes_exactly_its_range() -> None:
    hbm = HbmMemory(1 << 20)
    hbm.view(0, 1 << 20)[:] = 7
    hbm.discard(5000, 100_000)
    assert not hbm.view(5000, 100_000).any()
    assert hbm.view(0, 5000).all() and hbm.view(105_000, (1 << 20) - 105_000).all()
    hbm.discard(10, 20)
    assert not hbm.view(10, 20).any() and hbm.view(30, 4000).all()


def test_sizes_are_whole_granules() -> None:
    for size in (0, -512, 100):
        with pytest.raises(ValueError, match="want a positive multiple of 512"):
            HbmMemory(size)
