"""Every rewrite on random matches: a fixed number of each, and none that never fires.

`python -m benchmarks.rule_fuzz --matches N` runs any number.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
import pytest

from benchmarks.rule_fuzz.compare import difference
from benchmarks.rule_fuzz.expanders import ELSEWHERE, MAKERS
from benchmarks.rule_fuzz.harness import Subject, Tally, run
from benchmarks.rule_fuzz.pairs import NOT_DRAWN
from benchmarks.rule_fuzz.subjects import subjects
from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.passes.algebraic_simplifier import rules_on
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import Expansion
from compiler.passes.pair_types.pair_rewriter import RULES as RULES_OF_PAIRS
from compiler.passes.pass_manager import FunctionPass
from compiler.passes.pipeline import PASSES
from compiler.rewrite.graph import emit, replace
from compiler.rewrite.rewriter import Freedom
from tpu_sim.isa.chips import load_chip

SUBJECTS = subjects()
MATCHES = 6


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
def test_rewrites_keep_values(subject: Subject) -> None:
    tally = Tally()
    run(subject, MATCHES, 0, tally)
    assert not tally.failures, str(tally.failures[0])
    assert tally.matches[subject.name] == MATCHES, "give it an example or a maker"


def test_every_rule_is_among_them() -> None:
    names = {subject.name for subject in SUBJECTS}
    assert len(names) == len(SUBJECTS)
    assert {f"rule {rule.name}" for rule in rules_on(load_chip("v5e")).rules} <= names


def test_every_expansion_is_among_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables that passes hand to the driver, opcode by opcode."""
    known = MAKERS.keys() | ELSEWHERE.keys()
    chip = load_chip("v5e")
    for name, item in PASSES.items():
        assert isinstance(item, FunctionPass)
        found: list[str] = []

        def record(
            module: HloModule,
            context: PassContext,
            table: Mapping[str, Expansion],
            found: list[str] = found,
        ) -> bool:
            found.extend(table)
            return False

        place = sys.modules[item.function.__module__]
        if not hasattr(place, "expand"):
            continue
        monkeypatch.setattr(place, "expand", record)
        for devices in (1, 2):
            text = (
                f"HloModule m, num_partitions={devices}\nENTRY e {{ ROOT x = f32[] parameter(0) }}"
            )
            item.run(parse_module(text), PassContext(chip))
        assert found, name
        missing = [o for o in found if (name, o) not in known and (name, "*") not in known]
        assert not missing, f"{name} expands {missing}: give them a maker"


def test_every_pair_rule_is_among_them() -> None:
    names = {subject.name for subject in SUBJECTS}
    missing = [o for o in RULES_OF_PAIRS if f"pair {o}" not in names and o not in NOT_DRAWN]
    assert not missing


def test_a_wrong_rewrite_is_found() -> None:
    def negated(module: HloModule) -> bool:
        root = module.entry.root_instruction
        if root.opcode != "subtract":
            return False
        left, right = root.operands
        replace(root, emit(root, "subtract", root.shape, (right, left)))
        return True

    right = next(s for s in SUBJECTS if s.name == "rule subtract-negate")
    tally = Tally()
    run(Subject("wrong", right.make, negated), 20, 0, tally)
    assert len(tally.failures) > 10


@pytest.mark.parametrize(
    ("want", "got", "freedom", "is_same"),
    [
        (0.0, -0.0, Freedom.NONE, False),
        (0.0, -0.0, Freedom.SIGN_OF_ZERO, True),
        (np.nan, np.nan, Freedom.NONE, True),
        (np.nan, 1.0, Freedom.SIGN_OF_ZERO, False),
        (1.0, 1.0000001, Freedom.NONE, False),
        (1.0, 1.0000001, Freedom.ROUNDING, True),
        (1.0, 1.0001, Freedom.ROUNDING, False),
        (np.inf, 3e38, Freedom.ROUNDING, False),
    ],
)
def test_freedoms(want: float, got: float, freedom: Freedom, *, is_same: bool) -> None:
    found = difference(np.float32([want]), np.float32([got]), freedom)
    assert bool(found) != is_same
