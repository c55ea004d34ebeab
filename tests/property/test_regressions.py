"""Modules that failed once: what both machines compute is what the evaluator computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzz import check as fuzz

REGRESSIONS = sorted((Path(__file__).parents[1] / "data" / "regressions").glob("*.hlo"))
ALWAYS = 1 << 40


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_failed_once_works(path: Path) -> None:
    outcome = fuzz.check(path.read_text(), fuzz.Ways(numpy_cycles=ALWAYS))
    assert outcome.kind == fuzz.OK, outcome.detail
