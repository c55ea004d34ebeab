"""Random control flow: the machine computes what the evaluator does, and no buffer is overwritten.

Everything is verified on the way, buffers included. Ordinarily few seeds are run;

    TPUC_RANDOM_MODULES=2000 pytest tests/property/test_random_control.py

runs as many more. A failure's module is left in ``.hypothesis/last_random_module.hlo``.
"""

from __future__ import annotations

import os
from contextlib import nullcontext

import numpy as np
import pytest

import tpuc
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module
from runtime.machines import MachineOptions
from tests.support.module_checks import LAST_FAILURE, inputs_for
from tests.support.random_control import control_module
from tests.support.run_hlo import expected, small_blocks

COUNT = int(os.environ.get("TPUC_RANDOM_MODULES", "40"))


@pytest.mark.parametrize("seed", range(COUNT))
def test_evaluator_and_machine_agree(seed: int) -> None:
    # Small blocks make several grid steps of what would be one: updates in place must not see them.
    with small_blocks(1) if seed % 2 else nullcontext():
        check(control_module(seed), seed)


def check(text: str, seed: int) -> None:
    """All results are the evaluator's, to the bit; a text that fails is kept."""
    try:
        inputs = inputs_for(text, seed)
        wants = expected(text, inputs)
        for machine in ("numpy", "llvm") if seed % 4 == 0 else ("numpy",):
            options = MachineOptions(machine=machine, cache=False)
            found = tpuc.compile(text, precision="highest", machine=options)(*inputs)
            for want, got in zip(wants, found, strict=True):
                np.testing.assert_array_equal(np.asarray(got), want, strict=True)
    except BaseException:
        LAST_FAILURE.parent.mkdir(exist_ok=True)
        LAST_FAILURE.write_text(text)
        raise


def test_modules_depend_on_the_seed_alone() -> None:
    assert control_module(7) == control_module(7)
    assert len({control_module(seed) for seed in range(5)}) == 5


@pytest.mark.parametrize("seed", range(10))
def test_printed_modules_parse_to_themselves(seed: int) -> None:
    printed = print_module(parse_module(control_module(seed)))
    assert print_module(parse_module(printed)) == printed
