"""Operations in forms that programs seldom have: each goes through code that nothing else here enters."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.fuzz import check as fuzz
from benchmarks.fuzz.sharded import check_annotated

DATA = Path(__file__).parents[1] / "data" / "rare_paths"
ALWAYS = 1 << 40


@pytest.mark.parametrize("path", sorted(DATA.glob("*.hlo")), ids=lambda path: path.stem)
def test_both_machines_compute_what_the_evaluator_does(path: Path) -> None:
    outcome = fuzz.check(path.read_text(), fuzz.Ways(numpy_cycles=ALWAYS))
    assert outcome.kind == fuzz.OK, outcome.detail


@pytest.mark.parametrize(
    "path", sorted((DATA / "sharded").glob("*.hlo")), ids=lambda path: path.stem
)
def test_devices_compute_what_one_does(path: Path) -> None:
    outcome = check_annotated(path.read_text(), 0)
    assert outcome.kind == fuzz.OK, outcome.detail
