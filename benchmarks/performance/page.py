"""docs/performance.md: the table, the geometric means, and which wanted numbers are met."""

from __future__ import annotations

import datetime
import importlib.metadata
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.performance.agreement import TOLERANCE
from benchmarks.performance.levels import LARGEST_RATIO, wanted_mean
from benchmarks.performance.measure import Row
from benchmarks.performance.versions import commit
from tpu_sim.jit.host import NATIVE

TITLE = "# Performance beside XLA:CPU\n"
WANTED = {"compile cold": 2.5, "compile warm": 0.3}
"""Geometric means over XLA:CPU's cold compile; see `benchmarks.performance.levels` for execution."""
LARGEST_DOT_COMPILE = 6.0
LONGEST_COMPILE_SECONDS = 60.0
WANTED_START = {"import": 0.3, "run": 1.0}
MEMORY_FACTOR, MEMORY_EXTRA_BYTES = 1.5, 500e6
_PACKAGES = ("jax", "numpy", "llvmlite")
Ratio = Callable[[Row], float | None]


def page(rows: Sequence[Row], start: dict[str, float], command: str, threads: int) -> str:
    """The whole page."""
    levels = _by_level(rows)
    first = next(iter(levels.values()), [])  # compiling and memory hardly depend on the level
    counted = [row for row in first if row.counts]
    apart = [row for row in first if not row.counts]
    parts = [
        _head(command, threads),
        *_problems(rows),
        "## Wanted and found\n\n" + _verdicts(levels, rows, start),
        *(
            f"## Execution{_at(level)}\n\n" + _execution([row for row in found if row.counts])
            for level, found in levels.items()
        ),
        "## Compile\n\n" + _compile(counted),
        "## Memory\n\n" + _memory(first),
    ]
    if apart:
        parts += ["## Not in the means\n\n" + _execution(apart) + "\n\n" + _compile(apart)]
    return "\n\n".join(parts) + "\n"


def _by_level(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.level, []).append(row)
    return found


def _at(level: str) -> str:
    return "" if level == NATIVE else f" with {level}"


def _head(command: str, threads: int) -> str:
    versions = [f"Python {platform.python_version()}", f"tpuc {commit()}"]
    for package in _PACKAGES:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            versions.append(f"no {package}")
    return (
        f"Written by `{command}` on {datetime.date.today()}: {', '.join(versions)}; "
        f"{_processor()}, {os.cpu_count()} processors, {threads} threads for each side.\n\n"
        "Both sides get the same HLO text and the same inputs, which lie on the device; each has a\n"
        "process of its own, and they execute in turn, never at once. Seconds are medians of warm\n"
        "calls, outputs waited for and left on the device; a ratio is the median of the turns'\n"
        "ratios, above 1 where XLA:CPU is faster. *CPU* ratios are of processor time over all\n"
        "threads. At a level below this CPU's both sides make code for that level only\n"
        "(`benchmarks/performance/levels.py`). *By cycles* names the kernels in which the emulated\n"
        "chip spends most cycles, and what they wait for there. *Values* is how far the outputs of the\n"
        "two sides are from each other: norm of the difference over norm, or share of the integers\n"
        "that differ."
    )


def _problems(rows: Sequence[Row]) -> list[str]:
    """The rows that are not to be believed, if any."""
    found = [f"- {row.name}{_at(row.level)}: {p}" for row in rows for p in row.problems]
    return ["## Not valid\n\n" + "\n".join(found)] if found else []


def _name(row: Row) -> str:
    return f"**{row.name} (not valid)**" if row.problems else row.name


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def execute_ratio(row: Row) -> float | None:
    """Ours over XLA:CPU's execution time."""
    return row.ratio


def cold_ratio(row: Row) -> float | None:
    """Ours over XLA:CPU's compile time, without anything on disk."""
    return _over(row.ours.compile_cold, row.xla.compile_cold)


def warm_ratio(row: Row) -> float | None:
    """The same with the disk cache of an earlier process."""
    return _over(row.ours.compile_warm, row.xla.compile_cold)


def _over(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a / b


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values."""
    return math.exp(sum(math.log(v) for v in values) / len(values))


def _verdicts(
    levels: Mapping[str, Sequence[Row]], every: Sequence[Row], start: dict[str, float]
) -> str:
    lines = [("what", "wanted", "found", "met")]
    for level, rows in levels.items():
        found = _ratios(rows, execute_ratio)
        lines += _mean(f"execute{_at(level)}", found, wanted_mean(level))
        lines += _each(f"execute{_at(level)}, each", found, LARGEST_RATIO)
    first = next(iter(levels.values()), [])
    cold = _ratios(first, cold_ratio)
    lines += _mean("compile cold", cold, WANTED["compile cold"])
    dots = {name: ratio for name, ratio in cold.items() if name.startswith("dot_")}
    lines += _each("compile cold, each dot", dots, LARGEST_DOT_COMPILE)
    lines += _mean("compile warm", _ratios(first, warm_ratio), WANTED["compile warm"])
    lines += _longest(every) + _starts(start) + _memory_verdict(first) + _values_verdict(every)
    return _table(lines)


def _ratios(rows: Sequence[Row], ratio: Ratio) -> dict[str, float]:
    return {row.name: found for row in rows if row.counts and (found := ratio(row)) is not None}


def _mean(name: str, found: Mapping[str, float], wanted: float) -> list[tuple[str, ...]]:
    if not found:
        return []
    value = geometric_mean(list(found.values()))
    what = f"{name}, geometric mean over XLA:CPU ({len(found)} workloads)"
    return [(what, f"at most {wanted:g}", f"{value:.2f}", _met(value <= wanted))]


def _each(name: str, found: Mapping[str, float], most: float) -> list[tuple[str, ...]]:
    if not found:
        return []
    above = sorted(((value, n) for n, value in found.items() if value > most), reverse=True)
    text = ", ".join(f"{n} {value:.2f}" for value, n in above) or "none"
    return [(name, f"at most {most:g}", f"above: {text}", _met(not above))]


def _met(yes: bool) -> str:
    return "yes" if yes else "**no**"


def _longest(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    times = [(row.ours.compile_cold, row.name) for row in rows if row.ours.compile_cold]
    if not times:
        return []
    seconds, name = max(times)
    limit = LONGEST_COMPILE_SECONDS
    what = "longest compile, cold"
    return [(what, f"at most {limit:g} s", f"{name} {seconds:.1f} s", _met(seconds <= limit))]


def _starts(start: dict[str, float]) -> list[tuple[str, ...]]:
    names = {"import": "`import tpuc`", "run": "`tpuc run` of a small model, warm cache"}
    lines: list[tuple[str, ...]] = []
    for key, wanted in WANTED_START.items():
        if key in start:
            value = start[key]
            note = f"{value:.2f} s (Python itself {start['python']:.2f} s)"
            lines.append((names[key], f"under {wanted:g} s", note, _met(value < wanted)))
    return lines


def _memory_limit(row: Row) -> float | None:
    peak = row.ours.facts.get("hbm_peak_bytes")
    return None if peak is None else MEMORY_FACTOR * peak + MEMORY_EXTRA_BYTES


def _memory_verdict(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    above = []
    for row in rows:
        limit = _memory_limit(row)
        if limit is not None and row.ours.facts["peak_resident_bytes"] > limit:
            above.append(row.name)
    if not any(_memory_limit(row) for row in rows):
        return []
    wanted = "at most 1.5x the HBM peak + 500 MB"
    return [("memory, each", wanted, f"above: {', '.join(above) or 'none'}", _met(not above))]


def _values_verdict(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    found = {row.name: row.difference for row in rows if row.difference is not None}
    if not found:
        return []
    worst = max(found, key=lambda name: found[name])
    differing = (row.name for row in rows if any("XLA:CPU's" in text for text in row.problems))
    apart = list(dict.fromkeys(differing))
    note = f"most: {worst} {found[worst]:.1e}" + (f"; differ: {', '.join(apart)}" if apart else "")
    what = f"values of both sides ({len(found)} workloads)"
    return [(what, f"within {TOLERANCE:g}", note, _met(not apart))]


def _execution(rows: Sequence[Row]) -> str:
    head = ("workload", "ours s", "XLA:CPU s", "ratio", "CPU ratio", "calls", "values", "by cycles")
    return _table([head, *(_execution_line(row) for row in rows)])


def _execution_line(row: Row) -> tuple[str, ...]:
    return (
        _name(row),
        row.ours.error or _seconds(row.ours.execute),
        row.xla.error or _seconds(row.xla.execute),
        _number(row.ratio),
        _number(row.cpu_ratio),
        str(row.ours.calls),
        "" if row.difference is None else f"{row.difference:.0e}",
        _dominant(row),
    )


def _dominant(row: Row) -> str:
    kernels = row.ours.facts.get("kernels", [])
    parts = [
        f"{note} {share:.0%}{f' in {calls} calls' if calls > 1 else ''} ({bound})"
        for note, calls, share, bound in kernels
        if share >= 0.1
    ]
    return "; ".join(parts).replace("|", "\\|")


def _compile(rows: Sequence[Row]) -> str:
    stages = ("parse", "passes", "backend", "translate")
    head = ("workload", *stages, "cold s", "warm s", "XLA:CPU s", "cold ratio", "warm ratio")
    lines = [head]
    for row in rows:
        ours = row.ours
        lines.append(
            (
                _name(row),
                *(_number(ours.stages.get(stage)) for stage in stages),
                _number(ours.compile_cold),
                _number(ours.compile_warm),
                _number(row.xla.compile_cold),
                _number(cold_ratio(row)),
                _number(warm_ratio(row)),
            )
        )
    return _table(lines)


def _memory(rows: Sequence[Row]) -> str:
    lines = [("workload", "HBM peak MB", "peak resident MB", "limit MB", "within")]
    for row in rows:
        limit = _memory_limit(row)
        if limit is not None:
            resident = row.ours.facts["peak_resident_bytes"]
            peak = row.ours.facts["hbm_peak_bytes"]
            sizes = (peak, resident, limit)
            lines.append(
                (row.name, *(f"{size / 1e6:,.0f}" for size in sizes), _met(resident <= limit))
            )
    return _table(lines)


def _table(lines: Sequence[tuple[str, ...]]) -> str:
    head, *body = lines
    rule = tuple("---" if number == 0 else "---:" for number in range(len(head)))
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *body))


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}" if value < 0.1 else f"{value:.3f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"
