"""docs/adding-an-llo-pass.md does what it says: its pass, rows and file test are taken from the page."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from compiler.diagnostics import CompileError
from compiler.llo.passes import pass_manager
from compiler.llo.passes.pass_manager import llo_passes
from compiler.llo.passes.pipeline import LLO_MUST_PRECEDE, LLO_PASSES, LLO_PIPELINE, LloPass
from tests.support.filecheck import run_file

PAGE = Path(__file__).parents[3] / "docs" / "adding-an-llo-pass.md"


def examples(language: str) -> list[str]:
    fenced = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", PAGE.read_text(), re.M | re.S)
    return [textwrap.dedent(text) for _, text in fenced]


def test_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, row, edge = examples("python")
    names: dict[str, object] = {"LloPass": LloPass}
    exec(compile(source, "same_select.py", "exec"), names)
    item = eval(row, names)
    assert isinstance(item, LloPass)
    monkeypatch.setitem(LLO_PASSES, item.name, item)
    monkeypatch.setattr(pass_manager, "LLO_MUST_PRECEDE", (*LLO_MUST_PRECEDE, eval(edge)))
    (text,) = examples("llo")
    path = tmp_path / "same_select.llo"
    path.write_text(text)
    run_file(path)
    llo_passes([item.name, *LLO_PIPELINE])
    with pytest.raises(CompileError, match="selects that nothing reads"):
        llo_passes([*LLO_PIPELINE, item.name])


def test_every_pass_has_file_tests_of_its_own() -> None:
    folder = PAGE.parents[1] / "tests" / "filecheck" / "llo"
    few = [name for name in LLO_PASSES if len(list((folder / name).glob("*.llo"))) < 2]
    assert not few, f"want a text that shows each working and one that shows it holding back: {few}"


def test_the_page_of_levels_lists_them() -> None:
    levels = PAGE.with_name("architecture.md").read_text()
    missing = [
        name for name in LLO_PIPELINE if f"- `{name}` {LLO_PASSES[name].summary}" not in levels
    ]
    assert not missing, f"run: python docs/generate.py ({missing})"


def test_every_edge_names_two_passes_and_a_reason() -> None:
    for before, after, reason in LLO_MUST_PRECEDE:
        assert before in LLO_PIPELINE and after in LLO_PIPELINE and reason
    llo_passes(LLO_PIPELINE)
