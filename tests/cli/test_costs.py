"""``--by line`` and ``--by op``: what costs most in the user's own terms."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console

from runtime.api import compile
from tests.support.command_line import Call
from tests.unit.runtime.test_origin_costs import LAYERS
from tpuc.cost_tables import print_advice, print_lines, print_listing, short_places


def test_lines_and_operations(call: Call, model: Path, tmp_path: Path) -> None:
    named = tmp_path / "net.mlir"
    named.write_text(LAYERS)
    lines = call("estimate", named, "--by", "line").out
    assert "net.py:10" in lines and "dearest 6 of 6 source lines" in lines
    assert "slowest" not in lines
    scopes = call("run", named, "--by", "op").out
    assert "net" in scopes and "  two" in scopes and "    dot" in scopes
    found = call("estimate", model, "--by", "line").out
    assert "lines are those of its own text" in found and f"{model.name}:" in found


@pytest.mark.parametrize("by", ["line", "op"])
def test_the_order_of_kernels_is_refused_where_none_are_listed(
    call: Call, model: Path, by: str
) -> None:
    done = call("estimate", model, "--by", by, "--sort", "hbm")
    assert done.code == 2 and f"with --by {by} the dearest come first" in done.err
    assert call("estimate", model, "--by", by, "--sort", "hbm", "--csv", "-").code == 2


@pytest.mark.parametrize("by", ["line", "op"])
def test_csv_has_what_the_report_lists(call: Call, tmp_path: Path, by: str) -> None:
    named, path = tmp_path / "net.mlir", tmp_path / "costs.csv"
    named.write_text(LAYERS)
    assert call("estimate", named, "--by", by, "--top", "all", "--csv", path).code == 0
    rows = list(csv.DictReader(path.read_text().splitlines()))
    report = compile(LAYERS).estimate()
    wanted = {o.place if by == "line" else o.op_name for o in report.origin_costs}
    assert {row[by] for row in rows} == wanted and any("net" in name for name in wanted)
    cycles = [int(row["cycles"]) for row in rows]
    assert cycles == sorted(cycles, reverse=True)
    assert sum(cycles) == pytest.approx(sum(k.cycles for k in report.kernels), abs=len(rows))


def test_a_number_of_rows_is_refused_where_a_tree_is_shown(call: Call, model: Path) -> None:
    done = call("estimate", model, "--by", "op", "--top", "3")
    assert done.code == 2 and "--by op shows the whole tree" in done.err


def test_every_report_ends_with_what_would_help(call: Call, tmp_path: Path) -> None:
    named = tmp_path / "net.mlir"
    named.write_text(LAYERS)
    for by in ("kernel", "line", "op"):
        out = call("estimate", named, "--by", by).out
        _, title, advice = out.partition("what would help")
        assert title and advice.count("why: ") == advice.count("try: ") >= 1
        assert "saves " in advice and " cycles) at net.py:" in advice
    assert "what would help" not in call("estimate", named, "--csv", "-").out


def test_narrow_tables_keep_names_and_places_whole(tmp_path: Path) -> None:
    source = LAYERS.replace('"net.py"', '"/home/someone/projects/deep/model/net.py"')
    report = compile(source).estimate()
    out = Console(file=io.StringIO(), width=80, markup=False)
    print_lines(out, report, 4, "m.mlir")
    print_advice(out, report)
    text = cast(io.StringIO, out.file).getvalue()
    assert "dearest 4 of 6" in text and "…/model/net.py:10" in text
    assert max(map(len, text.splitlines())) <= 80
    assert text.count("net.py:") == text.count("…/model/net.py:") >= 5


def test_a_long_text_before_the_last_one_leaves_its_names_whole() -> None:
    out = io.StringIO()
    columns = ("line", "operations", "kernels")
    rows = [("slow.py:4", "dot_general, convert_element_type, iota, " * 2, "fusion.10, fusion.11")]
    print_listing(Console(file=out, width=100), "lines", columns, columns, rows)
    assert "fusion.10, " in out.getvalue() and "convert_element_type, " in out.getvalue()


def test_places_are_shortened_while_that_tells_them_apart() -> None:
    places = ["/a/x/net.py:1", "/b/x/net.py:1", "/b/c/d/net.py:2", "net.py:3", "x/net.py:1"]
    assert list(short_places(places).values()) == [*places[:2], "…/d/net.py:2", *places[3:]]
