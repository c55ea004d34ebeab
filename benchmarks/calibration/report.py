"""The calibration's part of docs/accuracy.md, with its plots."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.calibration import plots
from benchmarks.calibration.fit import CHIPS, HIGHEST, LOWEST, NAMES, outcomes
from benchmarks.calibration.points import Point, load_points, module_text
from benchmarks.calibration.simulate import Outcome, simulate
from benchmarks.sections import put_section
from compiler.driver import compile_module
from compiler.frontends.models import parse_model
from tpu_sim.isa.chips import load_chip
from tpu_sim.jit.llvm_machine import LlvmMachine

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "accuracy.md"
SECTION = "calibration"
_FITTED_FIELDS = (
    "call_overhead_cycles", "dma_latency_cycles", "dma_wait_cycles", "mxu_sustained",
    "hbm_bytes_per_cycle", "hbm_copy_efficiency",
)  # fmt: skip
_TITLE = """# Accuracy

How far simulated times are from measured ones and from XLA:TPU's own estimates. Each part is written by
the command it names.
"""
_INTRODUCTION = """Written by `python -m benchmarks.calibration report`; `... fit` reruns the fit from
the points in `benchmarks/calibration/points.toml` and prints the chip-file values it proposes. Errors are of
the time: +10 % is too slow. Times by the host's clock, by slope over repetitions and of the operation on the
device are kept apart."""
_HISTORY = """Points that are not fitted were left out of the least squares, but not out of sight: the form
of the model, and which points to fit, were chosen with all of them known. They are no blind test. Three forms
were tried:

1. Read and write rates of HBM apart, one `mxu_sustained` for all 256-wide MXUs. Not kept: 2048^3 of 7x drew
   v6e's parameters away from its own points, and the add of v6e stood at +11 % from the start.
2. `mxu_sustained` for each chip, one HBM rate for 7x. Not kept: the add stood at +15 %.
3. One HBM rate, and `hbm_copy_efficiency` for transfers within HBM: the form here. It was chosen because it
   explains the add and the copy of v6e together, so the add's small error is no evidence of its own.

2048^3 of 7x is in the fit because it was far off (-23 %) with the first, unfitted values. The add is read as
one array in and one out; with two in, its published time would exceed the peak of HBM."""
_KINDS = {
    "wall": "wall: the host's clock",
    "slope": "slope: device time per repetition",
    "device": "device: the operation's own time on the device",
}


def write_report() -> None:
    """Write the page's section and the plots."""
    points, sources = load_points()
    found = outcomes(points)
    DOCS.mkdir(exist_ok=True)
    (DOCS / "accuracy-points.svg").write_text(plots.scatter(found), encoding="utf-8")
    (DOCS / "accuracy-errors.svg").write_text(plots.error_bars(found), encoding="utf-8")
    (DOCS / "accuracy-copies.svg").write_text(_copy_plot(points), encoding="utf-8")
    put_section(SECTION, section(found, sources), PAGE, _TITLE)


def section(found: Sequence[Outcome], sources: dict[str, str]) -> str:
    """The section's text."""
    counted = [o for o in found if not o.point.unmet]
    parts = [
        "## Measured points",
        _INTRODUCTION,
        "![simulated against measured](accuracy-points.svg)",
        "### How much the fit proves",
        _caveats(found),
        "### Errors",
        _summary(counted),
        "### What was asked",
        _goals(found),
        "### Fitted",
        _table([o for o in counted if o.point.is_fitted]),
        "### Not fitted",
        _table([o for o in counted if not o.point.is_fitted]),
        "### Apart from the means",
        _unmet([o for o in found if o.point.unmet]),
        "![errors](accuracy-errors.svg)",
        "### Copies on 7x by size",
        "![copies](accuracy-copies.svg)",
        "### Fitted parameters",
        _parameters(),
        "### Speed of an estimate",
        _speeds(found),
        "### Sources",
        "\n".join(f"- {name}: {text}" for name, text in sources.items()),
        "Not simulated, so not compared: int8 at twice the bf16 rate, transfers between chips.",
    ]
    return "\n\n".join(parts)


def _caveats(found: Sequence[Outcome]) -> str:
    fitted = sum(o.point.is_fitted for o in found)
    limits = at_limits()
    bound = f" {', '.join(limits)} ended at the limit of its search." if limits else ""
    return (
        f"{len(NAMES)} parameters are fitted to {fitted} points, which leaves few to spare: errors of "
        f"fitted points say little.{bound}\n\n{_HISTORY}"
    )


def at_limits() -> list[str]:
    """Fitted shares that stand at a limit of the fit."""
    found: list[str] = []
    for chip in ("v5e", "v6e", "7x"):
        name = f"sustained_{chip}"
        value = load_chip(chip).mxu_sustained
        if value in (getattr(LOWEST, name), getattr(HIGHEST, name)):
            found.append(f"`{name}` ({value:g})")
    return found


def _rows(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def _statistics(found: Sequence[Outcome]) -> list[str]:
    errors = [abs(o.error) for o in found]
    median = statistics.median(errors)
    return [
        str(len(errors)),
        f"{statistics.mean(errors):.1%}",
        f"{median:.1%}",
        f"{max(errors):.1%}",
    ]


def _summary(found: Sequence[Outcome]) -> str:
    """Errors by use and kind, and within these by family and chip."""
    groups: dict[tuple[str, str, str, str], list[Outcome]] = {}
    for o in found:
        p = o.point
        groups.setdefault((p.use, p.kind, p.family, p.chip), []).append(o)
        groups.setdefault((p.use, p.kind, "all", "all"), []).append(o)
    uses = {"fit": "fitted", "predict": "not fitted"}
    rows = [
        [uses[use], _KINDS[kind], family, chip, *_statistics(groups[use, kind, family, chip])]
        for use, kind, family, chip in sorted(groups)
    ]
    return _rows(["", "time", "family", "chip", "points", "mean", "median", "worst"], rows)


def _goals(found: Sequence[Outcome]) -> str:
    """The numbers wanted, and what they are over all points; beside it without those listed apart."""

    def gemm(p: Point) -> bool:
        return p.family == "gemm"

    def held(p: Point) -> bool:
        return not p.is_fitted

    goals: list[tuple[str, float, bool, Callable[[Point], bool]]] = [
        (
            "v5e 8192^3, three windows, worst",
            0.10,
            False,
            lambda p: p.chip == "v5e" and p.m == 8192,
        ),
        ("products of v6e and 7x, worst", 0.12, False, lambda p: p.chip != "v5e" and gemm(p)),
        ("copies, worst", 0.08, False, lambda p: p.family == "copy"),
        ("products not fitted, mean", 0.12, True, lambda p: gemm(p) and held(p)),
        ("products not fitted, worst", 0.30, False, lambda p: gemm(p) and held(p)),
        ("memory-bound not fitted, mean", 0.12, True, lambda p: not gemm(p) and held(p)),
    ]
    rows: list[list[str]] = []
    for what, limit, is_mean, test in goals:
        chosen = [o for o in found if test(o.point)]
        value, text = _figure(chosen, is_mean=is_mean)
        _, apart = _figure([o for o in chosen if not o.point.unmet], is_mean=is_mean)
        verdict = "met" if value <= limit else "**not met**"
        rows.append([what, f"{limit:.0%}", text, verdict, apart])
    head = ["", "at most", "all points", "", "without those apart"]
    note = "Means here run over all kinds of time, as the goals do; by kind they stand above."
    return f"{_rows(head, rows)}\n\n{note}"


def _figure(found: Sequence[Outcome], *, is_mean: bool) -> tuple[float, str]:
    """The mean or the worst absolute error, and its text."""
    if is_mean:
        value = statistics.mean(abs(o.error) for o in found)
        return value, f"{value:.1%} of {len(found)}"
    most = max(found, key=lambda o: abs(o.error))
    return abs(most.error), f"{abs(most.error):.1%} ({most.point.chip} {most.point.name})"


def _table(found: Sequence[Outcome]) -> str:
    rows = [
        [
            o.point.chip, o.point.name, o.point.family, o.point.kind, o.point.published,
            _time(o.point.seconds), _time(o.seconds), f"{o.error:+.1%}", o.bound_by, o.point.source,
        ]
        for o in found
    ]  # fmt: skip
    head = ["chip", "operation", "family", "time", "published", "measured", "simulated", "error",
            "bound by", "source"]  # fmt: skip
    notes = [f"{o.point.chip} {o.point.name}: {o.point.note}." for o in found if o.point.note]
    return "\n\n".join([_rows(head, rows), *notes])


def _unmet(found: Sequence[Outcome]) -> str:
    rows = [
        [o.point.chip, o.point.name, o.point.kind, _time(o.point.seconds), _time(o.seconds),
         f"{o.error:+.1%}", o.point.unmet]
        for o in found
    ]  # fmt: skip
    return _rows(["chip", "operation", "time", "measured", "simulated", "error", "why"], rows)


def _time(seconds: float) -> str:
    for unit, scale in (("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.4g} {unit}"
    return f"{seconds * 1e9:.4g} ns"


def _parameters() -> str:
    """The fitted fields of all chips; `a` marks values assumed from other chips."""
    chips = [load_chip(name) for name in CHIPS]
    rows: list[list[str]] = []
    for field in _FITTED_FIELDS:
        cells = [
            f"{getattr(c, field):g}{'' if c.spec[field].startswith('fitted') else ' a'}"
            for c in chips
        ]
        rows.append([f"`{field}`", *cells])
    return _rows(["field", *CHIPS], rows) + "\n\na: assumed, from the chips with points."


def _speeds(found: Sequence[Outcome]) -> str:
    """Compile and estimate once more, with the longest programs of each family."""
    wanted = (
        "8192^3, windows 128,128,128",
        "8192^3, the compiler's windows",
        "16384^3",
        "copy of 8 GB",
    )
    rows: list[list[str]] = []
    for point in (o.point for o in found if o.point.name in wanted):
        chip = load_chip(point.chip)
        start = time.process_time()
        program = compile_module(parse_model(module_text(point)), chip).program
        compiled = time.process_time()
        machine = LlvmMachine(chip, cache=False)
        cycles = machine.estimate(program).cycles
        first = time.process_time()
        machine.estimate(program)
        second = time.process_time() - first
        rows.append([
            point.chip, point.name, f"{cycles:,}", f"{compiled - start:.2f}", f"{first - compiled:.2f}",
            f"{cycles / 1e6 / (first - compiled):,.0f}", f"{cycles / 1e6 / max(second, 1e-6):,.0f}",
        ])  # fmt: skip
    head = ["chip", "operation", "cycles", "compile s", "estimate s", "million cycles/s", "again"]
    note = "CPU seconds without the code cache; `again`: the same estimate once its code is native."
    return _rows(head, rows) + f"\n\n{note}"


def _copy_plot(points: Sequence[Point]) -> str:
    """The model's copy bandwidth on 7x over sizes, with the measured points."""
    measured = [p for p in points if p.chip == "7x" and p.family == "copy"]
    model: list[tuple[int, float]] = []
    for power in range(17, 34):
        trial = replace(measured[0], bytes=1 << power)
        model.append((1 << power, 2 * trial.bytes / simulate(trial, load_chip("7x")).seconds / 1e9))
    return plots.copy_curve(model, [(p.bytes, 2 * p.bytes / p.seconds / 1e9) for p in measured])
