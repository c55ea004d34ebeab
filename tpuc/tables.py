"""Tables for people: the report of a run, errors against an oracle, chips."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.table import Table

from runtime.kernel_report import KernelReport
from runtime.report import Report
from tpu_sim.isa.chips import Chip, chip_names, load_chip
from tpuc.arrays import Difference
from tpuc.cost_tables import print_advice, print_lines, print_listing, print_scopes

_MOST_REMARKS = 5
_SLOWEST = 12
_COLUMNS = ("kernel", "calls", "cycles", "share", "MXU", "bound by", "HBM MB", "least")
SORTS: dict[str, Callable[[KernelReport], float]] = {
    "cycles": lambda k: -k.cycles,
    "calls": lambda k: -k.calls,
    "mxu": lambda k: -k.mxu_utilisation,
    "hbm": lambda k: -k.hbm_bytes,
    "waste": lambda k: -(k.cycles - k.roofline_cycles),
    "order": lambda k: 0,
}
"""By name, what kernels are ordered by: most cycles, .., most cycles above the roof, as they run."""


@dataclass(frozen=True)
class Listing:
    """Which kernels a report lists: the first `top` of them (None: all) by `sort`."""

    top: int | None = _SLOWEST
    sort: str = "cycles"

    @property
    def title(self) -> str:
        """What the table begins with."""
        return "slowest" if self.sort == "cycles" else f"by {self.sort}:"

    def of(self, report: Report) -> list[KernelReport]:
        """The kernels."""
        return sorted(report.kernels, key=SORTS[self.sort])[: self.top]


def console() -> Console:
    """A console that does not squeeze tables when piped, unless ``COLUMNS`` says how wide.

    Names are printed as they are.
    """
    console = Console(markup=False, emoji=False)
    if console.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return console
    return Console(width=120, markup=False, emoji=False)


def shown_name(model: str) -> str:
    """What a model is called above a table: ``-`` is standard input."""
    return "standard input" if model == "-" else model


def heading(console: Console, text: str) -> None:
    """The line above a table that names a file. A table's own title is broken at the table's
    width, in the middle of a long path; this line can be copied whole."""
    console.print(text, style="italic", soft_wrap=True, highlight=False)


def print_report(
    report: Report,
    model: str,
    random_seed: int | None,
    by: str = "kernel",
    listing: Listing = Listing(),
    price: Price | None = None,
    idle_chips: int = 0,
) -> None:
    """Print totals of a run, and what is slowest `by` kernel, source line or operation name.

    `idle_chips` of the target have no part in the program, which is one of a single device.
    """
    out = console()
    if random_seed is not None:
        out.print(f"inputs: random, seed {random_seed} (give your own with --inputs)")
    heading(out, f"{shown_name(model)} on {report.target}")
    if idle_chips:
        stand = (
            "1 other chip of the slice stands"
            if idle_chips == 1
            else f"{idle_chips} other chips of the slice stand"
        )
        out.print(f"a program of one device: {stand} idle")
    totals = Table(show_header=False)
    totals.add_column(style="bold")
    totals.add_column(justify="right")
    for name, value in _totals(report, price):
        totals.add_row(name, value)
    out.print(totals)
    if report.assumed_loops:
        loops = ", ".join(report.assumed_loops)
        out.print(f"assumed {report.assumed_trips} trips (--trips) of: {loops}")
    for remark in report.remarks[:_MOST_REMARKS]:
        out.print(f"remark: {remark}", markup=False)
    if len(report.remarks) > _MOST_REMARKS:
        out.print(f"remark: {len(report.remarks) - _MOST_REMARKS} more (--json has them all)")
    if by == "kernel":
        _print_kernels(out, report, listing)
    elif by == "line":
        print_lines(out, report, listing.top, model)
    else:
        print_scopes(out, report, model)
    print_advice(out, report)


def _print_kernels(out: Console, report: Report, listing: Listing) -> None:
    ordered = listing.of(report)
    title = f"{listing.title} {len(ordered)} of {len(report.kernels)} kernels"
    rows = [_kernel_row(kernel, report.cycles) for kernel in ordered]
    print_listing(out, title, (*_COLUMNS, "what"), ("kernel", "bound by", "what"), rows)


def _totals(report: Report, price: Price | None) -> list[tuple[str, str]]:
    stages = ", ".join(f"{name} {seconds:.2f}" for name, seconds in report.stages.items())
    emulated = "emulated in" if report.assumed_trips is None else "estimated in"
    return [
        ("cycles", f"{report.cycles:,}"),
        ("time on the chip", printed_seconds(report.seconds)),
        ("MXU utilisation", f"{report.mxu_utilisation:.1%} (busy {report.mxu_busy:.1%})"),
        (
            "HBM traffic",
            f"{printed_bytes(report.hbm_bytes)} ({report.hbm_utilisation:.1%} of peak)",
        ),
        ("HBM peak", printed_bytes(report.hbm_peak_bytes)),
        ("cycles went to", _causes(report)),
        *_links(report),
        *_energy(report),
        *_price(price),
        ("kernels called", f"{sum(k.calls for k in report.kernels):,}"),
        ("compiled in", f"{report.compile_seconds:.2f} s ({stages})"),
        (emulated, f"{report.execute_seconds:.2f} s"),
    ]


@dataclass(frozen=True)
class Price:
    """What a run costs, in the currency of the price file; `tokens` are those of a step."""

    step: float
    tokens: int | None = None

    @property
    def million_tokens(self) -> float | None:
        """What a million tokens cost."""
        return self.step / self.tokens * 1e6 if self.tokens else None

    def to_json(self) -> dict[str, object]:
        """The JSON object."""
        return {"step": self.step, "tokens": self.tokens, "million_tokens": self.million_tokens}


def _energy(report: Report) -> list[tuple[str, str]]:
    energy = report.energy
    if energy is None or not energy.joules:
        return []
    ordered = sorted(energy.parts.items(), key=lambda part: -part[1])
    parts = ", ".join(
        f"{n} {j / energy.joules:.0%}" for n, j in ordered if j >= 0.01 * energy.joules
    )
    each = " a core" if report.links is not None else ""
    note = " (assumed)" if energy.assumed else ""
    return [
        ("energy" + note, f"{energy.joules * 1e3:,.3f} mJ{each}, {energy.watts:.0f} W: {parts}")
    ]


def _price(price: Price | None) -> list[tuple[str, str]]:
    if price is None:
        return []
    tokens = price.million_tokens
    more = "" if tokens is None else f", {tokens:.6g} per million tokens"
    return [("price", f"{price.step:.6g} a step{more}")]


def _links(report: Report) -> list[tuple[str, str]]:
    """What the links of a slice carried."""
    use = report.links
    if use is None:
        return []
    shortest, longest = min(use.core_cycles), max(use.core_cycles)
    return [
        ("devices", f"{len(use.core_cycles)}, each {shortest:,} to {longest:,} cycles"),
        ("over links", f"{printed_bytes(use.link_bytes)}, {use.mean_share:.1%} of their peak"),
        (
            "busiest link",
            f"{use.busiest_link}: {printed_bytes(use.busiest_bytes)} ({use.busiest_share:.1%})",
        ),
    ]


def printed_seconds(seconds: float) -> str:
    """A time with a fitting unit."""
    return f"{seconds * 1e3:,.3f} ms" if seconds >= 1e-4 else f"{seconds * 1e6:,.3f} us"


def printed_bytes(size_bytes: int) -> str:
    """A size with a fitting unit."""
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:,.1f} kB"


def _causes(report: Report) -> str:
    """The causes of one percent and more, largest first."""
    ordered = sorted(report.causes.items(), key=lambda item: -item[1])
    shares = ((label, cycles / max(report.cycles, 1)) for label, cycles in ordered)
    return ", ".join(f"{label} {share:.0%}" for label, share in shares if share >= 0.01)


def _kernel_row(kernel: KernelReport, total: int) -> list[str]:
    return [
        kernel.name,
        f"{kernel.calls}",
        f"{kernel.cycles:,}",
        f"{kernel.cycles / max(total, 1):.1%}",
        f"{kernel.mxu_utilisation:.1%}",
        f"{kernel.bound_by} {kernel.causes[kernel.bound_by] / max(kernel.cycles, 1):.0%}",
        f"{kernel.hbm_bytes / 1e6:,.1f}",
        f"{kernel.least_bytes / 1e6:,.1f}",
        kernel.note.removeprefix(f"{kernel.name} "),
    ]


def print_differences(differences: Sequence[Difference], tolerance: float) -> None:
    """Print the error of each output (the worst ten when there are many)."""
    out = console()
    worst = sorted(differences, key=lambda d: -d.normalised)[:10]
    worst.sort(key=lambda d: d.output)
    table = Table(title=f"errors (tolerance {tolerance:g})", title_justify="left")
    for heading in ("output", "largest absolute", "largest normalised", ""):
        table.add_column(heading, justify="right")
    for d in worst:
        verdict = "ok" if d.normalised <= tolerance else "FAIL"
        table.add_row(f"out{d.output}", f"{d.absolute:.3e}", f"{d.normalised:.3e}", verdict)
    out.print(table)
    if len(worst) < len(differences):
        out.print(f"({len(differences) - len(worst)} more outputs, all closer)")


def print_outputs(results: Sequence[npt.NDArray[np.generic]], random_seed: int | None) -> None:
    """Print a line per output of the evaluator."""
    out = console()
    if random_seed is not None:
        out.print(f"inputs: random, seed {random_seed} (give your own with --inputs)")
    for number, array in enumerate(results):
        out.print(f"out{number}: {array.dtype}{list(array.shape)}")


def print_chips(name: str | None) -> None:
    """Print all chips in brief, or one in full with provenance."""
    out = console()
    if name is not None:
        out.print(_one_chip(load_chip(name)))
        return
    table = Table()
    for heading in ("chip", "clock GHz", "MXUs", "bf16 TFLOP/s", "HBM GB", "HBM GB/s", "VMEM MiB"):
        table.add_column(heading, justify="left" if heading == "chip" else "right")
    for chip in (load_chip(n) for n in chip_names()):
        table.add_row(
            chip.name,
            f"{chip.clock_hz / 1e9:.2f}",
            f"{chip.mxu_count * chip.cores_per_device} x {chip.mxu_dim}",
            f"{chip.device_peak_flops / 1e12:.0f}",
            f"{chip.hbm_bytes / 1e9:.1f}",
            f"{chip.device_hbm_peak_bytes_per_cycle * chip.clock_hz / 1e9:.0f}",
            f"{chip.vmem_bytes / 2**20:.0f}",
        )
    out.print(table)
    out.print("tpuc targets NAME shows every parameter with its provenance")


def print_table(table: Table) -> None:
    """Print a table."""
    console().print(table)


def _one_chip(chip: Chip) -> Table:
    table = Table(title=chip.name, title_justify="left")
    for heading in ("parameter", "value", "provenance"):
        table.add_column(heading)
    for name, provenance in chip.spec.items():
        table.add_row(name, f"{_value(chip, name):g}", provenance)
    return table


def _value(chip: Chip, name: str) -> float:
    """A parameter by its name in the chip file, such as ``latencies.valu``."""
    table, dot, key = name.partition(".")
    return float(getattr(chip, table)[key] if dot else getattr(chip, name))


def chips_as_json(name: str | None) -> dict[str, object]:
    """Return every parameter of one chip or of all, with provenance."""
    names = [name] if name is not None else list(chip_names())
    return {
        chip.name: {
            key: {"value": _value(chip, key), "provenance": provenance}
            for key, provenance in chip.spec.items()
        }
        for chip in (load_chip(n) for n in names)
    }


def kernels_as_csv(report: Report, listing: Listing) -> str:
    """The kernels as CSV, with all that the JSON says of each but its origins."""
    rows = [kernel.to_json() for kernel in listing.of(report)]
    text = io.StringIO()
    causes = list(report.kernels[0].causes) if report.kernels else []
    names = [name for name in (rows[0] if rows else {}) if name != "causes"]
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*names, *(f"cycles_{cause}" for cause in causes)])
    for row, kernel in zip(rows, listing.of(report), strict=True):
        writer.writerow([*(row[name] for name in names), *(kernel.causes[c] for c in causes)])
    return text.getvalue()
