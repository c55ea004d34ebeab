"""Clicks on a page in a real browser: what is clicked can be reached, is selected, and leads to other views.

`clicks.js` clicks as a reader does and writes down what each click led to. Skipped where no Chromium is
installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import BROWSER, Seen, seen_in_page

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not BROWSER, reason="no Chromium is installed")


def clicked(folder: Path, *arguments: str) -> Seen:
    script = Path(__file__).with_name("clicks.js").read_text()
    seen = seen_in_page(folder, arguments, script)
    assert not seen["errors"] and not seen["covered"]
    steps: Seen = seen["steps"]
    return steps


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    found = clicked(tmp_path_factory.mktemp("page"), str(ROOT / "examples" / "attention.mlir"))
    missing = [what for what, step in found.items() if step is None]
    assert not missing, "nothing was there to be clicked"
    return found


def test_each_tab_opens_its_view(steps: Seen) -> None:
    tabs = [what for what in steps if what.startswith("tab ") and ":" not in what]
    assert len(tabs) == 8 and all(steps[tab]["view"] == tab.removeprefix("tab ") for tab in tabs)
    for tab in ("LLO", "Plan", "VMEM", "Transfers", "Bundles"):
        step = steps[f"tab of a kernel: {tab}"]
        assert step["view"] == "Code" and "site=fusion.6" in step["hash"]
    assert "KiB" in steps["tab of a kernel: VMEM"]["text"]
    assert "kernel=fusion.6&" not in steps["next kernel"]["hash"]


def test_kernels_are_selected_from_every_list(steps: Seen) -> None:
    circle, row = steps["circle of the roofline"], steps["row of a kernel"]
    assert circle["about"].split("\n")[0] == circle["tip"].split("\n")[0]
    assert row["about"].startswith(row["name"]) and row["on"] == 1
    for what in ("bundles, beside a kernel", "name of a kernel"):
        assert steps[what]["view"] == "Code" and steps[what]["about"].startswith(row["name"])
    head = steps["head of a column"]
    assert head["after"] != head["before"]
    assert sorted(head["after"].split(",")) == sorted(head["before"].split(","))


def test_advice_leads_to_its_line(steps: Seen) -> None:
    step = steps["where advice is"]
    assert step["view"] == "Source" and "attention.py:" in step["about"] and step["on"] == 1


def test_a_bundle_stands_out_and_leads_to_what_it_is_for(steps: Seen) -> None:
    bundle, source = steps["bundle"], steps["source of a bundle"]
    assert bundle["about"].startswith(f"bundle {bundle['number']}") and bundle["on"] == 1
    assert f"bundle={bundle['number']}" in bundle["hash"]
    assert source["about"].startswith("%") and "hlo=" in source["hash"] and source["on"] == 1


def test_nodes_of_the_graph_are_selected_opened_and_closed(steps: Seen) -> None:
    call, opened = steps["fusion in the graph"], steps["fusion, twice"]
    assert call["about"].startswith(f"%{call['name']}") and call["on"] >= 1
    assert steps["operand of a node"]["view"] == "Graph" and steps["operand of a node"]["on"] >= 1
    assert opened["boxes"] > opened["boxes_before"]
    closed = steps["close what is open"]
    assert closed["boxes"] < closed["boxes_before"], "also around what was selected"
    scope = steps["scope, twice"]
    assert scope["boxes"] > scope["boxes_before"]
    assert "graph=input" in steps["the model's own graph"]["hash"]


def test_slices_of_the_timeline(steps: Seen) -> None:
    once, twice = steps["slice of a call"], steps["slice of a call, twice"]
    for step in (once, twice, steps["grid step"]):
        assert step["about"].startswith(once["name"]) and f"site={once['name']}" in step["hash"]
    assert twice["wide"] not in twice["text"], "two clicks open the call"
    assert steps["grid step"]["tip"].startswith("grid step ")
    assert "cycles" in steps["grid step"]["tip"]


def test_memory_and_its_buffers(steps: Seen) -> None:
    plot, buffer = steps["plot of HBM"], steps["buffer"]
    assert "Then, from cycle" in plot["text"], "at its left end it is not fullest"
    assert buffer["view"] == "Memory" and buffer["on"] >= 1
    assert buffer["about"].startswith(f"%{buffer['name'].split(' ')[0]}")
    place = steps["place of a buffer in the graph"]
    assert place["view"] == "Graph" and place["on"] >= 1


def test_lines_and_names_of_operations(steps: Seen) -> None:
    line, scope, mark = steps["source line"], steps["name of a scope"], steps["mark of a scope"]
    assert line["about"].startswith(line["name"].split("/")[0]) and line["on"] == 1
    made = steps["instruction of a line"]
    assert made["view"] == "Graph" and made["about"].startswith("%") and made["on"] >= 1
    assert f"op={scope['path']}" in scope["hash"] and scope["about"].startswith(scope["path"])
    assert scope["on"] == 1 and 0 < mark["after"] < mark["before"]


def test_passes_their_folds_and_lines(steps: Seen) -> None:
    chosen, fold, line = steps["pass"], steps["fold of equal lines"], steps["line of a pass"]
    assert f"pass={chosen['name']}&" in chosen["hash"]
    assert fold["text_before"] in chosen["text"] and fold["text_before"] not in fold["text"]
    assert line["about"].startswith(f"%{line['name']}") and line["on"] >= 1
    assert "show all" in line["text"] and "only the" in steps["all passes"]["text"]


def test_what_is_pointed_at_is_explained(steps: Seen) -> None:
    assert "cycles" in steps["cause in a bar"]["hint"]
    assert steps["circle of the roofline"]["hint"] == steps["circle of the roofline"]["tip"]


def test_help_opens_and_closes(steps: Seen) -> None:
    assert steps["help"]["open"] and not steps["help, closed"]["open"]


def test_a_comparison_leads_to_either_side(tmp_path: Path) -> None:
    model = str(ROOT / "examples" / "slice" / "tp_mlp_train.hlo")
    steps = clicked(tmp_path, model, "--target", "v5e:4x2", "--target", "v6e:4x2")
    assert steps["tab Slice"]["view"] == "Slice" and steps["chip"]["view"] == "Slice"
    kernel, other = steps["kernel of a comparison"], steps["the other document"]
    assert kernel["view"] == "Code" and "bundle" in kernel["text"]
    assert "doc=1" in other["hash"]
    assert steps["chip"]["hint"].startswith("chip 0 at (0, 0, 0)")
