"""A few damaged files of every kind; full runs are in docs/machine-programs.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.hostile.kinds import KINDS, mutant, prepare
from benchmarks.hostile.trial import try_mutant


@pytest.mark.parametrize("kind", list(KINDS))
def test_damaged_files_end_with_an_answer_or_a_clear_error(kind: str, tmp_path: Path) -> None:
    prepare(tmp_path)
    for seed in range(10):
        end, detail = try_mutant(kind, mutant(kind, seed), tmp_path)
        assert end != "internal", (seed, detail)


def test_an_internal_error_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr("tpuc.commands.assembly.disasm", fail)
    assert try_mutant("tpux", b"", tmp_path)[0] == "internal"
