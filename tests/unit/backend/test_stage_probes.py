"""How often a stage's tiles are emitted only to count their operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler.backend.vector import stage, turned_stage
from compiler.driver import compile_module
from compiler.hlo.parser import parse_module
from tpu_sim.isa.chips import load_chip

_ALIKE = """HloModule m

ENTRY e {
  x = f32[64,1024] parameter(0)
  a = f32[64,1024] tanh(x)
  b = f32[64,1024] logistic(a)
  c = f32[64,1024] sine(b)
  ROOT d = f32[64,1024] multiply(c, x)
}
"""
_APART = """HloModule m

ENTRY e {
  x = f32[64,1024] parameter(0)
  y = f32[64,1024] parameter(1)
  a = f32[64,1024] sine(x)
  b = f32[64,1024] cosine(y)
  c = f32[64,2048] concatenate(a, b), dimensions={1}
  ROOT d = f32[64,2048] exponential(c)
}
"""
_TURNED = """HloModule m

ENTRY e {
  x = f32[512,1024] parameter(0)
  w = f32[512,128] parameter(1)
  s = f32[512,1024] sine(x)
  c = f32[512,1024] cosine(s)
  ROOT d = f32[1024,128] dot(c, w), lhs_contracting_dims={0}, rhs_contracting_dims={0}
}
"""


def _places(text: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """What each count of a tile at a known place was, and whether the place is a column's."""
    found: list[tuple[int, bool]] = []
    count: Callable[..., int] = stage._cost

    def counted(*args: object, **named: object) -> int:
        operations = count(*args, **named)
        if len(args) > 3 or named:
            found.append((operations, "columns" in named))
        return operations

    monkeypatch.setattr(stage, "_cost", counted)
    compile_module(parse_module(text), load_chip("v5e"))
    return found


def test_tiles_that_are_alike_are_counted_once_for_columns_and_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = _places(_ALIKE, monkeypatch)
    assert len(found) == len({is_column for _, is_column in found}) > 0


def test_columns_that_differ_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _places(_APART, monkeypatch)
    assert sum(is_column for _, is_column in found) > 2


def test_of_a_dear_turned_block_no_more_is_counted_than_decides(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[tuple[int, int]] = []
    count: Callable[..., int] = turned_stage._block_ops

    def both(*args: object) -> int:
        counted.append((count(*args), count(*args[:-1], 1 << 30)))
        return counted[-1][0]

    monkeypatch.setattr(turned_stage, "_block_ops", both)
    compile_module(parse_module(_TURNED), load_chip("v5e"))
    assert counted
    for found, whole in counted:
        least = turned_stage._BODY_OPS // (load_chip("v5e").transpose_units + 1)
        assert found == whole if whole <= least else least < found < whole


def test_a_cheap_turned_block_is_counted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[int] = []
    count: Callable[..., int] = turned_stage._block_ops

    def counted(*args: object) -> int:
        found.append(count(*args))
        return found[-1]

    monkeypatch.setattr(turned_stage, "_block_ops", counted)
    text = _TURNED.replace("sine(x)", "negate(x)").replace("cosine(s)", "negate(s)")
    compile_module(parse_module(text), load_chip("v5e"))
    least = turned_stage._BODY_OPS // (load_chip("v5e").transpose_units + 1)
    assert found
    assert max(found) <= least
