"""Random modules hold every operation at every element type it takes, or the table says why not."""

from __future__ import annotations

import functools
import random
import re
from collections import defaultdict

import pytest

from benchmarks.coverage_cases import case
from benchmarks.fuzz import kinds
from benchmarks.fuzz.generator import entry_scope
from benchmarks.fuzz.makers.registry import MAKERS, NOT_MADE, REFUSED_TYPES, Maker, made_opcodes
from compiler.hlo.dtypes import BY_NAME

TRIES = 20_000
"""Of one maker; most need some hundred."""
_LINE = re.compile(r"(\w+) = (\(.*?\)(?= [a-z])|\S+) ([a-z][\w\-]*)\(([^)]*)\)")
_TYPE = re.compile(r"\b([a-z]+\d\w*|pred)\[")

Types = dict[str, set[str]]


def _note(text: str, seen: Types) -> None:
    """The element types of operands and results of every line."""
    types: Types = {}
    for name, shape, opcode, operands in _LINE.findall(text):
        types[name] = set(_TYPE.findall(shape))
        seen[opcode] |= types[name]
        for operand in operands.split(", "):
            seen[opcode] |= types.get(operand, set())


@functools.cache
def _wanted(opcode: str) -> frozenset[str]:
    _, left_out = NOT_MADE.get(opcode, ("", ()))
    return frozenset(t for t in kinds.ALL if case(opcode, t) is not None).difference(left_out)


def _missing(opcode: str, seen: Types) -> frozenset[str]:
    return _wanted(opcode) - seen[opcode]


def _draw(row: Maker, seen: Types, rng: random.Random) -> None:
    scope = entry_scope(rng)
    row.make(scope)
    parameters = [f"{v.name} = {v.shape} parameter()" for v in scope.given]
    _note("\n".join([*parameters, *scope.lines]), seen)
    for text in scope.program.computations.values():
        _note(text, seen)


def test_every_opcode_is_made_at_every_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "WEIGHTS", {})
    rng, seen = random.Random(1), defaultdict(set)
    for row in MAKERS:
        for count in range(TRIES):
            if count % 50 == 0 and not any(_missing(opcode, seen) for opcode in row.opcodes):
                break
            _draw(row, seen, rng)
    assert {o: sorted(_missing(o, seen)) for o in made_opcodes() if _missing(o, seen)} == {}


def test_every_type_is_made_or_refused() -> None:
    assert set(BY_NAME) == set(kinds.ALL) | set(REFUSED_TYPES)
    assert set(NOT_MADE) <= made_opcodes()
