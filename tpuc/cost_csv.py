"""Costs by source line or by operation name as CSV."""

from __future__ import annotations

import csv
import io
from collections import defaultdict

from runtime.origin_costs import OriginCost, by_line
from runtime.report import Report


def costs_as_csv(report: Report, by: str, top: int | None) -> str:
    """The dearest lines, or operation names, `top` of them or all; of each the cycles, also by cause."""
    costs = by_line(report.origin_costs) if by == "line" else _by_name(report)
    causes = list(report.kernels[0].causes) if report.kernels else []
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [f"cycles_{cause}" for cause in causes]
    writer.writerow([by, "cycles", "share", "bound_by", "kernels", *columns])
    for name, cost in sorted(costs.items(), key=lambda item: -item[1].cycles)[:top]:
        share = cost.cycles / max(report.cycles, 1)
        kernels = " ".join(sorted(cost.sites, key=lambda site: -cost.sites[site]))
        each = [round(cost.causes.get(cause, 0.0)) for cause in causes]
        writer.writerow([name, round(cost.cycles), f"{share:.4f}", cost.bound_by, kernels, *each])
    return text.getvalue()


def _by_name(report: Report) -> dict[str, OriginCost]:
    found: dict[str, OriginCost] = defaultdict(OriginCost)
    for origin, cost in report.origin_costs.items():
        found[origin.op_name].take(cost)
    return found
