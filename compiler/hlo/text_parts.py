"""Pieces of HLO text between the grammar and `TextBuild`: operands that are more than a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lark import Token


@dataclass(frozen=True)
class NestedOperand:
    """``f32[] add(x, y)`` or ``f32[] constant(0)`` in an operand's place: no name, no attributes."""

    shape: Token | None
    opcode: Token
    operands: Sequence[Operand]
    literal: Token | None = None


@dataclass(frozen=True)
class TypedName:
    """``f32[2] %x`` as an operand, or (in a text of one instruction) a bare ``f32[2]``."""

    shape: Token
    name: str


Operand = str | TypedName | NestedOperand


def bare(name: str) -> str:
    """A name without percent sign and white space."""
    return name.strip().removeprefix("%")


def opcode_text(token: str) -> str:
    """``add (`` -> ``add``."""
    return token[: token.index("(")].rstrip()
