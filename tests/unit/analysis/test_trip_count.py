"""Trip counts of counted loops, and of loops that only look like them."""

from __future__ import annotations

import pytest

from compiler.analysis.trip_count import trip_count
from compiler.frontends.models import parse_model

LOOP = """
HloModule loop

step {{
  one = {T}[] parameter(0)
  c = {T}[] constant({STEP})
  ROOT next = {T}[] {OP}(one, c)
}}

body {{
  state = ({T}[], {T}[], f32[8]) parameter(0)
  i = {T}[] get-tuple-element(state), index=0
  n = {T}[] get-tuple-element(state), index=1
  x = f32[8] get-tuple-element(state), index=2
  next = {T}[] fusion(i), kind=kLoop, calls=step
  changed = {T}[] add(n, n)
  twice = f32[8] add(x, x)
  ROOT result = ({T}[], {T}[], f32[8]) tuple(next, {BOUND}, twice)
}}

condition {{
  state = ({T}[], {T}[], f32[8]) parameter(0)
  i = {T}[] get-tuple-element(state), index=0
  n = {T}[] get-tuple-element(state), index=1
  ROOT more = pred[] compare({LEFT}, {RIGHT}), direction={DIRECTION}
}}

ENTRY e {{
  x = f32[8] parameter(0)
  given = {T}[] parameter(1)
  first = {T}[] constant({FIRST})
  copied = {T}[] copy(first)
  limit = {T}[] constant({LIMIT})
  initial = ({T}[], {T}[], f32[8]) tuple({INITIAL}, limit, x)
  ROOT loop = ({T}[], {T}[], f32[8]) while(initial), condition=condition, body=body
}}
"""
DEFAULTS = {
    "T": "s32", "OP": "add", "STEP": "1", "BOUND": "n", "LEFT": "i", "RIGHT": "n",
    "DIRECTION": "LT", "FIRST": "0", "LIMIT": "7", "INITIAL": "copied",
}  # fmt: skip


def found(**changes: str) -> int | None:
    module = parse_model(LOOP.format(**{**DEFAULTS, **changes}), "loop")
    return trip_count(module.entry.root_instruction)


@pytest.mark.parametrize(
    ("changes", "trips"),
    [
        ({}, 7),
        ({"DIRECTION": "LE"}, 8),
        ({"FIRST": "2", "STEP": "2"}, 3),
        ({"FIRST": "9"}, 0),
        ({"LEFT": "n", "RIGHT": "i", "DIRECTION": "GT"}, 7),
        ({"FIRST": "7", "LIMIT": "0", "OP": "subtract", "DIRECTION": "GT"}, 7),
        ({"FIRST": "7", "LIMIT": "0", "STEP": "-2", "DIRECTION": "GE"}, 4),
        ({"DIRECTION": "NE"}, 7),
        ({"T": "u32", "FIRST": "3"}, 4),
        ({"LIMIT": "2147483647"}, 2147483647),
    ],
)
def test_a_counter_tells_the_trip_count(changes: dict[str, str], trips: int) -> None:
    assert found(**changes) == trips


@pytest.mark.parametrize(
    "changes",
    [
        {"BOUND": "changed"},
        {"INITIAL": "given"},
        {"OP": "multiply", "STEP": "2"},
        {"STEP": "0"},
        {"STEP": "-1"},
        {"DIRECTION": "EQ"},
        {"DIRECTION": "NE", "STEP": "2"},
        {"LIMIT": "2147483647", "DIRECTION": "LE"},
        {"LIMIT": "2147483646", "STEP": "4"},
        {"T": "u32", "FIRST": "9", "LIMIT": "0", "OP": "subtract", "DIRECTION": "GE"},
    ],
)
def test_other_loops_have_none(changes: dict[str, str]) -> None:
    assert found(**changes) is None
