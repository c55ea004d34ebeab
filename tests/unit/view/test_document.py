"""The document of `tpuc view`, and the page that holds it: what a browser would draw, without one."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from compiler.options import CompileOptions
from runtime.api import compile
from runtime.machines import MachineOptions
from tests.unit.runtime.test_origin_costs import LAYERS
from tpuc.view.collect import ViewOptions, collect
from tpuc.view.document import Graph, KernelCode, Passes, ViewDocument, fields_of
from tpuc.view.page_file import page_text, read_part

OPTIONS = ViewOptions("v5e", CompileOptions(), MachineOptions())
PAGE = Path(__file__).resolve().parents[3] / "tpuc" / "view"


@pytest.fixture(scope="module")
def document() -> ViewDocument:
    return collect(LAYERS, "layers", OPTIONS)


@pytest.fixture(scope="module")
def page(document: ViewDocument) -> str:
    return page_text([document])


def test_main_adds_up(document: ViewDocument) -> None:
    main = document.main
    assert main.cycles == sum(main.causes.values())
    assert sum(site.cycles for site in main.sites) == main.cycles - main.causes["main"]
    assert all(sum(site.causes.values()) == site.cycles for site in main.sites)
    costs = sum(sum(cost.causes.values()) for cost in main.costs)
    assert costs == pytest.approx(main.cycles - main.causes["main"], abs=5)
    assert main.calls.shown == main.calls.total == len(main.calls.rows) // 4 == 3
    named = {str(row[0]) for row in main.origins}
    assert {"net/one/dot", "net/three/tanh"} <= named
    assert all(0 <= number < len(main.origins) for site in main.sites for number in site.origins)


def test_advice_is_that_of_the_report(document: ViewDocument) -> None:
    report = compile(LAYERS).estimate()
    assert [row.saved for row in document.main.advice] == [
        round(advice.saved_cycles) for advice in report.advice
    ]
    assert all(row.lines and row.sites for row in document.main.advice) and report.advice


def test_edits_lead_from_the_input_to_the_final_module(document: ViewDocument) -> None:
    passes = document.parts["passes"]
    assert isinstance(passes, Passes)
    lines = passes.text
    for step in passes.steps:
        assert step.changed or not step.edits
        out: list[str] = []
        at = 0
        for first, gone, come in step.edits:
            assert isinstance(first, int) and isinstance(gone, int) and isinstance(come, list)
            out += [*lines[at:first], *map(str, come)]
            at = first + gone
        lines = [*out, *lines[at:]]
    assert passes.steps[-1].name == "vmem-prefetch"
    assert any("kind=kOutput" in line for line in lines)
    assert not any("metadata=" in line for line in lines)
    assert next(s.name for s in passes.steps if s.changed) != "layout-stripping"


def test_graphs_name_operands_computations_and_origins(document: ViewDocument) -> None:
    main, first, last = document.main, document.parts["graph.input"], document.parts["graph.final"]
    assert isinstance(first, Graph) and isinstance(last, Graph)
    (entry,) = (c for c in first.computations if c.role == "entry")
    by_name = {str(row[0]): row for row in entry.instructions}
    tanh = by_name["tanh"]
    operands = tanh[3]
    assert isinstance(operands, list) and isinstance(operands[0], int)
    assert entry.instructions[operands[0]][1] == "dot"
    numbers = tanh[6]
    assert isinstance(numbers, list) and isinstance(numbers[0], int)
    assert main.origins[numbers[0]] == ["net/one/tanh", "net.py", 11]
    sites = {site.name for site in main.sites}
    final_entry = next(c for c in last.computations if c.role == "entry")
    fusions = [row for row in final_entry.instructions if row[1] == "fusion"]
    assert {str(row[0]) for row in fusions} == sites
    for row in fusions:
        (body,) = row[5] if isinstance(row[5], list) else ()
        assert isinstance(body, int) and last.computations[body].role == "fused"


def test_bundles_say_what_they_come_from(document: ViewDocument) -> None:
    for name in document.main.kernels:
        code = document.parts[f"kernel.{name}"]
        assert isinstance(code, KernelCode)
        opened = [row for row in code.code if row[0] == "open"]
        closed = [row for row in code.code if row[0] == "close"]
        assert len(closed) <= len(opened)
        bundles = [row for row in code.code if row[0] == "b"]
        assert bundles and code.llo.startswith("kernel ")
        assert "matmul" in code.plan
        for row in bundles:
            for op in row[5:]:
                assert isinstance(op, list)
                slot, text, source = op
                assert code.texts[text] and code.slots[slot] and code.sources[source] is not None
        dots = [s for s in code.sources if s.startswith("dot")]
        names = {str(document.main.origins[n][0]) for s in dots for n in code.origins[s]}
        assert {n.rpartition("/")[2] for n in names} == {"dot"}
        assert all(w.row + w.rows <= code.vmem_rows for w in code.windows)


def test_the_page_holds_its_parts_and_needs_nothing_else(document: ViewDocument, page: str) -> None:
    for name, part in document.parts.items():
        assert read_part(page, f"0.{name}") == json.loads(json.dumps(part, default=fields_of))
    outside = re.sub(r"<script.*?</script>|<style>.*?</style>", "", page, flags=re.S)
    assert not re.search(r"\b(src|href)=", outside)
    scripts = [text for _, text in re.findall(r"<script( [^>]*)?>(.*?)</script>", page, re.S)]
    ours = [text for text in scripts if text.startswith('"use strict";\n/*')]
    assert len(ours) >= 6
    assert not any(re.search(r"https?://(?!www\.w3\.org/)", text) for text in ours)


def test_vendored_files_are_small_and_have_their_licences() -> None:
    vendored = sorted((PAGE / "vendor").iterdir())
    assert sum(path.stat().st_size for path in vendored) < 1_000_000
    licences = {path.name.split(".")[0] for path in vendored if path.suffix == ".LICENSE"}
    scripts = {path.name.split(".")[0] for path in vendored if path.suffix in (".js", ".css")}
    assert scripts == licences
    assert all(name in (PAGE / "vendor" / "README.md").read_text() for name in scripts)


def test_a_text_that_ends_a_script_does_not_end_it(document: ViewDocument) -> None:
    document.main.model = "</script><script>alert(1)</script>"
    try:
        page = page_text([document])
        assert "<script>alert" not in page
        assert read_part(page, "0.main")["model"] == document.main.model  # type: ignore[index]
    finally:
        document.main.model = "layers"
