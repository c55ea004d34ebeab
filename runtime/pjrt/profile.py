"""What JAX's functions cost on the emulated chip: a record for each, kept while `profiling` is on.

start()                  from now on compilations and runs are recorded
start_trace()            and kept for a trace until stop_trace()
records()                by function, in the order of their first compilation
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from runtime.report import Report, Traced


@dataclass
class ProgramRecord:
    """All programs that JAX made of functions of one name, and their runs.

    `seconds` are of the chip, `hbm_peak_bytes` is the most that a run took, `causes` cycles by cause;
    utilisations are means over the cycles. A program of several devices counts as the device that took
    longest.
    """

    name: str
    compiles: int = 0
    compile_seconds: float = 0.0
    runs: int = 0
    cycles: int = 0
    seconds: float = 0.0
    hbm_peak_bytes: int = 0
    hbm_bytes: int = 0
    emulated_seconds: float = 0.0
    causes: Counter[str] = field(default_factory=Counter)
    _mxu_cycles: float = 0.0

    @property
    def mxu_utilisation(self) -> float:
        """The share of the matrix units' peak that was used."""
        return self._mxu_cycles / self.cycles if self.cycles else 0.0

    def add_run(self, reports: Sequence[Report]) -> None:
        """Take in a run, which has a report for each of its stages."""
        self.runs += 1
        for report in reports:
            self.cycles += report.cycles
            self.seconds += report.seconds
            self.emulated_seconds += report.execute_seconds
            self.hbm_bytes += report.hbm_bytes
            self.hbm_peak_bytes = max(self.hbm_peak_bytes, report.hbm_peak_bytes)
            self.causes.update(report.causes)
            self._mxu_cycles += report.mxu_utilisation * report.cycles


class Profile:
    """The records of this process, if anybody wants them."""

    def __init__(self) -> None:
        self.is_on = False
        self._has_started = False
        self._records: dict[str, ProgramRecord] = {}
        self._traced: dict[int, list[Traced]] | None = None

    def start(self) -> None:
        """Record from now on."""
        self.is_on = self._has_started = True

    def start_trace(self) -> None:
        """Keep all runs from now on."""
        self.is_on, self._traced = True, {}

    def stop_trace(self) -> dict[int, list[Traced]]:
        """The runs since `start_trace`, by device."""
        found, self._traced = self._traced, None
        self.is_on = self._has_started
        return found or {}

    def add_run(self, name: str, device: int, reports: Sequence[Report]) -> None:
        """Take in a run of a function's program."""
        self.of(name).add_run(reports)
        if self._traced is not None:
            runs = self._traced.setdefault(device, [])
            runs += [report.traced for report in reports if report.traced is not None]

    def records(self) -> list[ProgramRecord]:
        """What was recorded."""
        return list(self._records.values())

    def of(self, name: str) -> ProgramRecord:
        """The record of a function."""
        return self._records.setdefault(name, ProgramRecord(name))


profile = Profile()
"""The one of this process."""
