"""Writes the table of docs/cost-model.md: what generated code costs on several chips.

python -m benchmarks.code_costs
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from compiler.analysis import code_costs
from compiler.analysis.cost_units import Cost, Costs, Rate
from tpu_sim.isa.chips import load_chip

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cost-model.md"
CHIPS = ("v4", "v5e", "v5p", "v6e", "7x")
_TABLE = re.compile(r"(<!-- begin costs -->\n).*?(<!-- end costs -->)", re.DOTALL)


def subjects() -> list[type[Costs]]:
    """The classes of rows, in the order of their file."""
    found = [c for c in vars(code_costs).values() if inspect.isclass(c) and Costs in c.__bases__]
    return sorted(found, key=lambda c: inspect.getsourcelines(c)[1])


def page(text: str) -> str:
    """The page with its table made anew."""
    table = "\n".join(_table())
    return _TABLE.sub(lambda match: f"{match[1]}{table}\n{match[2]}", text)


def _table() -> list[str]:
    lines = [
        f"| | of | follows | from | {' | '.join(CHIPS)} |",
        f"|---|---|---|---|{'---:|' * len(CHIPS)}",
    ]
    for subject in subjects():
        for name, row in subject.rows().items():
            lines.append(f"| `{subject.__name__}.{name}` | {_cells(row)} |")
    return lines


def _cells(row: Cost) -> str:
    unit = f"1 / {row.unit.name}" if isinstance(row, Rate) else row.unit.name
    numbers = (f"{row.on(load_chip(chip)):.4g}" for chip in CHIPS)
    return " | ".join((row.meaning, unit, row.provenance.name.lower(), *numbers))


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
