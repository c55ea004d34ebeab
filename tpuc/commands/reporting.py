"""What ``tpuc run`` and ``tpuc estimate`` report of a call, on the terminal and in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click

from runtime.energy import price_of
from runtime.executable import Executable
from runtime.report import Report
from runtime.slice_executable import SliceExecutable
from runtime.trace_names import TraceNameError, is_xspace_name
from tpu_sim.isa.files import write_whole
from tpuc import tables
from tpuc.commands.models import Choices, prices_in
from tpuc.commands.terminal import writable
from tpuc.cost_csv import costs_as_csv


@dataclass(frozen=True)
class Files:
    """What of a call is written where: results, a trace, traces of a slice's devices."""

    outputs: str | None
    trace: str | None
    chakra: str | None

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Files:
        """Those of a command's options, which are taken out of `options`."""
        return cls(options.pop("outputs", None), options.pop("trace"), options.pop("chakra"))

    def check(self) -> None:
        """Refuse what cannot be written, or a trace whose name does not say what it is to be."""
        writable(self.outputs)
        try:
            if self.trace is not None:
                is_xspace_name(self.trace)
        except TraceNameError as error:
            raise click.UsageError(f"--trace: {error}") from error
        writable(self.trace)

    def write_traces(self, executable: Executable, report: Report) -> None:
        """Write what was asked for of a call, but for its results."""
        if self.trace:
            report.write_trace(self.trace)
        if self.chakra:
            if not isinstance(executable, SliceExecutable):
                raise click.UsageError("--chakra is for a program of several devices: name a slice")
            executable.write_chakra(self.chakra, report)


_SHOWN = tables.Listing()


@dataclass(frozen=True)
class Shown:
    """What of a report is shown, and written as CSV; what an hour of a chip costs, by chip."""

    listing: tables.Listing
    by: str
    csv_file: str | None
    prices: Mapping[str, float] | None
    tokens: int | None
    as_json: bool

    @classmethod
    def taken_from(cls, options: dict[str, Any]) -> Shown:
        """Those of a command's options, which are taken out of `options`; a price file is read."""
        prices = options.pop("prices")
        return cls(
            tables.Listing(options.pop("top"), options.pop("sort")),
            options.pop("by"),
            options.pop("csv_file"),
            None if prices is None else prices_in(prices, [options["model"]]),
            options.pop("tokens"),
            options.pop("as_json"),
        )

    def choices(self, choices: Choices) -> Choices:
        """What to compile: costs by line and by operation want origins, at least those of the text."""
        return replace(choices, has_lines=self.by != "kernel")

    def check(self) -> None:
        """Refuse before any long work what cannot be done."""
        if self.tokens is not None and self.prices is None:
            raise click.UsageError("--tokens are for their price: give --prices too")
        if self.listing.sort != _SHOWN.sort and self.by != "kernel":
            raise click.UsageError(
                f"--sort is the order of kernels: with --by {self.by} the dearest come first"
            )
        if self.listing.top != _SHOWN.top and self.by == "op" and self.csv_file is None:
            raise click.UsageError("--top is for kernels and lines: --by op shows the whole tree")
        if self.csv_file == "-" and self.as_json:
            raise click.UsageError("--json and --csv - both want standard output")
        if self.csv_file != "-":
            writable(self.csv_file)

    def refuse_with(self, what: str, files: Files, dump_ir: str | None) -> None:
        """Refuse what is of one report beside what makes a table of several."""
        is_listed = self.by != "kernel" or self.listing != _SHOWN or self.csv_file
        if files.trace or files.chakra or dump_ir or is_listed or self.prices:
            raise click.UsageError(
                f"{what} with none of --trace, --chakra, --dump-ir, --by, --top, --sort, --csv, --prices"
            )

    def record(self, executable: Executable, report: Report) -> dict[str, object]:
        """What the JSON has besides; the CSV is written."""
        self._write_csv(report)
        price = self._price(executable, report)
        return {} if price is None else {"price": price.to_json()}

    def show(self, executable: Executable, report: Report, model: str, seed: int | None) -> None:
        """Print the report; with the CSV on standard output, that alone."""
        self._write_csv(report)
        if self.csv_file != "-":
            price = self._price(executable, report)
            chips = executable.device.topology.chip_count
            idle = chips - 1 if executable.device_count == 1 else 0
            tables.print_report(report, model, seed, self.by, self.listing, price, idle)

    def _write_csv(self, report: Report) -> None:
        if self.csv_file == "-":
            click.echo(self._csv(report), nl=False)
        elif self.csv_file is not None:
            write_whole(self.csv_file, self._csv(report).encode())

    def _csv(self, report: Report) -> str:
        if self.by == "kernel":
            return tables.kernels_as_csv(report, self.listing)
        return costs_as_csv(report, self.by, self.listing.top)

    def _price(self, executable: Executable, report: Report) -> tables.Price | None:
        if self.prices is None:
            return None
        chip, devices = executable.device.chip, executable.device_count
        step = price_of(self.prices, chip, report.seconds, devices)
        return tables.Price(step, self.tokens)
