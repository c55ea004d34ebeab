"""Pages in a real browser, without a network: every view, deep links, search, keys, themes.

A script goes through the page as a reader does (`walk.js`). Skipped where no Chromium is installed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.browser import BROWSER, Seen, seen_in_page

ROOT = Path(__file__).resolve().parents[3]
pytestmark = pytest.mark.skipif(not BROWSER, reason="no Chromium is installed")
VIEWS = ["Overview", "Kernels", "Code", "Passes", "Graph", "Timeline", "Memory", "Source"]
BUNDLE, LINE, PASS = "#kernel=fusion.5&bundle=41", "#line=examples/attention.py:31", "#pass=fusion"
SHORT_LINE = "#line=attention.py:31"
BY_HAND = {"#view=timeline&kernel=fusion.5": "fusion.5", "#view=memory&hlo=fusion.3": "fusion.3"}
MADE, NODE = "#view=passes&hlo=fusion.5", "#hlo=fusion.5"
WRONG = [
    "#kernel=nope",
    "#hlo=nope",
    f"{BUNDLE}99999",
    "#doc=7",
    "#pass=nope",
    "#view=nope",
    "#hlo=%zz",
]


def walk(folder: Path, arguments: Sequence[str], links: Sequence[str], width: int = 1400) -> Seen:
    """Make a page, go through it in the browser, and return what `walk.js` saw."""
    script = (
        f"window.WALK = {json.dumps(list(links))};"
        + Path(__file__).with_name("walk.js").read_text()
    )
    return seen_in_page(folder, arguments, script, width)


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("page")
    return walk(
        folder,
        [str(ROOT / "examples" / "attention.mlir")],
        [BUNDLE, LINE, SHORT_LINE, PASS, MADE, NODE, *BY_HAND, *WRONG],
    )


def test_every_view_is_drawn_without_an_error_and_within_the_window(seen: Seen) -> None:
    assert list(seen["views"]) == VIEWS and not seen["errors"]
    for name, view in seen["views"].items():
        assert view["view"] == name and view["drawn"] and not view["wide"], name
    assert seen["ready"] < 3000


def test_an_address_opens_what_it_names(seen: Seen) -> None:
    bundle, line = seen["links"][BUNDLE], seen["links"][LINE]
    assert (
        bundle["view"] == "Code" and bundle["about"].startswith("bundle 41") and bundle["on"] == 1
    )
    assert line["view"] == "Source" and "softmax" in line["about"] and line["on"] >= 1
    assert seen["links"][SHORT_LINE]["about"] == line["about"], "the end of a path is enough"
    assert seen["links"][PASS]["view"] == "Passes"
    made = seen["links"][MADE]
    assert made["current"].startswith("fusion") and made["on"] >= 1, "the pass that makes it"
    assert seen["links"][NODE]["inside"], "the node is in the window, beside what is said of it"


def test_an_address_by_hand_selects_the_call_of_what_it_names(seen: Seen) -> None:
    for link, site in BY_HAND.items():
        assert seen["links"][link]["selected"] == site
        assert seen["links"][link]["about"].startswith(site) or "%" in seen["links"][link]["about"]
    assert seen["links"]["#kernel=nope"]["about"] == ""


def test_plots_are_as_wide_as_their_panels(seen: Seen) -> None:
    """The first one was drawn before what is below it brought a scroll bar."""
    plots = seen["views"]["Memory"]["plots"]
    assert len(plots) == 2 and len({wide for wide, _ in plots}) == 1
    assert all(drawn == wide > 500 for wide, drawn in plots)


def test_an_address_of_nothing_is_a_page_still(seen: Seen) -> None:
    assert "There is no kernel nope" in seen["links"]["#kernel=nope"]["text"]
    assert "neither in the model" in seen["links"]["#hlo=nope"]["about"]
    assert all(seen["links"][link]["text"] for link in WRONG)


def test_search_keys_and_themes(seen: Seen) -> None:
    assert len(seen["hits"]) > 7 and seen["found"].startswith("#kernel=fusion")
    assert seen["row"]["on"] == 1 and seen["opened"]["view"] == "Code"
    chosen = seen["row"]["about"].split("\n")[0]
    assert seen["opened"]["about"].startswith(chosen)
    assert seen["themes"][0] != seen["themes"][1]


def test_the_overview_says_what_would_help(seen: Seen) -> None:
    text = seen["views"]["Overview"]["text"]
    assert "What would help" in text and "attention.py:" in text and "→ " in text


def test_a_comparison_and_a_slice_are_drawn_in_a_narrow_window(tmp_path: Path) -> None:
    model = str(ROOT / "examples" / "slice" / "tp_mlp_train.hlo")
    seen = walk(
        tmp_path, [model, "--target", "v5e:4x2", "--target", "v6e:4x2"], ["#view=slice&doc=1"], 800
    )
    assert list(seen["views"]) == [*VIEWS, "Slice", "Compare"] and not seen["errors"]
    bad = {n: v["text"] for n, v in seen["views"].items() if not v["drawn"] or v["wide"]}
    assert not bad
    assert "v6e:4x2" in seen["links"]["#view=slice&doc=1"]["text"]


def test_what_a_comparison_says_of_a_line_stands_in_a_row(tmp_path: Path) -> None:
    """Lines with their text and the causes of the change have room side by side."""
    model = str(ROOT / "examples" / "attention.mlir")
    seen = walk(tmp_path, [model, "--target", "v5e", "--target", "v6e"], [])
    assert not seen["errors"] and "Source lines" in seen["views"]["Compare"]["text"]
    assert 0 < seen["views"]["Compare"]["tallest"] < 50


def test_idle_chips_are_drawn(tmp_path: Path) -> None:
    model = str(ROOT / "examples" / "dot_bias_relu.hlo")
    seen = walk(tmp_path, [model, "--target", "v5e:2x2"], [])
    text = seen["views"]["Slice"]["text"]
    assert not seen["errors"] and "1 of 4 devices" in text and text.count("idle") == 3
    assert not {"NaN", "Infinity", "∞"} & set(text.split())
