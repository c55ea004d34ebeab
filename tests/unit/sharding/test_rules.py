"""Sharding rules: one for every opcode, and what each says."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES
from compiler.hlo.parser import parse_module
from compiler.passes.expanders.simple_expansions import COMPOSED
from compiler.sharding.movement_rules import common_runs
from compiler.sharding.op_rules import NO_RULE, RULES, rule_of


def instruction(text: str) -> HloInstruction:
    """The root of a computation; `add` and `less` are there to be applied."""
    return parse_module(
        "add { p = f32[] parameter(0) q = f32[] parameter(1) ROOT s = f32[] add(p, q) }\n"
        "set { p = f32[] parameter(0) ROOT q = f32[] parameter(1) }\n"
        "less { p = f32[] parameter(0) q = f32[] parameter(1) "
        "ROOT c = pred[] compare(p, q), direction=LT }\n"
        f"ENTRY e {{ {text} }}"
    ).entry.root_instruction


def test_every_opcode_has_a_rule_or_a_reason() -> None:
    assert RULES.keys() | NO_RULE.keys() | COMPOSED.keys() == OPCODES.keys()
    assert not RULES.keys() & NO_RULE.keys()
    assert all(reason for reason in NO_RULE.values())


A, B = "a = f32[8,4] parameter(0)", "b = f32[4,6] parameter(1)"
N = "i = s32[5,1] parameter(1)"
U = "u = f32[5,4] parameter(2)"
ONE = "i = s32[] parameter(1)"


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (f"{A} ROOT r = f32[8,4] add(a, a)", "([i, j], [i, j])->([i, j]) {i=8, j=4}"),
        (
            f"{A} p = pred[] parameter(1) ROOT r = f32[8,4] select(p, a, a)",
            "([], [i, j], [i, j])->([i, j]) {i=8, j=4}",
        ),
        (
            f"{A} {B} ROOT r = f32[8,6] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
            "([i, k], [k, j])->([i, j]) {i=8, j=6, k=4} reduce={k}",
        ),
        (
            f"{A} ROOT r = f32[4,8] transpose(a), dimensions={{1,0}}",
            "([j, i])->([i, j]) {i=4, j=8}",
        ),
        (
            f"{A} ROOT r = f32[8,3,4] broadcast(a), dimensions={{0,2}}",
            "([i, j])->([i, k, j]) {i=8, j=4, k=3}",
        ),
        (f"{A} ROOT r = f32[32] reshape(a)", "([i, j])->([ij]) {i=8, j=4}"),
        (f"{A} ROOT r = f32[2,16] reshape(a)", "([ij, k])->([i, jk]) {i=2, j=4, k=4}"),
        (f"{A} ROOT r = f32[16,1,2] reshape(a)", "([i, jk])->([ij, l, k]) {i=8, j=2, k=2, l=1}"),
        (
            f"{A} z = f32[] constant(0) ROOT r = f32[4] reduce(a, z), dimensions={{0}}, to_apply=add",
            "([i, j], [])->([j]) {i=8, j=4} reduce={i}",
        ),
        (
            f"{A} ROOT r = f32[8,2] slice(a), slice={{[0:8], [1:3]}}",
            "([i, j])->([i, j]) {i=8, j=4} permute={j}",
        ),
        (
            f"{A} ROOT r = f32[8,8] concatenate(a, a), dimensions={{1}}",
            "([i, j], [i, j])->([i, j]) {i=8, j=8} replicate={j}",
        ),
        (
            f"{A} ROOT r = f32[8,4] reverse(a), dimensions={{0}}",
            "([i, j])->([i, j]) {i=8, j=4} permute={i}",
        ),
        (
            f"{A} ROOT r = f32[8,4] sort(a), dimensions={{1}}, to_apply=less",
            "([i, j])->([i, j]) {i=8, j=4} replicate={j}",
        ),
        (
            f"{A} {N} ROOT r = f32[5,4] gather(a, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
            "start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}",
            "([k, j], [i, l])->([i, j]) {i=5, j=4, k=8, l=1} reduce={k}",
        ),
        (
            f"{A} {N} {U} ROOT r = f32[8,4] scatter(a, i, u), update_window_dims={{1}}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
            "([k, j], [i, l], [i, j])->([k, j]) {i=5, j=4, k=8, l=1} reduce={i}",
        ),
        (
            f"{A} {N} {U} ROOT r = f32[8,4] scatter(a, i, u), update_window_dims={{1}}, "
            "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=set",
            "([k, j], [i, l], [i, j])->([k, j]) {i=5, j=4, k=8, l=1} replicate={i}",
        ),
        (
            "x = f32[2,8,8,4] parameter(0) w = f32[3,3,4,6] parameter(1) "
            "ROOT r = f32[2,8,8,6] convolution(x, w), window={size=3x3 pad=1_1x1_1}, "
            "dim_labels=b01f_01io->b01f",
            "([i, l, m, j], [n, o, j, k])->([i, l, m, k]) {i=2, j=4, k=6, l=8, m=8, n=3, o=3} "
            "reduce={j} permute={l, m}",
        ),
        (
            "x = f32[2,8,4] parameter(0) w = f32[3,1,4] parameter(1) "
            "ROOT r = f32[2,8,4] convolution(x, w), window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f, "
            "feature_group_count=4",
            "([i, m, jk], [n, k, jl])->([i, m, jl]) {i=2, j=4, k=1, l=1, m=8, n=3} reduce={k} permute={m}",
        ),
        (
            f"{A} {ONE} ROOT r = f32[8,2] dynamic-slice(a, i, i), dynamic_slice_sizes={{8,2}}",
            "([i, j], [], [])->([i, j]) {i=8, j=4} replicate={j}",
        ),
        (
            f"{A} u = f32[8,1] parameter(1) i = s32[] parameter(2) "
            "ROOT r = f32[8,4] dynamic-update-slice(a, u, i, i)",
            "([i, j], [i, k], [], [])->([i, j]) {i=8, j=4, k=1} replicate={k}",
        ),
        (
            f'{A} ROOT r = f32[2,4] custom-call(a), custom_call_target="SPMDFullToShardShape"',
            "([ij, k])->([j, k]) {i=4, j=2, k=4}",
        ),
        ("ROOT r = s32[8,4] iota(), iota_dimension=0", "()->([i, j]) {i=8, j=4}"),
        (
            "x = f32[3,4,4] parameter(0) y = f32[3,4,2] parameter(1) "
            "ROOT r = f32[3,4,2] triangular-solve(x, y), left_side=true",
            "([i, k, l], [i, k, j])->([i, k, j]) {i=3, j=2, k=4, l=4} replicate={k, l}",
        ),
    ],
)
def test_rules(text: str, rule: str) -> None:
    assert str(rule_of(instruction(text))) == rule


def test_dynamic_slices_spread_nothing_along_what_they_cut() -> None:
    text = f"{A} {ONE} ROOT r = f32[8,2] dynamic-slice(a, i, i), dynamic_slice_sizes={{8,2}}"
    found = rule_of(instruction(text))
    assert found is not None
    assert found.blocked == {1}


def test_control_flow_has_no_rule() -> None:
    assert rule_of(instruction(f"{A} ROOT t = (f32[8,4]) tuple(a)")) is None


@pytest.mark.parametrize(
    ("a", "b"), [((6, 4), (4, 6)), ((2, 3, 4), (24,)), ((1, 5), (5, 1)), ((), (1,))]
)
def test_runs_hold_equal_numbers_of_elements(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    runs = common_runs(a, b)
    for sources, targets in runs:
        assert np.prod([a[d] for d in sources]) == np.prod([b[d] for d in targets])
    used = [d for sources, _ in runs for d in sources]
    assert used == [d for d in range(len(a)) if a[d] > 1]
