"""The timing model against the measured points, and the tools that fit and report."""

from __future__ import annotations

import dataclasses
import statistics
import tomllib
from functools import cache
from pathlib import Path

import pytest

from benchmarks.calibration import plots
from benchmarks.calibration.fit import (
    CHIPS,
    NAMES,
    TOLERANCE,
    Fit,
    Parameters,
    chip_file_text,
    chip_with,
    proposals,
    settings,
)
from benchmarks.calibration.points import Point, PointError, load_points, module_text
from benchmarks.calibration.report import section
from benchmarks.calibration.simulate import Outcome, simulate
from benchmarks.sections import put_section
from compiler.frontends.models import parse_model
from tpu_sim.isa.chips import load_chip

POINTS, SOURCES = load_points()
COUNTED = [p for p in POINTS if not p.unmet]
FITTED = [p for p in COUNTED if p.is_fitted]
V5E_LIMIT = 0.10


@cache
def outcome(point: Point) -> Outcome:
    return simulate(point, load_chip(point.chip))


def limit(point: Point) -> float:
    return V5E_LIMIT if point.chip == "v5e" else TOLERANCE[point.family]


@pytest.mark.parametrize("point", FITTED, ids=lambda p: f"{p.chip} {p.name}")
def test_fitted_points_are_met(point: Point) -> None:
    assert abs(outcome(point).error) <= limit(point)


@pytest.mark.parametrize("family", ["gemm", "memory"])
def test_predicted_points_are_near(family: str) -> None:
    held = [p for p in COUNTED if not p.is_fitted and (p.family == "gemm") == (family == "gemm")]
    errors = [abs(outcome(p).error) for p in held]
    assert len(errors) >= 3
    assert statistics.mean(errors) <= 0.12 and max(errors) <= 0.30


def test_small_windows_are_slow_because_of_latency() -> None:
    point = next(p for p in POINTS if p.window == (128, 128, 128))
    waits = outcome(point).causes["dma_in"] / outcome(point).cycles
    assert outcome(point).bound_by == "dma_in" and waits > 0.4


def test_256_wide_mxus_reach_most_of_their_peak() -> None:
    point = next(p for p in POINTS if p.name == "16384^3")
    rate = 2 * point.m * point.k * point.n / outcome(point).seconds
    chip = load_chip(point.chip)
    assert rate >= 0.9 * chip.mxu_sustained * chip.peak_flops


def test_why_points_are_unmet_holds() -> None:
    """1024^3 of v6e is shorter than its operands' transfers at peak."""
    point = next(p for p in POINTS if p.chip == "v6e" and p.name == "1024^3")
    chip = load_chip("v6e")
    moved = 2 * (point.m * point.k + point.k * point.n + point.m * point.n)
    assert moved / (chip.hbm_peak_bytes_per_cycle * chip.clock_hz) > point.seconds


@pytest.mark.parametrize("point", POINTS, ids=lambda p: f"{p.chip} {p.name}")
def test_every_point_is_a_module(point: Point) -> None:
    assert parse_model(module_text(point)).entry.parameters


def test_a_wrong_point_is_named(tmp_path: Path) -> None:
    path = tmp_path / "points.toml"
    path.write_text('[sources]\na = "b"\n[[point]]\nname = "x"\nsize = 3\n')
    with pytest.raises(PointError, match="'x'"):
        load_points(path)


def test_published_rates_are_the_times() -> None:
    for p in POINTS:
        value, unit = p.published.split(",")[0].split()
        if unit == "TFLOP/s":
            assert p.seconds == pytest.approx(2 * p.m * p.k * p.n / float(value) / 1e12, rel=1e-3)
        elif unit == "GB/s":
            assert p.seconds == pytest.approx(2 * p.bytes / float(value) / 1e9, rel=1e-3)
        else:
            assert p.seconds == pytest.approx(float(value) * {"ms": 1e-3, "us": 1e-6}[unit])


def test_the_chip_files_hold_what_the_fit_writes() -> None:
    """A chip's parameters follow from those of the fit: written once more, the files are the same."""
    v5e, v6e, x7 = (load_chip(name) for name in ("v5e", "v6e", "7x"))
    nanoseconds = {
        f: float(x7.spec[f].split("(")[1].split(" ns")[0])
        for f in ("call_overhead_cycles", "dma_latency_cycles", "dma_wait_cycles")
    }
    p = Parameters(
        *nanoseconds.values(), v5e.mxu_sustained, v6e.mxu_sustained, x7.mxu_sustained,
        v6e.hbm_bytes_per_cycle / v6e.hbm_peak_bytes_per_cycle,
        v6e.hbm_copy_efficiency, x7.hbm_copy_efficiency,
    )  # fmt: skip
    for name in CHIPS:
        chip = load_chip(name)
        for s in settings(p, chip, POINTS):
            assert getattr(chip, s.field) == pytest.approx(s.value, rel=0.03), (name, s.field)
            assert chip.spec[s.field].startswith(s.provenance), (name, s.field)


def test_proposals_are_chip_files() -> None:
    for path, text in proposals(Parameters(launch=1000.0), POINTS).items():
        tree = tomllib.loads(text)
        if path.stem == "v5e":
            assert tree["call_overhead_cycles"]["value"] == 1500
            assert tree["call_overhead_cycles"]["provenance"] == "fitted"


def test_a_field_that_is_not_there_is_an_error() -> None:
    chip = load_chip("v5e")
    with pytest.raises(AssertionError, match="stands 0 times"):
        chip_file_text("name = 1\n", settings(Parameters(), chip, POINTS))


def test_the_fit_finds_what_made_the_times() -> None:
    """Times made by the model itself with other parameters: the fit comes back to them."""
    truth = dataclasses.replace(Parameters(), launch=900.0, copy_7x=0.80)
    chosen = [p for p in FITTED if p.family == "copy"] + [p for p in FITTED if p.name == "128^3"]
    made = [
        dataclasses.replace(p, seconds=simulate(p, chip_with(truth, p.chip, POINTS)).seconds)
        for p in chosen
    ]
    found = Fit(made, lambda _: None).run()
    assert found.launch + 2 * found.latency == pytest.approx(900 + 2 * truth.latency, rel=0.03)
    assert found.copy_7x == pytest.approx(0.80, rel=0.03)
    assert set(NAMES) == {f.name for f in dataclasses.fields(Parameters)}


def test_a_section_replaces_only_itself(tmp_path: Path) -> None:
    page = tmp_path / "accuracy.md"
    put_section("one", "first", page, "# Accuracy")
    put_section("two", "second", page, "")
    put_section("one", "third \\1", page, "")
    text = page.read_text()
    assert text.startswith("# Accuracy")
    assert text.count("<!-- begin one -->") == 1 and "first" not in text
    assert text.index("third \\1") < text.index("second")


def test_the_report_and_its_plots_name_every_point() -> None:
    found = [outcome(p) for p in POINTS]
    text, bars = section(found, SOURCES), plots.error_bars(found)
    assert all(p.name in text and p.name in bars for p in POINTS)
    assert plots.scatter(found).count("<circle") == len(POINTS) + 4


def test_goals_count_the_points_listed_apart() -> None:
    """What cannot be met is shown as not met, beside the figure without it."""
    rows = section([outcome(p) for p in POINTS], SOURCES).splitlines()
    (products,) = (row for row in rows if row.startswith("| products of v6e and 7x"))
    assert "v6e 1024^3" in products and "**not met**" in products
