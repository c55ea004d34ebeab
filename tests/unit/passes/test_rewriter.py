"""Patterns match what they say, and the rewriter stops when nothing matches."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import BF16, F32, S32, DType
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import array
from compiler.passes.algebraic_simplifier import rules_on
from compiler.rewrite.dims import is_refinement, reshape_groups
from compiler.rewrite.pattern import Match, Op, Splat, X, Y, match, splat_value
from compiler.rewrite.rewriter import RuleSet, rewrite_computation, rule
from tpu_sim.isa.chips import load_chip


def _splat(b: HloBuilder, dtype: DType, value: float) -> HloInstruction:
    return b.broadcast(b.constant(dtype, value), (8,))


def test_commutative_operands_match_in_either_order() -> None:
    b = HloBuilder("m")
    x = b.parameter(array(F32, 8))
    for root in (b.add(x, _splat(b, F32, -0.0)), b.add(_splat(b, F32, -0.0), x)):
        found = match(Op("add", X, Splat(-0.0)), root)
        assert found is not None
        assert found["x"] is x


def test_operands_of_subtract_keep_their_order() -> None:
    b = HloBuilder("m")
    x = b.parameter(array(F32, 8))
    assert match(Op("subtract", X, Splat(0.0)), b.subtract(_splat(b, F32, 0.0), x)) is None


def test_zeros_of_different_sign_are_different() -> None:
    b = HloBuilder("m")
    x = b.parameter(array(F32, 8))
    assert match(Op("add", X, Splat(-0.0)), b.add(x, _splat(b, F32, 0.0))) is None


def test_a_repeated_letter_means_the_same_instruction() -> None:
    b = HloBuilder("m")
    x, y = b.parameter(array(F32, 8)), b.parameter(array(F32, 8))
    assert match(Op("add", X, X), b.add(x, x)) is not None
    assert match(Op("add", X, X), b.add(x, y)) is None
    assert match(Op("add", X, Y), b.add(x, x)) is not None


def test_a_splat_is_seen_through_reshapes_and_in_literals() -> None:
    b = HloBuilder("m")
    assert splat_value(b.reshape(_splat(b, S32, 7), (2, 4))) == 7
    assert splat_value(b.literal(np.full((3,), 5, np.int32))) == 5
    assert splat_value(b.literal(np.arange(3, dtype=np.int32))) is None


def test_rewriting_ends_and_counts_rules() -> None:
    b = HloBuilder("m")
    x = b.parameter(array(F32, 8))
    root = x
    for _ in range(10):
        root = b.unary("negate", root)
    module = b.build_entry(root)
    counts = rewrite_computation(module.entry, rules_on(load_chip("v5e")))
    assert module.entry.root is x
    assert counts["involution"] == 5


def test_a_rule_that_undoes_itself_is_caught() -> None:
    @rule("swap", Op("add", X, Y))
    def swap(instr: HloInstruction, m: Match) -> HloInstruction:
        assert instr.computation is not None
        return instr.computation.add(
            HloInstruction("add", "add", instr.shape, (instr.operands[1], instr.operands[0]))
        )

    b = HloBuilder("m")
    x, y = b.parameter(array(F32, 8)), b.parameter(array(F32, 8))
    module = b.build_entry(b.add(x, y))
    with pytest.raises(AssertionError, match="rules do not end"):
        rewrite_computation(module.entry, RuleSet([swap]))


@pytest.mark.parametrize(
    ("source", "target", "groups"),
    [
        ((8, 1024, 768), (8192, 768), [((0, 1), (0,)), ((2,), (1,))]),
        ((6,), (2, 3), [((0,), (0, 1))]),
        ((8,), (8, 1), [((0,), (0,)), ((), (1,))]),
        ((4, 6), (6, 4), [((0, 1), (0, 1))]),
        ((), (1,), [((), (0,))]),
    ],
)
def test_reshape_groups(
    source: tuple[int, ...], target: tuple[int, ...], groups: list[object]
) -> None:
    assert reshape_groups(source, target) == groups


def test_splitting_refines_and_merging_does_not() -> None:
    assert is_refinement((8192, 768), (8, 1024, 12, 64))
    assert not is_refinement((8, 1024), (8192,))
    assert not is_refinement((4, 6), (6, 4))


def test_bf16_narrow_values_are_not_widened_twice() -> None:
    b = HloBuilder("m")
    x = b.parameter(array(BF16, 8))
    module = b.build_entry(b.convert(b.convert(x, F32), BF16))
    rewrite_computation(module.entry, rules_on(load_chip("v5e")))
    assert module.entry.root is x
