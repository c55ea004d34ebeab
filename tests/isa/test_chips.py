"""Chip files: published peaks come out, numbers have a provenance, errors name the parameter."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tpu_sim.isa.chips import ChipError, chip_names, load_chip

PUBLISHED_TFLOPS = {
    "v2": 46.0,
    "v3": 123.0,
    "v4": 275.0,
    "v5e": 197.0,
    "v5p": 459.0,
    "v6e": 918.0,
    "7x": 2307.0,
}


@pytest.mark.parametrize("name", chip_names())
def test_the_published_peak_comes_out(name: str) -> None:
    chip = load_chip(name)
    chip_tflops = chip.device_peak_flops * chip.devices_per_chip / 1e12
    assert chip_tflops == pytest.approx(PUBLISHED_TFLOPS[name], rel=3e-3)


@pytest.mark.parametrize("name", chip_names())
def test_every_parameter_has_a_provenance(name: str) -> None:
    chip = load_chip(name)
    assert set(PUBLISHED_TFLOPS) == set(chip_names())
    for key, provenance in chip.spec.items():
        assert provenance.split()[0] in ("published", "fitted", "assumed"), key
    assert "clock_hz" in chip.spec and "latencies.eup" in chip.spec and "slots.valu" in chip.spec


def test_v5e_is_as_agreed() -> None:
    chip = load_chip("v5e")
    assert (chip.mxu_count, chip.mxu_dim, chip.matmul_cycles) == (4, 128, 16)
    assert (chip.vregs, chip.sregs, chip.vmasks) == (64, 64, 16)
    assert chip.slots["load"] == 3 and chip.slots["valu"] == 4 and chip.slots["store"] == 1
    assert chip.hbm_bytes == 16 << 30 and chip.vmem_bytes == 128 << 20


def test_aliases_name_the_same_chip() -> None:
    assert load_chip("tpu7x") == load_chip("7x")


def test_a_custom_file_changes_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "big.toml"
    path.write_text(
        'base = "v5e"\nname = "big"\n'
        'hbm_peak_bytes_per_cycle = { value = 1092, provenance = "assumed" }\n'
        'hbm_bytes_per_cycle = { value = 983, provenance = "assumed" }\n'
        '[latencies]\neup = { value = 20, provenance = "fitted", source = "x" }\n'
    )
    chip, base = load_chip(str(path)), load_chip("v5e")
    assert (chip.name, chip.hbm_bytes_per_cycle, chip.latencies["eup"]) == ("big", 983.0, 20)
    assert chip.latencies["valu"] == base.latencies["valu"] and chip.mxu_count == base.mxu_count
    assert chip.spec["latencies.eup"] == "fitted (x)"


def test_a_file_is_what_it_says_now_and_finds_its_base_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    base, path = tmp_path / "sub" / "a.toml", tmp_path / "sub" / "b.toml"
    base.write_text('base = "v5e"\nname = "a"\n')
    path.write_text('base = "a.toml"\nname = "b"\n')
    monkeypatch.chdir(tmp_path)
    before = load_chip("sub/b.toml")
    assert before == load_chip(str(path)) and before.name == "b"
    base.write_text('base = "v6e"\nname = "a"\nmxu_dim = { value = 128, provenance = "assumed" }\n')
    assert load_chip("sub/b.toml").mxu_dim == 128


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("mxu_count = true", "parameter mxu_count: want a number, a quantity such as '32MiB', or"),
        ("mxu_count = [4]", "parameter mxu_count: want a number"),
        ("mxu_count = {valeu = 4}", "parameter mxu_count: valeu is unknown, did you mean value"),
        ("slots = 4", r"parameter slots: want a table, \[slots\]"),
        (
            "[slots]\nvaul = 4",
            r"setting slots\.vaul=4: unknown parameter, did you mean slots\.valu",
        ),
        ('nmae = "mine"', "parameter nmae is unknown, did you mean name"),
        ('vmen = "32MiB"', "wrong.toml: setting vmen=32MiB: unknown parameter, did you mean vmem"),
        ('vmem = "32XB"', "setting vmem=32XB: unit 'XB': want one of B, kB"),
        ('vmem = "32MiB"\nvmem_bytes = 1048576', "vmem and vmem_bytes both set vmem_bytes"),
        ("clock = 1e308", "setting clock=1e\\+308: what follows from it is no number"),
        ("hbm_bandwidth = 1.2", "setting hbm_bandwidth=1.2: want a unit, one of B/s, kB/s"),
        ("mxu_count = 8\nslots.mxu = 4", r"parameter slots\.mxu: 4, want 8 or more"),
        (
            'clock = "2GHz"\nhbm_bytes_per_cycle = 546',
            "hbm_bytes_per_cycle: 546, want at most hbm_p",
        ),
        ('mxu_count = { value = 4, provenance = "guess" }', "provenance 'guess'"),
        ('mxu_count = { value = 4, provenance = "published" }', "want its source"),
        (
            'mxu_cuont = { value = 4, provenance = "assumed" }',
            "mxu_cuont=4: unknown parameter, did you mean mxu_count",
        ),
        ('mxu_count = { value = -4, provenance = "assumed" }', "-4 is out of range"),
        ("mxu_count = ", "not a TOML file"),
        (
            '[slots]\nmxu = { value = 1, provenance = "assumed" }',
            r"slots\.mxu: 1, want 4 or more: one for each MXU",
        ),
        (
            'mxu_sustained = { value = 0, provenance = "assumed" }',
            "mxu_sustained: 0, want 0.001 to 1",
        ),
        (
            'mxu_sustained = { value = 1.5, provenance = "assumed" }',
            "mxu_sustained: 1.5, want 0.001 to 1",
        ),
        ('mxu_dim = { value = 64, provenance = "assumed" }', "mxu_dim: 64, want 128 or 256"),
        ('mrf_entries = { value = 0, provenance = "assumed" }', "mrf_entries: 0, want 4 to 4096"),
        (
            'eup_entries = { value = 0, provenance = "assumed" }',
            "eup_entries: 0, want 1 to 1048576",
        ),
        (
            'hbm_bytes = { value = 4096, provenance = "assumed" }',
            "hbm_bytes: 4096, want 1048576 to",
        ),
        (
            'mxu_dim = { value = 256, provenance = "assumed" }',
            "mxu_count: 4, want 1 to 2 of this mxu_dim: instructions name 8 units",
        ),
        ('mrf_entries = { value = 4097, provenance = "assumed" }', "mrf_entries: 4097, want 4 to"),
        (
            'hbm_bytes = { value = 1099511628288, provenance = "assumed" }',
            "hbm_bytes: 1099511628288, want 1048576 to 1099511627776",
        ),
        (
            '[slots]\nvalu = { value = 32, provenance = "assumed" }\n'
            'load = { value = 32, provenance = "assumed" }',
            "table slots: .* in all, want at most 63: a bundle holds no more",
        ),
        ('hbm_bytes = { value = 1048577, provenance = "assumed" }', "hbm_bytes: 1048577, want a m"),
    ],
)
def test_a_wrong_file_names_the_parameter(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "wrong.toml"
    path.write_text(f'base = "v5e"\n{line}\n')
    with pytest.raises(ChipError, match=message):
        load_chip(str(path))


def test_a_missing_parameter_is_named(tmp_path: Path) -> None:
    path = tmp_path / "part.toml"
    path.write_text('name = "part"\n[slots]\n[latencies]\n')
    with pytest.raises(
        ChipError, match="parameter call_overhead_cycles is missing: a file without base"
    ):
        load_chip(str(path))
    path.write_text('bse = "v5e"\nvmem = "32MiB"\n')
    with pytest.raises(ChipError, match="parameter bse is unknown, did you mean base"):
        load_chip(str(path))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        ChipError, match="unknown chip 'v9': want one of 7x, v2, v3, v4, v5e, v5p, v6e"
    ):
        load_chip("v9")
    with pytest.raises(ChipError, match=r"cannot read the chip file none\.toml: there is no such"):
        load_chip("none.toml")


def test_a_cycle_of_bases_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "self.toml"
    path.write_text(f'base = "{path}"\n')
    with pytest.raises(ChipError, match="cycle"):
        load_chip(str(path))


@pytest.mark.parametrize("name", chip_names())
def test_result_queues_hold_what_is_under_way_at_full_rate(name: str) -> None:
    chip = load_chip(name)
    passes_under_way = -(-chip.latencies["mxu_result"] // chip.matmul_cycles) + 1
    assert chip.mrf_entries >= 2 * passes_under_way
    assert chip.slots["pop"] * chip.matmul_cycles >= 2 * chip.mxu_units
    assert chip.slots["mxu"] * chip.matmul_cycles >= chip.mxu_units


def test_a_changed_chip_is_not_called_as_the_one_it_was_made_of(tmp_path: Path) -> None:
    line = 'base = "v5e"\nvmem_bytes = {value = 33554432, provenance = "assumed"}\n'
    for name, called in (("mine.toml", "mine"), ("v5e.toml", "v5e.toml")):
        path = tmp_path / name
        path.write_text(line)
        assert load_chip(str(path)).name == called
        assert load_chip(f"{path}{{clock=2GHz}}").name == f"{called}{{clock=2GHz}}"


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ('vmem = "32MiB"', "vmem=32MiB"),
        ("vmem_bytes = 33554432", "vmem=32MiB"),
        ('vmem = {value = "32MiB", provenance = "assumed"}', "vmem=32MiB"),
        ('clock = "2GHz"', "clock=2GHz"),
        ('clock_hz = {value = 2e9, provenance = "assumed"}', "clock=2GHz"),
        ('hbm_bandwidth = "1.2TB/s"\nclock = "2GHz"', "hbm_bandwidth=1.2TB/s,clock=2GHz"),
        ("mxu_count = 8", "mxu_count=8"),
        ('latencies.eup = "20ns"\n[slots]\nvalu = 8', "latencies.eup=20ns,slots.valu=8"),
    ],
)
def test_a_file_changes_a_chip_as_settings_do(tmp_path: Path, line: str, settings: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'base = "v5e"\n{line}\n')
    want = replace(load_chip(f"v5e{{{settings}}}"), name="mine")
    assert load_chip(str(path)) == want != replace(load_chip("v5e"), name="mine")


def test_a_file_says_where_its_numbers_are_from(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "v5e"\nclock = {value = "2GHz", provenance = "published", source = "a paper"}\n'
        'vmem = "32MiB"\nvregs = {value = 32, provenance = "assumed"}\ndma_latency_cycles = 100\n'
    )
    chip = load_chip(str(path))
    assert chip.spec["clock_hz"] == "published (a paper)" and chip.spec["vregs"] == "assumed"
    assert chip.spec["vmem_bytes"] == "set (set in mine.toml)"
    assert chip.spec["hbm_bytes_per_cycle"] == "set (follows from the clock, 2 GHz)"
    assert chip.dma_latency_cycles == 100, "what the file says does not follow from the clock"


@pytest.mark.parametrize("name", ["v5e", "v6e", "v5litepod", "v5e{vmem=16MiB}"])
def test_a_file_of_another_chip_has_no_known_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(f'base = "v5e"\nname = "{name}"\nvmem = "32MiB"\n')
    message = "has another .* than this chip: give it a name of its own in the file"
    with pytest.raises(ChipError, match=message):
        load_chip(str(path))
    path.write_text('base = "v5e"\nname = "v5e{vmem=32MiB}"\nvmem = "32MiB"\n')
    assert load_chip(str(path)) == load_chip("v5e{vmem=32MiB}")
