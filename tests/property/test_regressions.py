"""Modules that failed once: what the machines compute is what the evaluator computes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.module_checks import check_module

REGRESSIONS = sorted((Path(__file__).parents[1] / "data" / "regressions").glob("*.hlo"))


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_failed_once_works(path: Path) -> None:
    check_module(path.read_text(), ("llvm", "numpy"))
