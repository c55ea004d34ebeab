"""What costs most, in the user's own terms: a table of source lines, a tree of operation names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from runtime.origin_costs import UNKNOWN, OriginCost, OriginScope, by_line, by_scope
from runtime.report import Report
from tpuc.own_lines import SAID, are_own_lines, text_file

WIDE = 100
"""Columns of a terminal below which tables have no lines."""
_LEAST_SHARE = 0.01
"""Of a scope in the tree: what is below is added up."""
_IMPORTANT = ("cycles", "share", "bound by")
"""Columns that stay as long as there is room."""
_LEAST_TEXT = 16
"""Characters of a text in a column; one with fewer is not worth its lines."""
_MOST_NAMES = 3
"""In a column of a table."""
_MOST_ADVICE = 3
"""What helps most; JSON and `tpuc view` have all."""


def print_listing(
    out: Console,
    title: str,
    columns: Sequence[str],
    left: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> None:
    """A table of names, digits and, last, a text that is broken.

    A narrow terminal gets no lines, and those columns alone that it has room for, whole: digits that are
    cut say something else. A name is broken only where it would take more than half of the width.
    """
    is_wide = out.width >= WIDE
    cells = [columns, *rows]
    broken = {len(columns) - 1}
    if max(cell_len(row[0]) for row in cells) > out.width // 2:
        broken.add(0)
    shown = range(len(columns)) if is_wide else _fitting(cells, out.width)
    if is_wide and not _has_room_for_words(cells, out.width):
        broken.add(len(columns) - 2)
    table = Table(
        title=title,
        title_justify="left",
        box=box.HEAVY_HEAD if is_wide else box.SIMPLE,
        pad_edge=is_wide,
    )
    for number in shown:
        column = columns[number]
        justify: JustifyMethod = "left" if column in left else "right"
        table.add_column(column, justify=justify, no_wrap=number not in broken, overflow="fold")
    for row in cells[1:]:
        table.add_row(*(row[number] for number in shown))
    out.print(table)
    if left_out := [column for number, column in enumerate(columns) if number not in shown]:
        more = f"not shown at {out.width} columns: {', '.join(left_out)} (a wider terminal, --csv or --json)"
        out.print(more, style="dim", markup=False)


def _has_room_for_words(cells: Sequence[Sequence[str]], width: int) -> bool:
    """Whether what the other columns leave of a line takes each word of the last one."""
    *widths, _ = (max(map(cell_len, column)) for column in zip(*cells, strict=True))
    longest = max(cell_len(word) for row in cells for word in row[-1].split() or [""])
    return sum(widths) + 3 * len(cells[0]) + 1 + longest <= width


def _fitting(cells: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns that fit: the name, then by `_IMPORTANT`, the others from the left, and the text last."""
    columns = cells[0]
    last = len(columns) - 1
    widths = [max(cell_len(row[number]) for row in cells) for number in range(len(columns))]
    widths[last] = min(widths[last], _LEAST_TEXT)
    by_use = sorted(range(1, last + 1), key=lambda n: (columns[n] not in _IMPORTANT, n))
    shown, room = [0], width - 2 - min(widths[0], width // 2)
    for number in by_use:
        room -= widths[number] + 3
        if room < 0:
            break
        shown.append(number)
    return sorted(shown)


def print_lines(out: Console, report: Report, top: int | None, model: str) -> None:
    """The source lines that cost most, `top` of them or all."""
    costs = by_line(report.origin_costs)
    shown = list(costs.items())[:top]
    short = short_places(costs)
    places = {origin.place for origin in report.origin_costs}
    nameless = "" if places >= costs.keys() or places == {""} else ", and of what has none"
    title = f"dearest {len(shown)} of {len(costs)} source lines{nameless}"
    columns = ("line", "cycles", "share", "bound by", "operations")
    left = ("line", "bound by", "operations", "kernels")
    is_wide = out.width >= WIDE
    rows = []
    for line, cost in shown:
        kernels = [_listed(_dearest(cost.sites))] if is_wide else []
        names = _listed(_operations(report, line))
        name = short[line] if line in places or not nameless else f"{line} (no line)"
        rows.append((name, *_numbers(cost, report), names, *kernels))
    print_listing(out, title, (*columns, "kernels") if is_wide else columns, left, rows)
    _say_unknown(out, report, model)


def short_places(places: Iterable[str]) -> dict[str, str]:
    """Places with the last folder of their file alone, where that still tells them apart."""
    files = {place: PurePath(place) for place in places}
    short = {
        place: str(PurePath("…", *path.parts[-2:])) if len(path.parts) > 3 else place
        for place, path in files.items()
    }
    times = Counter(short.values())
    return {place: name if times[name] == 1 else place for place, name in short.items()}


def print_scopes(out: Console, report: Report, model: str) -> None:
    """The tree of operation names, with the scopes of one percent and more."""
    columns = ("operation", "cycles", "share", "bound by", "kernels")
    left = ("operation", "bound by", "kernels")
    scopes = by_scope(report.origin_costs).ordered()
    rows = [row for scope in scopes for row in _scope_rows(scope, "", report)]
    print_listing(out, "cycles by operation name", columns, left, rows)
    _say_unknown(out, report, model)


def print_advice(out: Console, report: Report) -> None:
    """What would help most, a paragraph each; nothing where nothing takes much."""
    shown = report.advice[:_MOST_ADVICE]
    short = short_places(by_line(report.origin_costs))
    if not shown:
        return
    out.print("what would help (each alone, about so much)", style="italic")
    for number, advice in enumerate(shown, 1):
        share = advice.saved_cycles / max(report.cycles, 1)
        where = _listed([short.get(p, p) for p in advice.places] or list(advice.kernels))
        if advice.places:
            where += f" ({_listed(list(advice.kernels))})"
        paragraph = Text(
            f"saves {share:.0%} ({advice.saved_cycles:,.0f} cycles) at {where}", "bold"
        )
        for word, text in (("why", advice.why), ("try", advice.remedy)):
            paragraph.append(Text(f"\n{word}: {text}", "not bold"))
        row = Table.grid(padding=(0, 1))
        row.add_row(f"{number:>2}.", paragraph)
        out.print(row)
    more = len(report.advice) - len(shown)
    if more:
        out.print(f"    ({more} more: --json has them all)")


def _scope_rows(scope: OriginScope, indent: str, report: Report) -> Iterator[tuple[str, ...]]:
    name = scope.name
    while len(scope.children) == 1:  # a chain is one row
        (scope,) = scope.children.values()
        name = f"{name}/{scope.name}"
    cost = scope.cost
    if cost.cycles >= _LEAST_SHARE * report.cycles:
        yield indent + name, *_numbers(cost, report), _listed(_dearest(cost.sites))
        for child in scope.ordered():
            yield from _scope_rows(child, indent + "  ", report)


def _numbers(cost: OriginCost, report: Report) -> tuple[str, str, str]:
    cycles = cost.cycles
    bound = f"{cost.bound_by} {cost.causes.get(cost.bound_by, 0.0) / max(cycles, 1):.0%}"
    return f"{cycles:,.0f}", f"{cycles / max(report.cycles, 1):.1%}", bound


def _operations(report: Report, line: str) -> list[str]:
    """Last parts of the names of a line's operations, dearest first."""
    found = {
        origin.op_name.rpartition("/")[2]: cost.cycles
        for origin, cost in report.origin_costs.items()
        if origin.place == line
    }
    return _dearest(found)


def _dearest(costs: dict[str, float]) -> list[str]:
    return sorted(costs, key=lambda name: -costs[name])


def _listed(names: list[str]) -> str:
    more = [f"{len(names) - _MOST_NAMES} more"] if len(names) > _MOST_NAMES else []
    return ", ".join([*names[:_MOST_NAMES], *more])


def _say_unknown(out: Console, report: Report, model: str) -> None:
    if set(report.origin_costs) <= {UNKNOWN}:
        out.print(
            "the model says nothing of its operations' origins (HLO metadata, StableHLO loc);\n"
            "from JAX: lowered.as_text(debug_info=True), or the HLO of lowered.compile().as_text()"
        )
    elif are_own_lines(report.origin_costs, text_file(model)):
        out.print(SAID, markup=False)
