"""Each command that a tutorial prints runs as it is printed there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.support.command_line import Call

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    "tutorials/first-run.md",
    "tutorials/reading-a-kernel.md",
    "tutorials/making-it-faster.md",
    "changing-the-chip.md",
    "debugging.md",
]
"""In the order in which the site has them."""
STANDS_FOR = {"MODEL...": "model.hlo", "MODEL": "model.hlo"}
"""What a reader puts in: any model."""
COMMANDS = [
    (page, line.strip())
    for page in PAGES
    for line in re.findall(
        r"^    (tpuc [^#\n\[]*?)(?:#.*)?$", (ROOT / "docs" / page).read_text(), re.M
    )
]


def test_the_tutorials_are_in_order_and_there() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    places = [site.index(f": {page}") for page in PAGES]
    assert places == sorted(places)
    assert {page for page, _ in COMMANDS} == set(PAGES) - {"debugging.md"}


@pytest.mark.parametrize(("page", "command"), COMMANDS, ids=lambda value: value)
def test_a_command_of_a_tutorial_runs(
    page: str, command: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "model.hlo").write_bytes((ROOT / "examples" / "dot_bias_relu.hlo").read_bytes())
    monkeypatch.chdir(tmp_path)
    words = [STANDS_FOR.get(word, word) for word in shlex.split(command)]
    done = call(*words[1:])
    assert done.code == 0, f"{page}: {command}\n{done.err}"
    for option in ("-o", "--dump-ir", "--csv", "--results"):
        if option in words:
            assert (tmp_path / words[words.index(option) + 1]).exists()
