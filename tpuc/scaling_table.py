"""How a program scales over targets: time, what of it is communication, efficiency, and what limits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table

from runtime.report import Report
from tpuc.tables import console, heading, printed_bytes, printed_seconds, shown_name


@dataclass(frozen=True)
class ScalingPoint:
    """A program on one target. `communication_seconds` are those of kernels that exchange data and
    hide behind nothing; `limit` is the cause of most cycles."""

    target: str
    chip: str
    devices: int
    cycles: int
    seconds: float
    communication_seconds: float
    hbm_bytes: int
    limit: str
    limit_share: float


def scaling_point(report: Report, devices: int, chip: str) -> ScalingPoint:
    """What a report says of a target, so many devices of a chip."""
    exchanging = sum(kernel.cycles for kernel in report.kernels if kernel.causes.get("ici"))
    limit = max(report.causes, key=lambda cause: report.causes[cause])
    return ScalingPoint(
        report.target,
        chip,
        devices,
        report.cycles,
        report.seconds,
        exchanging * report.seconds / max(report.cycles, 1),
        report.hbm_peak_bytes,
        limit,
        report.causes[limit] / max(report.cycles, 1),
    )


def efficiency(point: ScalingPoint, first: ScalingPoint) -> float:
    """Device-seconds of the first target over this one's: 1 where more devices lose nothing."""
    return first.seconds * first.devices / (point.seconds * point.devices)


def is_comparable(point: ScalingPoint, first: ScalingPoint) -> bool:
    """Whether both are slices of one chip: of two chips the device-seconds say nothing of scaling."""
    return point.chip == first.chip


def print_scaling(points: Sequence[ScalingPoint], model: str) -> None:
    """A row for each target; efficiency is against the first one, of slices of its chip."""
    out = console()
    heading(out, f"{shown_name(model)} on several targets")
    table = Table()
    for column in (
        "target",
        "devices",
        "time",
        "speed-up",
        "efficiency",
        "communication",
        "HBM a device",
        "limit",
    ):
        table.add_column(column, justify="left" if column in ("target", "limit") else "right")
    first = points[0]
    for point in points:
        table.add_row(
            point.target,
            str(point.devices),
            printed_seconds(point.seconds),
            f"{first.seconds / point.seconds:.2f}",
            f"{efficiency(point, first):.1%}" if is_comparable(point, first) else "-",
            f"{point.communication_seconds / point.seconds:.1%}",
            printed_bytes(point.hbm_bytes),
            f"{point.limit} {point.limit_share:.0%}",
        )
    out.print(table)
