"""The fit: few parameters, shared by the chips as far as their physics is, to the points marked `fit`.

What is fitted (all else is published or assumed, and stays):

    launch, latency, wait      nanoseconds of `call_overhead_cycles`, `dma_latency_cycles` and
                               `dma_wait_cycles`: the same on all chips
    sustained_v5e, _v6e, _7x   `mxu_sustained`; chips without a point take that of v5e
    hbm_v6e                    `hbm_bytes_per_cycle` over the published peak of v6e, and of 7x, where
                               nothing but copies was measured
    copy_v6e, copy_7x          `hbm_copy_efficiency`; chips without a point take that of 7x

The sum of squares of error over tolerance is made small from fixed starting values, with slopes
taken over fixed steps: no randomness, so a rerun gives the same values.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.calibration.points import Point
from benchmarks.calibration.simulate import Outcome, simulate
from tpu_sim.isa.chips import Chip, load_chip

Array = npt.NDArray[np.floating]

CHIP_DATA = Path(__file__).resolve().parents[2] / "tpu_sim" / "isa" / "chip_data"
CHIPS = ("v4", "v5e", "v5p", "v6e", "7x")
TOLERANCE = {"gemm": 0.12, "copy": 0.08, "elementwise": 0.12}
"""What each family's errors are measured in."""
ITERATIONS = 8
_TRIES = 4


@dataclass(frozen=True)
class Parameters:
    """What is fitted; times in nanoseconds, the rest shares of the published peak."""

    launch: float = 550.0
    latency: float = 480.0
    wait: float = 30.0
    sustained_v5e: float = 0.97
    sustained_v6e: float = 0.97
    sustained_7x: float = 0.92
    hbm_v6e: float = 0.95
    copy_v6e: float = 0.86
    copy_7x: float = 0.91


STEPS = Parameters(80.0, 40.0, 8.0, 0.01, 0.01, 0.01, 0.01, 0.02, 0.02)
LOWEST = Parameters(0.0, 100.0, 0.0, 0.85, 0.85, 0.85, 0.80, 0.50, 0.50)
HIGHEST = Parameters(2000.0, 2000.0, 60.0, 1.0, 1.0, 1.0, 0.97, 1.0, 1.0)
NAMES = tuple(f.name for f in fields(Parameters))


@dataclass(frozen=True)
class Setting:
    """A chip-file field, its value, and what it rests on."""

    field: str
    value: float
    provenance: str
    source: str


def settings(p: Parameters, chip: Chip, points: list[Point]) -> list[Setting]:
    """The chip-file fields that follow from the parameters."""
    gigahertz = chip.clock_hz / 1e9
    rerun = "benchmarks.calibration fit"
    own = "fitted" if any(q.chip == chip.name for q in points if q.is_fitted) else "assumed"
    sustained = {"v6e": p.sustained_v6e, "7x": p.sustained_7x}.get(chip.name, p.sustained_v5e)
    copied = p.copy_v6e if chip.name == "v6e" else p.copy_7x
    has_copy = chip.name in ("v6e", "7x")
    shared = f"the same on all chips in ns: {rerun}"
    found = [
        Setting("mxu_sustained", round(sustained, 4), own,
                f"large products{'' if own == 'fitted' else ' of v5e'}: {rerun}"),
        Setting("hbm_copy_efficiency", round(copied, 3), "fitted" if has_copy else "assumed",
                f"copies{'' if has_copy else ' of 7x'}: {rerun}"),
        Setting("dma_latency_cycles", round(p.latency * gigahertz), "fitted",
                f"{p.latency:.0f} ns, 8192^3 of v5e in windows of 128; {shared}"),
        Setting("dma_wait_cycles", round(p.wait * gigahertz), "fitted",
                f"{p.wait:.0f} ns, 2048^3 of 7x and 8192^3 of v5e; {shared}"),
        Setting("call_overhead_cycles", round(p.launch * gigahertz), "fitted",
                f"{p.launch:.0f} ns, 128^3 and small copies of 7x; {shared}"),
    ]  # fmt: skip
    if has_copy:
        rate = round(chip.hbm_peak_bytes_per_cycle * p.hbm_v6e, 1)
        source = f"{p.hbm_v6e:.3f} of peak, 128 x 8192^2 of v6e: {rerun}"
        kind = "fitted" if chip.name == "v6e" else "assumed"
        found.append(Setting("hbm_bytes_per_cycle", rate, kind, source))
    return found


def chip_with(p: Parameters, name: str, points: list[Point]) -> Chip:
    """A chip with the fitted fields at these parameters' values."""
    chip = load_chip(name)
    values = {s.field: s.value for s in settings(p, chip, points)}
    for field in ("dma_latency_cycles", "dma_wait_cycles", "call_overhead_cycles"):
        values[field] = int(values[field])
    return replace(chip, **values)  # type: ignore[arg-type]  # the names of fields


class Fit:
    """Evaluates parameters; a point is simulated once for each set of its chip's fields."""

    def __init__(self, points: list[Point], log: Callable[[str], None]) -> None:
        self.points = points
        self._log = log
        self._known: dict[tuple[str, Chip], float] = {}

    def residuals(self, p: Parameters) -> Array:
        """Logarithm of simulated over measured time, over tolerance, of the points to fit."""
        fitted = [q for q in self.points if q.is_fitted]
        return np.array([self._error(p, q) / math.log1p(TOLERANCE[q.family]) for q in fitted])

    def _error(self, p: Parameters, point: Point) -> float:
        chip = chip_with(p, point.chip, self.points)
        key = (point.name, chip)
        if key not in self._known:
            self._known[key] = math.log1p(simulate(point, chip).error)
        return self._known[key]

    def run(self) -> Parameters:
        """Damped Gauss-Newton steps with slopes by differences, until none helps."""
        best = Parameters()
        residuals = self.residuals(best)
        damping = 0.1
        self._log(f"start: loss {residuals @ residuals:.4f}")
        for number in range(ITERATIONS):
            slopes = self._slopes(best, residuals)
            normal = slopes.T @ slopes
            for _ in range(_TRIES):
                step = np.linalg.solve(normal + damping * np.eye(len(NAMES)), slopes.T @ residuals)
                trial = _moved(best, -step)
                found = self.residuals(trial)
                if found @ found < residuals @ residuals - 1e-4:
                    best, residuals = trial, found
                    damping /= 3
                    break
                damping *= 5
            else:
                break
            self._log(f"step {number + 1}: loss {residuals @ residuals:.4f}, {best}")
        return best

    def _slopes(self, p: Parameters, at: Array) -> Array:
        """Change of the residuals for a step of each parameter, in units of `STEPS`."""
        columns: list[Array] = []
        for number in range(len(NAMES)):
            step = np.zeros(len(NAMES))
            step[number] = 1.0
            there = _moved(p, step)
            width = _in_steps(there)[number] - _in_steps(p)[number]
            if abs(width) < 0.5:  # at its upper limit
                there = _moved(p, -step)
                width = _in_steps(there)[number] - _in_steps(p)[number]
            columns.append((self.residuals(there) - at) / width)
        return np.stack(columns, axis=1)


def _in_steps(p: Parameters) -> Array:
    return np.array([getattr(p, name) / getattr(STEPS, name) for name in NAMES])


def _moved(p: Parameters, by: Array) -> Parameters:
    """Parameters moved by so many of their `STEPS`, within their limits."""
    values: dict[str, float] = {}
    for name, steps in zip(NAMES, by.tolist(), strict=True):
        value = getattr(p, name) + steps * getattr(STEPS, name)
        value = min(max(value, getattr(LOWEST, name)), getattr(HIGHEST, name))
        values[name] = round(value, 4)
    return Parameters(**values)


def chip_file_text(text: str, wanted: list[Setting]) -> str:
    """A chip file with the given fields replaced."""
    for s in wanted:
        value = int(s.value) if s.value == int(s.value) and s.field.endswith("_cycles") else s.value
        line = f'{s.field} = {{ value = {value}, provenance = "{s.provenance}", source = "{s.source}" }}'
        text, count = re.subn(rf"^{s.field} = .*$", line, text, flags=re.MULTILINE)
        assert count == 1, f"field {s.field} stands {count} times"
    return text


def proposals(p: Parameters, points: list[Point]) -> dict[Path, str]:
    """Chip files with the fitted values, by path."""
    found: dict[Path, str] = {}
    for name in CHIPS:
        path = CHIP_DATA / f"{name}.toml"
        wanted = settings(p, load_chip(name), points)
        found[path] = chip_file_text(path.read_text(encoding="utf-8"), wanted)
    return found


def outcomes(points: list[Point]) -> list[Outcome]:
    """All points with the chip files as they are."""
    return [simulate(point, load_chip(point.chip)) for point in points]
