"""The table of makers: which opcodes each can give, and how often it is asked.

A maker adds instructions to a scope and returns the value it made (None when it found nothing to
do). Every opcode of `compiler.hlo.opcodes` has a maker or stands in `EXCLUDED` with the reason;
`tests/property/test_fuzz_coverage.py` holds the table to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.fuzz import kinds
from benchmarks.fuzz.scope import Scope, Value

Make = Callable[[Scope], Value | None]


@dataclass(frozen=True)
class Maker:
    """One row. `nested`: it builds computations with makers of their own inside."""

    make: Make
    opcodes: tuple[str, ...]
    weight: float
    nested: bool
    entry_only: bool


MAKERS: list[Maker] = []

EXCLUDED = {
    "dynamic-reshape": "sizes known only at run time are refused by name",
    "set-dimension-size": "sizes known only at run time are refused by name",
    "infeed": "talks with the host during a run: refused by name",
    "outfeed": "talks with the host during a run: refused by name",
    "recv": "talks with another device: refused by name",
    "recv-done": "talks with another device: refused by name",
    "send": "talks with another device: refused by name",
    "send-done": "talks with another device: refused by name",
    "shuffle": "XLA has no semantics for it: refused by name",
    "multiply-add": "made by passes, not part of XLA's HLO",
    "network-sort": "made by passes, not part of XLA's HLO",
    "pair-fft": "made by passes, not part of XLA's HLO",
    "running-total": "made by passes, not part of XLA's HLO",
    "ragged-all-to-all": "of several participants only: refused by name",
}
"""Opcodes no maker gives, and why."""


REFUSED_TYPES = {
    "f64": "a TPU has none: refused by name, or narrowed on request",
    "c128": "a TPU has none: refused by name, or narrowed on request",
}
"""Element types no maker gives, and why."""

_FEW_DIGITS = "errors of a few digits grow beyond any bound"
NOT_MADE: dict[str, tuple[str, tuple[str, ...]]] = {
    "after-all": ("takes tokens, which have no type", kinds.ALL),
    "iota": ("the type has no zero to count from", ("f8e8m0fnu",)),
    "cholesky": (_FEW_DIGITS, (*kinds.NARROW_FLOATS, *kinds.TINY_FLOATS)),
    "triangular-solve": (_FEW_DIGITS, (*kinds.NARROW_FLOATS, *kinds.TINY_FLOATS)),
    "rng": ("two bounds and a number between are not distinct values", ("pred", "s2", "u2")),
    "stochastic-convert": (
        "no unsigned integer has as many bits",
        ("f6e2m3fn", "f6e3m2fn"),
    ),
}
"""Of opcodes that makers give, the element types that none gives them, and why."""


def maker(
    *opcodes: str, weight: float = 1.0, nested: bool = False, entry_only: bool = False
) -> Callable[[Make], Make]:
    """Register a maker of these opcodes."""

    def register(make: Make) -> Make:
        MAKERS.append(Maker(make, opcodes, weight, nested, entry_only))
        return make

    return register


def made_opcodes() -> frozenset[str]:
    """Every opcode that some maker gives."""
    return frozenset(opcode for row in MAKERS for opcode in row.opcodes)
