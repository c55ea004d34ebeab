"""Typed reads of instruction attributes; a missing one is named with the instruction."""

from __future__ import annotations

from compiler.diagnostics import CompileError
from compiler.hlo.attributes import RawText, Window
from compiler.hlo.ir import HloComputation, HloInstruction


def int_tuple(
    instr: HloInstruction, name: str, default: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """Read a tuple of integers such as `dimensions`."""
    value = instr.attrs.get(name, default)
    if isinstance(value, tuple) and all(isinstance(v, int) for v in value):
        return value
    raise _bad(instr, name, "a list of integers")


def integer(instr: HloInstruction, name: str, default: int | None = None) -> int:
    """Read an integer such as `index`."""
    value = instr.attrs.get(name, default)
    if isinstance(value, int):
        return int(value)
    raise _bad(instr, name, "an integer")


def flag(instr: HloInstruction, name: str, default: bool = False) -> bool:
    """Read a boolean such as `is_stable`."""
    value = instr.attrs.get(name, default)
    if isinstance(value, bool):
        return value
    raise _bad(instr, name, "true or false")


def text(instr: HloInstruction, name: str, default: str | None = None) -> str:
    """Read a word such as `direction`."""
    value = instr.attrs.get(name, default)
    if isinstance(value, RawText):
        return value.text
    if isinstance(value, str):
        return value
    raise _bad(instr, name, "a word")


def window(instr: HloInstruction) -> Window:
    """Read `window`; an absent one has no dimensions."""
    value = instr.attrs.get("window", Window())
    if isinstance(value, Window):
        return value
    raise _bad(instr, "window", "a window")


def computation(instr: HloInstruction, name: str) -> HloComputation:
    """Read a called computation such as `to_apply`."""
    value = instr.attrs.get(name)
    if isinstance(value, HloComputation):
        return value
    raise _bad(instr, name, "a computation")


def triples(instr: HloInstruction, name: str) -> tuple[tuple[int, int, int], ...]:
    """Read `slice` (start, limit, stride) or `padding` (low, high, interior)."""
    value = instr.attrs.get(name)
    if isinstance(value, tuple):
        return value
    raise _bad(instr, name, "one triple of integers per dimension")


def _bad(instr: HloInstruction, name: str, want: str) -> CompileError:
    found = instr.attrs.get(name, "nothing")
    return CompileError(f"%{instr.name}: {name}: found {found!r}, want {want}", instr.span)
