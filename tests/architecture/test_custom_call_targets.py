"""A custom call that is executed has a shape rule, and a target with a rule is executed."""

from __future__ import annotations

from compiler.hlo.ops.custom_calls import RULES
from compiler.passes.expanders.custom_call_expander import TARGETS


def test_targets_with_a_shape_are_those_with_an_expansion() -> None:
    assert set(RULES) == set(TARGETS)
