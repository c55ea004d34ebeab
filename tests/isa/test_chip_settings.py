"""Chips changed by name: units, what follows from what, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.topology import parse_target
from tpu_sim.isa.chip_settings import parse_setting, split_settings, with_settings
from tpu_sim.isa.chips import ChipError, load_chip
from tpu_sim.isa.instruction import Slot

V5E = load_chip("v5e")


@pytest.mark.parametrize(
    ("setting", "field", "want"),
    [
        ("vmem=32MiB", "vmem_bytes", 32 << 20),
        ("vmem_bytes=8388608", "vmem_bytes", 8 << 20),
        ("hbm=32GiB", "hbm_bytes", 32 << 30),
        ("smem=2MiB", "smem_words", 1 << 19),
        ("hbm_bandwidth=1.5TB/s", "hbm_peak_bytes_per_cycle", 1000.0),
        ("dma_latency_cycles=1us", "dma_latency_cycles", 1500),
        ("dma_latency_cycles=100", "dma_latency_cycles", 100),
        ("clock=3GHz", "clock_hz", 3e9),
        ("clock_hz=3e9", "clock_hz", 3e9),
        ("vregs=32", "vregs", 32),
    ],
)
def test_a_setting_is_read_in_the_units_people_think_in(
    setting: str, field: str, want: float
) -> None:
    assert getattr(load_chip(f"v5e{{{setting}}}"), field) == want


def test_settings_of_tables() -> None:
    chip = load_chip("v5e{slots.valu=8,latencies.eup=20ns}")
    assert (chip.slot_count(Slot.VALU), chip.latency("eup")) == (8, 30)


def test_the_clock_leaves_seconds_outside_of_the_core_as_they_are() -> None:
    fast = load_chip("v5e{clock=3GHz}")
    assert fast.peak_flops == 2 * V5E.peak_flops
    assert fast.hbm_bytes_per_cycle * fast.clock_hz == V5E.hbm_bytes_per_cycle * V5E.clock_hz
    assert fast.ici_bytes_per_cycle * 2 == V5E.ici_bytes_per_cycle
    assert fast.dma_latency_cycles == 2 * V5E.dma_latency_cycles
    assert fast.latencies == V5E.latencies


def test_a_bandwidth_is_meant_after_the_clock() -> None:
    chip = load_chip("v5e{hbm_bandwidth=1.2TB/s,clock=3GHz}")
    assert chip.hbm_peak_bytes_per_cycle == pytest.approx(400)
    share = V5E.hbm_bytes_per_cycle / V5E.hbm_peak_bytes_per_cycle
    assert chip.hbm_bytes_per_cycle == pytest.approx(400 * share)


def test_slots_that_feed_mxus_grow_with_them() -> None:
    chip = load_chip("v5e{mxu_count=8}")
    assert (chip.slot_count(Slot.MXU), chip.peak_flops) == (8, 2 * V5E.peak_flops)


def test_a_changed_chip_says_so_by_its_name_and_provenance() -> None:
    chip = load_chip("v5e{vregs=32,hbm=8GiB}")
    assert (chip.name, chip.family) == ("v5e{hbm=8GiB,vregs=32}", "v5e")
    assert chip.spec["vregs"] == "set (set by hand)"
    assert "follows from the clock" in load_chip("v5e{clock=1GHz}").spec["dma_wait_cycles"]
    assert load_chip(chip.name) == chip != V5E


def test_a_slice_and_a_file_of_a_changed_chip(tmp_path: Path) -> None:
    topology = parse_target("v5e{vmem=32MiB}:4x2")
    assert (topology.chip_count, topology.name) == (8, "v5e{vmem=32MiB}:4x2")
    assert topology.device_kind == "TPU v5 lite"
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nbase = "v6e"\n')
    assert load_chip(f"{file}{{vregs=32}}").name == "mine{vregs=32}"


@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("v5e", "v5e{vmem=8MiB}"),
        ("v5e:4x2", "v5e{vmem=8MiB}:4x2"),
        ("v5e-8", "v5e{vmem=8MiB}-8"),
        ("v5e{vmem=1MiB,vregs=32}:2x1", "v5e{vmem=8MiB,vregs=32}:2x1"),
        ("a/my.toml", "a/my.toml{vmem=8MiB}"),
    ],
)
def test_settings_join_the_chip_of_a_target(name: str, changed: str) -> None:
    assert with_settings(name, [parse_setting("vmem=8MiB")]) == changed


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("vmen=8MiB", "unknown parameter, did you mean vmem?"),
        ("foo=3", "unknown parameter, want one of clock, clock_hz, hbm, vmem"),
        ("vmem=8XB", "unit 'XB': want one of B, kB"),
        ("vregs=32ns", "unit 'ns': it is a plain number"),
        ("vmem=big", "'big' is no quantity"),
        ("vmem", "want key=value"),
        ("vregs=32,vregs=16", "vregs is set twice"),
        ("vmem=1000", "parameter vmem_bytes: 1000, want 65536 to"),
        ("hbm_peak_bytes_per_cycle=100", "hbm_bytes_per_cycle: 491.4, want at most hbm_peak"),
        ("clock=0GHz", "want a clock above 0"),
        ("clock=3", "parameter clock_hz: 3 Hz, want 1000000 to 1000000000000 Hz"),
        ("clock=1e400", "'1e400' is beyond what a number can be"),
        ("hbm_bandwidth=1.2", "setting hbm_bandwidth=1.2: want a unit, one of B/s, kB/s, MB/s"),
        ("ici_bandwidth=90", "want a unit, one of B/s"),
        ("vmem=8MiB,vmem_bytes=65536", "vmem and vmem_bytes both set vmem_bytes: want one"),
        ("hbm_bandwidth=0GB/s", "hbm_peak_bytes_per_cycle"),
        ("vregs=7.5", "want a whole number"),
        ("vregs=-3", "out of range"),
    ],
)
def test_what_is_no_change_of_a_chip_is_refused_by_name(settings: str, message: str) -> None:
    with pytest.raises(ChipError) as caught:
        load_chip(f"v5e{{{settings}}}")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["v5e{", "v5e}", "v5e{a=1}x{b=2}", "{a=1}"])
def test_braces_that_do_not_fit(name: str) -> None:
    with pytest.raises(ChipError):
        load_chip(name)


def test_settings_are_ordered() -> None:
    assert [str(s) for s in split_settings("v5e{b=2, a=1}")[1]] == ["a=1", "b=2"]
