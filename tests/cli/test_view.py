"""``tpuc view`` from the command line."""

from __future__ import annotations

from pathlib import Path

from tests.support.command_line import Call
from tpuc.view.page_file import read_part


def test_a_page_of_an_estimate_and_of_a_run(call: Call, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = call("view", model, "-o", page)
    assert done.code == 0 and "open it in a browser" in done.out
    main = read_part(page.read_text(), "0.main")
    assert isinstance(main, dict) and main["is_estimate"] and main["cycles"] > 0
    assert call("view", model, "-o", page, "--run").code == 0
    again = read_part(page.read_text(), "0.main")
    assert isinstance(again, dict) and not again["is_estimate"]
    assert again["cycles"] == main["cycles"]


def test_what_it_refuses(call: Call, model: Path, program: Path, tmp_path: Path) -> None:
    assert call("view", program).code == 2
    assert call("view", model, "--inputs", "x.npz").code == 2
    assert call("view", model, "-o", tmp_path / "no" / "page.html").code == 1
    assert call("view", tmp_path / "missing.hlo").code == 1
    assert call("view", model, "--target", "v99").code == 2
