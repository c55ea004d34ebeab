"""Patterns as values: what a rewrite rule looks for.

    Op("add", X, Splat(-0.0))     an add whose one operand is the constant -0.0, scalar or splat
    Op("reshape", Op("reshape", X))
    Op(("add", "multiply"), X, Y)

`X`, `Y`, `Z` bind; the same letter twice must bind the same instruction. The operands of a
commutative opcode match in either order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from tpu_sim.isa.cached_property import cached_property

Match = dict[str, HloInstruction]


@dataclass(frozen=True)
class Var:
    """Matches anything and binds it under a name."""

    name: str


@dataclass(frozen=True)
class Splat:
    """Matches a constant, or a broadcast of one, all of whose elements are `value` (bit for bit
    for zeros: -0.0 and 0.0 differ); with `value` None any splat. Binds the node under `name`."""

    value: float | bool | None = None
    name: str = "splat"


@dataclass(frozen=True)
class Op:
    """Matches an instruction by opcode (one or several) and operand patterns; no operand
    patterns at all means any operands. Binds the instruction under `name` when given."""

    opcodes: tuple[str, ...]
    operands: tuple[Pattern, ...]
    name: str

    def __init__(self, opcode: str | tuple[str, ...], *operands: Pattern, name: str = "") -> None:
        names = (opcode,) if isinstance(opcode, str) else opcode
        object.__setattr__(self, "opcodes", names)
        object.__setattr__(self, "operands", operands)
        object.__setattr__(self, "name", name)

    @cached_property
    def wanted(self) -> tuple[frozenset[str] | None, ...]:
        """The opcodes that each operand may have; None: any."""
        return tuple(_opcodes(pattern) for pattern in self.operands)

    def may_match(self, instr: HloInstruction) -> bool:
        """Whether the opcodes of the operands fit: most that do not match are told by them."""
        wanted, operands = self.wanted, instr.operands
        if len(wanted) != len(operands):
            return not wanted
        for opcodes, operand in zip(wanted, operands, strict=True):
            if opcodes is not None and operand.opcode not in opcodes:
                break
        else:
            return True
        if len(wanted) != 2 or not OPCODES[instr.opcode].has(Trait.COMMUTATIVE):
            return False
        first, second = wanted
        return (first is None or operands[1].opcode in first) and (
            second is None or operands[0].opcode in second
        )


_SPLATS = frozenset({"constant"} | {o.name for o in OPCODES.values() if o.has(Trait.REARRANGES)})


def _opcodes(pattern: Pattern) -> frozenset[str] | None:
    if isinstance(pattern, Var):
        return None
    return _SPLATS if isinstance(pattern, Splat) else frozenset(pattern.opcodes)


Pattern = Var | Splat | Op
X, Y, Z = Var("x"), Var("y"), Var("z")


def splat_value(instr: HloInstruction) -> np.generic | None:
    """The one value all elements of a (broadcast of a) constant have, or None."""
    while OPCODES[instr.opcode].has(Trait.REARRANGES):
        instr = instr.operands[0]
    if instr.opcode != "constant":
        return None
    literal = instr.attrs.get("literal")
    if not isinstance(literal, np.ndarray) or literal.size == 0:
        return None
    first = literal.reshape(-1)[:1]
    if literal.size > 1 and literal.tobytes() != first.tobytes() * literal.size:
        return None
    scalar: np.generic = first[0]
    return scalar


def equals_exactly(value: np.generic, wanted: float | bool) -> bool:
    """Whether a constant is `wanted`, telling -0.0 from 0.0 and never matching NaN."""
    if isinstance(wanted, bool):
        return bool(value.dtype == np.bool_) and bool(value) == wanted
    number = complex(value) if value.dtype.kind == "c" else float(value)
    if isinstance(number, complex):
        return number == wanted and wanted != 0
    return number == wanted and bool(np.signbit(number)) == bool(np.signbit(wanted))


def match(pattern: Pattern, instr: HloInstruction) -> Match | None:
    """Bind `pattern` against `instr` and its operands; None when it does not match."""
    if isinstance(pattern, Op) and not pattern.may_match(instr):
        return None
    return next(_match(pattern, instr, {}), None)


def _match(pattern: Pattern, instr: HloInstruction, bound: Match) -> Iterator[Match]:
    if isinstance(pattern, Var):
        if bound.get(pattern.name, instr) is instr:
            yield {**bound, pattern.name: instr}
        return
    if isinstance(pattern, Splat):
        value = splat_value(instr)
        if value is not None and (pattern.value is None or equals_exactly(value, pattern.value)):
            yield {**bound, pattern.name: instr}
        return
    if instr.opcode not in pattern.opcodes:
        return
    if pattern.name:
        bound = {**bound, pattern.name: instr}
    if not pattern.operands:
        yield bound
        return
    if len(pattern.operands) != len(instr.operands):
        return
    yield from _match_all(pattern.operands, tuple(instr.operands), bound)
    if len(instr.operands) == 2 and OPCODES[instr.opcode].has(Trait.COMMUTATIVE):
        yield from _match_all(pattern.operands, tuple(reversed(instr.operands)), bound)


def _match_all(
    patterns: tuple[Pattern, ...], instrs: tuple[HloInstruction, ...], bound: Match
) -> Iterator[Match]:
    if not patterns:
        yield bound
        return
    for partial in _match(patterns[0], instrs[0], bound):
        yield from _match_all(patterns[1:], instrs[1:], partial)


def clamped_starts(
    starts: Sequence[HloInstruction], dims: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[int, ...] | None:
    """The starts as numbers, moved so that the box lies inside; None when one is not known."""
    found: list[int] = []
    for start, dim, size in zip(starts, dims, sizes, strict=True):
        value = splat_value(start)
        if dim == size:
            found.append(0)
        elif value is None:
            return None
        else:
            found.append(min(max(int(value), 0), dim - size))
    return tuple(found)
