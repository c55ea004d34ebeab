"""``tpuc passes``: the HLO passes in their order, and what each did to a model."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from compiler.passes.pass_manager import FunctionPass, Pass, PassTiming
from compiler.passes.pipeline import ON_REQUEST, PARTITIONING, PASSES, PIPELINE
from tpuc.tables import heading, shown_name


@dataclass(frozen=True)
class PassRow:
    """A pass as it stands in the pipeline; `when` says when it runs, if not always."""

    name: str
    what: str
    when: str = ""


def pass_rows() -> list[PassRow]:
    """Every step of the pipeline, and before them what runs on request or for a slice. A pass may
    run twice."""
    steps = [(name, "for a slice") for name in PARTITIONING]
    steps += [(name, "on request") for name in ON_REQUEST]
    steps += [(name, "") for name in PIPELINE]
    return [PassRow(name, _first_sentence(PASSES[name]), when) for name, when in steps]


def _first_sentence(item: Pass) -> str:
    described = item.function if isinstance(item, FunctionPass) else item
    text = " ".join((inspect.getdoc(described) or "").split("\n\n")[0].split())
    return text.split(". ")[0].rstrip(".")


def as_json(timings: Sequence[PassTiming] | None) -> list[dict[str, object]]:
    """The passes; or for a model, what ran."""
    if timings is None:
        return [
            {"name": row.name, "what": row.what, "when": row.when or "always"}
            for row in pass_rows()
        ]
    return [
        {
            "name": timing.name,
            "changed": timing.is_changed,
            "seconds": timing.seconds,
            "instructions": timing.instruction_count,
            "counts": timing.counts,
            "remarks": [*timing.remarks, *timing.fallbacks],
        }
        for timing in timings
    ]


def print_passes(console: Console) -> None:
    """All passes, what each does."""
    table = Table()
    for column in ("pass", "what it does"):
        table.add_column(column)
    for row in pass_rows():
        name = f"{row.name} ({row.when})" if row.when else row.name
        table.add_row(name, row.what)
    console.print(table)


def print_timings(console: Console, model: str, timings: Sequence[PassTiming]) -> None:
    """The passes that changed a model, with what they counted and said."""
    changed = [timing for timing in timings if timing.is_changed]
    heading(console, f"{len(changed)} of {len(timings)} passes changed {shown_name(model)}")
    table = Table()
    table.add_column("pass")
    table.add_column("ms", justify="right")
    table.add_column("instructions", justify="right")
    table.add_column("did")
    for timing in changed:
        did = ", ".join(f"{name} {count}" for name, count in timing.counts.items())
        table.add_row(
            timing.name, f"{1000 * timing.seconds:.1f}", f"{timing.instruction_count:,}", did
        )
    console.print(table)
    for timing in timings:
        for remark in (*timing.remarks, *timing.fallbacks):
            console.print(f"{timing.name}: {remark}")
