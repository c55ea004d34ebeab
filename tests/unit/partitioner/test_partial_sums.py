"""Arrays stated as partial sums (``unreduced``): what goes in is added, what comes out is split."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.evaluator import evaluate, evaluate_devices
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from compiler.partitioner.grid import Cut, Grid, parse_sharding
from compiler.partitioner.partitioner import partition_module
from compiler.passes.context import PassContext
from tpu_sim.isa import chips

X = np.arange(32, dtype=np.float32).reshape(8, 4)
TEXT = """HloModule m, num_partitions=4

ENTRY main {{
  x = f32[8,4] parameter(0), sharding={{{given}}}
  one = f32[] constant(1)
  ones = f32[8,4] broadcast(one), dimensions={{}}
  y = f32[8,4] {operation}
  ROOT r = f32[8,4] copy(y), sharding={{{wanted}}}
}}
"""
UNREDUCED = "unreduced"
SUMS_OF_ROWS = "devices=[2,1,2]<=[4] last_tile_dims={unreduced}"
MIXED = "devices=[1,1,2,2]<=[4] last_tile_dims={unreduced, replicated}"


def run(given: str, wanted: str, operation: str, pieces: list[np.ndarray]) -> list[np.ndarray]:
    module = parse_module(TEXT.format(given=given, wanted=wanted, operation=operation))
    partition_module(module, PassContext(chips.load_chip("v5e")))
    verify(module)
    return [np.asarray(row[0]) for row in evaluate_devices(module, [[p] for p in pieces])]


def addends(count: int) -> list[np.ndarray]:
    """Arrays whose sum is X, of whole numbers."""
    parts = [np.full_like(X, number) for number in range(1, count)]
    return [*parts, X - sum(parts)]


@pytest.mark.parametrize("operation", ["multiply(x, x)", "add(x, ones)"])
def test_a_parameter_is_summed_before_it_is_used(operation: str) -> None:
    want = X * X if "multiply" in operation else X + 1
    for piece in run(UNREDUCED, "replicated", operation, addends(4)):
        np.testing.assert_array_equal(piece, want)


def test_a_result_is_split_once() -> None:
    pieces = run("replicated", UNREDUCED, "add(x, ones)", [X] * 4)
    np.testing.assert_array_equal(sum(pieces), X + 1)


def test_rows_are_cut_beside_it() -> None:
    first, second = addends(2)
    pieces = [first[:4], second[:4], first[4:], second[4:]]
    found = run(SUMS_OF_ROWS, SUMS_OF_ROWS, "add(x, ones)", pieces)
    np.testing.assert_array_equal(found[0] + found[1], (X + 1)[:4])
    np.testing.assert_array_equal(found[2] + found[3], (X + 1)[4:])


def test_copies_hold_the_same_addend() -> None:
    first, second = addends(2)
    found = run(MIXED, MIXED, "add(x, ones)", [first, first, second, second])
    for here, there in ((0, 1), (2, 3)):
        np.testing.assert_array_equal(found[here], found[there])
    np.testing.assert_array_equal(found[0] + found[2], X + 1)


def test_a_cut_with_sums_is_written_as_it_was_read() -> None:
    grid = Grid.of(4, [])
    for text in (UNREDUCED, SUMS_OF_ROWS):
        sharding = parse_sharding(f"{{{text}}}")
        assert grid.sharding(grid.cut(sharding, 2)) == sharding
    assert grid.cut(parse_sharding(f"{{{UNREDUCED}}}"), 2) == Cut(((), ()), (0, 1))


SUM_OF_DOTS = """HloModule m, num_partitions=4

ENTRY main {{
  x = f32[8,64] parameter(0), sharding={{devices=[1,4]<=[4]}}
  y = f32[8,64] parameter(1), sharding={{devices=[1,4]<=[4]}}
  w = f32[64,6] parameter(2), sharding={{devices=[4,1]<=[4]}}
  a = f32[8,6] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  b = f32[8,6] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  t = f32[6,8] transpose(b), dimensions={{1,0}}
  n = f32[6,8] negate(t)
  u = f32[6,8] transpose(a), dimensions={{1,0}}
  s = f32[6,8] {sum}
  f = f32[48] reshape(s)
  ROOT r = {root}, sharding={{{{replicated}}{more}}}
}}
"""


@pytest.mark.parametrize(
    ("sum_", "root", "count"),
    [
        ("subtract(u, n)", "(f32[48]) tuple(f)", 1),
        ("multiply(u, n)", "(f32[48]) tuple(f)", 2),  # no sum of products
        ("subtract(u, n)", "(f32[48], f32[8,6]) tuple(f, b)", 2),  # one sum is needed anyway
    ],
)
def test_sums_of_sums_are_made_once(sum_: str, root: str, count: int) -> None:
    more = ", {replicated}" * root.count("f32[8,6]")
    module = parse_module(SUM_OF_DOTS.format(sum=sum_, root=root, more=more))
    whole = parse_module(SUM_OF_DOTS.format(sum=sum_, root=root, more=more))
    partition_module(module, PassContext(chips.load_chip("v5e")))
    verify(module)
    assert sum(i.opcode == "all-reduce" for i in module.entry) == count
    x, y = (np.tile(part, 16) for part in (X, X[::-1] * 2))
    w = np.arange(384, dtype=np.float32).reshape(64, 6)
    columns = [slice(16 * k, 16 * k + 16) for k in range(4)]
    rows = evaluate_devices(module, [[x[:, k], y[:, k], w[k]] for k in columns])
    for row in rows:
        for got, want in zip(row, evaluate(whole, [x, y, w]), strict=True):
            np.testing.assert_array_equal(got, want)
