"""Random modules: what the machines compute is what the evaluator computes.

A failure's smallest module is left in ``.hypothesis/last_random_module.hlo``; once it is mended
it belongs in ``tests/data/regressions``. Ordinarily few examples are run, the same ones each time;

    TPUC_RANDOM_MODULES=2000 pytest tests/property

runs as many new ones.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from tests.support.module_checks import check_module
from tests.support.random_modules import modules

REGRESSIONS = sorted((Path(__file__).parents[1] / "data" / "regressions").glob("*.hlo"))

COUNT = int(os.environ.get("TPUC_RANDOM_MODULES", "0"))
PROFILE = settings(
    max_examples=COUNT or 40,
    derandomize=not COUNT,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@PROFILE
@given(modules())
def test_evaluator_and_native_machine_agree(text: str) -> None:
    check_module(text)


@PROFILE
@given(modules())
def test_printed_modules_parse_to_themselves(text: str) -> None:
    printed = print_module(parse_module(text))
    assert print_module(parse_module(printed)) == printed


@pytest.mark.parametrize("path", REGRESSIONS, ids=lambda path: path.stem)
def test_what_failed_once_works(path: Path) -> None:
    check_module(path.read_text(), ("llvm", "numpy"))
