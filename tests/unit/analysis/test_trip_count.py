"""Trip counts of counted loops, and of loops that only look like them."""

from __future__ import annotations

import itertools
import operator
import random

import pytest

from compiler.analysis.trip_count import count_trips, expected_trips, trip_count
from compiler.diagnostics import CompileError
from compiler.frontends.models import parse_model
from compiler.hlo.dtypes import BY_NAME, DType

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
        ({"DIRECTION": "EQ"}, 0),
        ({"DIRECTION": "EQ", "LIMIT": "0"}, 1),
        ({"STEP": "-1"}, (1 << 31) + 1),
        ({"DIRECTION": "NE", "STEP": "3"}, 2863311533),
        ({"T": "u8", "FIRST": "250", "LIMIT": "3", "DIRECTION": "NE"}, 9),
        ({"T": "u8", "STEP": "200", "LIMIT": "100"}, 1),
        ({"T": "u8", "STEP": "3", "LIMIT": "255"}, 85),
        ({"T": "u8", "STEP": "64", "LIMIT": "254", "FIRST": "2"}, None),
        ({"T": "s8", "STEP": "100", "LIMIT": "120", "DIRECTION": "GE"}, 0),
        ({"T": "s4", "STEP": "3", "LIMIT": "7"}, 13),
    ],
)
def test_a_counter_tells_the_trip_count(changes: dict[str, str], trips: int | None) -> None:
    assert found(**changes) == trips


@pytest.mark.parametrize(
    "changes",
    [
        {"BOUND": "changed"},
        {"INITIAL": "given"},
        {"OP": "multiply", "STEP": "2"},
        {"STEP": "0"},
        {"DIRECTION": "NE", "STEP": "2"},
        {"LIMIT": "2147483647", "DIRECTION": "LE"},
        {"T": "u32", "FIRST": "9", "LIMIT": "0", "OP": "subtract", "DIRECTION": "GE"},
    ],
)
def test_other_loops_have_none(changes: dict[str, str]) -> None:
    assert found(**changes) is None


HOLDS = {
    "LT": operator.lt, "LE": operator.le, "GT": operator.gt,
    "GE": operator.ge, "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip


def simulated(first: int, bound: int, step: int, direction: str, dtype: DType) -> int | None:
    """The loop itself, in wrapping arithmetic; None once it has been everywhere."""
    size = 1 << dtype.bits
    least = -(size >> 1) if dtype.is_signed else 0
    value = first
    for trip in range(size + 1):
        if not HOLDS[direction](value, bound):
            return trip
        value = (value + step - least) % size + least
    return None


@pytest.mark.parametrize("direction", HOLDS)
@pytest.mark.parametrize("name", ["s4", "u4"])
def test_counts_are_those_of_the_loop_for_all_counters_of_four_bits(
    name: str, direction: str
) -> None:
    dtype = BY_NAME[name]
    least = -8 if dtype.is_signed else 0
    numbers = range(least, least + 16)
    for first, bound, step in itertools.product(numbers, numbers, numbers):
        want = simulated(first, bound, step, direction, dtype)
        assert count_trips(first, bound, step, direction, dtype) == want, (first, bound, step)


@pytest.mark.parametrize("name", ["s8", "u8", "s16"])
def test_counts_are_those_of_the_loop_for_random_counters(name: str) -> None:
    dtype, rng = BY_NAME[name], random.Random(name)
    size = 1 << dtype.bits
    least = -(size >> 1) if dtype.is_signed else 0
    for _ in range(300 if dtype.bits == 8 else 20):
        first, bound, step = (rng.randrange(least, least + size) for _ in range(3))
        direction = rng.choice(list(HOLDS))
        want = simulated(first, bound, step, direction, dtype)
        assert count_trips(first, bound, step, direction, dtype) == want, (first, bound, step)


@pytest.mark.parametrize(("more", "trips"), [("true", None), ("false", 0)])
def test_a_condition_may_be_a_constant(more: str, trips: int | None) -> None:
    text = LOOP.replace("compare({LEFT}, {RIGHT}), direction={DIRECTION}", f"constant({more})")
    module = parse_model(text.format(**DEFAULTS), "loop")
    assert trip_count(module.entry.root_instruction) == trips


def test_a_claim_of_the_input_counts_only_where_nothing_is_known() -> None:
    claim = 'body=body, backend_config={{"known_trip_count":{{"n":"4"}}}}'
    text = LOOP.replace("body=body", claim)
    counted = parse_model(text.format(**DEFAULTS), "loop").entry.root_instruction
    unknown = parse_model(text.format(**{**DEFAULTS, "INITIAL": "given"}), "loop")
    assert (expected_trips(counted), trip_count(counted)) == (7, 7)
    assert expected_trips(unknown.entry.root_instruction) == 4
    assert trip_count(unknown.entry.root_instruction) is None


def test_a_claim_that_is_no_number_is_an_error() -> None:
    text = LOOP.replace("body=body", 'body=body, backend_config={{"known_trip_count":{{"n":"x"}}}}')
    module = parse_model(text.format(**{**DEFAULTS, "INITIAL": "given"}), "loop")
    with pytest.raises(CompileError, match="wants a number of trips"):
        expected_trips(module.entry.root_instruction)


def test_a_count_of_64_bits_is_more_than_any_estimate_runs() -> None:
    claim = f'body=body, backend_config={{{{"known_trip_count":{{{{"n":"{2**64 - 1}"}}}}}}}}'
    module = parse_model(
        LOOP.replace("body=body", claim).format(**{**DEFAULTS, "INITIAL": "given"}), "loop"
    )
    assert expected_trips(module.entry.root_instruction) == 2**31 - 1
