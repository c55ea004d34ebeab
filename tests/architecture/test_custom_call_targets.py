"""A custom call that is executed has a shape rule and a meaning, and a target with a rule is executed."""

from __future__ import annotations

from compiler.hlo.evaluator.custom_calls import KNOWN_TARGETS
from compiler.hlo.ops.custom_calls import RULES
from compiler.passes.expanders.custom_call_expander import TARGETS
from compiler.passes.expanders.single_device import NOTES


def test_targets_with_a_shape_are_those_with_an_expansion() -> None:
    assert set(RULES) == set(TARGETS)


def test_targets_that_run_are_evaluated() -> None:
    """So that `--check` has something to compare with."""
    assert set(TARGETS) | NOTES == KNOWN_TARGETS
