"""One instruction or bundle as text, and back; derived from the row's operands.

    vadd.f32 v3 = v1, v2
    vld v4 = [w0 + s2 + 8] stride 1
    vst [w1 + s0 + 0] stride 1, v3 @"add.5"

A destination stands before ``=``; a window and what is added to it stand in brackets; the HLO
instruction an instruction came from follows ``@``.
"""

from __future__ import annotations

import difflib
import json
import re
import struct
from functools import cache

from tpu_sim.isa.errors import AssemblyError
from tpu_sim.isa.instruction import ROWS, Instr, Kind, Row
from tpu_sim.isa.program import Bundle

_LETTERS = {
    Kind.VD: "v", Kind.VS: "v", Kind.MD: "m", Kind.MS: "m", Kind.SD: "s", Kind.SS: "s",
    Kind.UNIT: "u", Kind.WIN: "w", Kind.DESC: "d", Kind.FLAG: "f", Kind.SPILL: "x",
}  # fmt: skip
_DESTINATIONS = (Kind.VD, Kind.MD, Kind.SD)
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_NAME = re.compile(r"\s*([A-Za-z][A-Za-z0-9_.]*)\s*")
_SOURCE = re.compile(rf"\s*@({_QUOTED})\s*$")

Piece = str | int
"""Of a template: literal text, or the number of an operand."""


def format_bundle(bundle: Bundle) -> str:
    """``{ a ; b }``; an empty bundle is ``{ }``."""
    return "{ " + " ; ".join(format_instr(instr) for instr in bundle) + (" }" if bundle else "}")


def format_instr(instr: Instr) -> str:
    """The text of one instruction."""
    text = format_operation(instr)
    return f"{text} @{json.dumps(instr.source)}" if instr.source else text


def format_operation(instr: Instr) -> str:
    """The same without what it came from."""
    form, order = _form(instr.row)
    operands = instr.operands
    return form % tuple(
        [format_f32(operands[index]) if is_f32 else operands[index] for index, is_f32 in order]
    )


def parse_instr(text: str) -> Instr:
    """The instruction written as `text`; raises `AssemblyError`."""
    source_match = _SOURCE.search(text)
    source = str(json.loads(source_match.group(1))) if source_match else ""
    body = text[: source_match.start()] if source_match else text
    name_match = _NAME.match(body)
    row = ROWS.get(name_match.group(1)) if name_match else None
    if name_match is None or row is None:
        near = difflib.get_close_matches(name_match.group(1) if name_match else body, ROWS, 3)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise AssemblyError(f"unknown instruction in {text.strip()!r}{hint}")
    operand_match = _pattern(row).fullmatch(body[name_match.end() :].strip())
    if operand_match is None:
        want = format_instr(Instr(row, (0,) * len(row.operands)))
        raise AssemblyError(f"wrong operands in {text.strip()!r}: want the form {want!r}")
    values = [0] * len(row.operands)
    order = [piece for piece in template(row) if isinstance(piece, int)]
    for index, group in zip(order, operand_match.groups(), strict=True):
        values[index] = _parse_operand(row.operands[index].kind, group)
    return Instr(row, tuple(values), source)


@cache
def template(row: Row) -> tuple[Piece, ...]:
    """Literals and operand numbers in printing order."""
    pieces: list[Piece] = []
    separator = ""
    bracket_open = False
    for index, operand in enumerate(row.operands):
        in_address = bracket_open and (operand.kind is Kind.SS or operand.name == "k")
        if bracket_open and not in_address:
            pieces.append("]")
            bracket_open = False
        if operand.kind in _DESTINATIONS:
            pieces += [index]
            separator = " = "
            continue
        if operand.kind is Kind.WIN:
            pieces += [f"{separator}[", index]
            bracket_open = True
        elif in_address:
            pieces += [" + ", index]
        elif operand.name == "stride":
            pieces += [" stride ", index]
        else:
            pieces += [separator, index]
        separator = ", "
    return tuple([*pieces, "]"] if bracket_open else pieces)


@cache
def _form(row: Row) -> tuple[str, list[tuple[int, bool]]]:
    """Text with a ``%s`` for each operand in printing order; which they are, and whether bits of an f32."""
    parts, order = [f"{row.name} "], []
    for piece in template(row):
        if isinstance(piece, str):
            parts.append(piece.replace("%", "%%"))
            continue
        kind = row.operands[piece].kind
        parts.append(f"{_LETTERS.get(kind, '')}%s")
        order.append((piece, kind is Kind.F32))
    return "".join(parts).rstrip(), order


@cache
def _pattern(row: Row) -> re.Pattern[str]:
    parts = []
    for piece in template(row):
        if isinstance(piece, int):
            parts.append(rf"({_operand_pattern(row.operands[piece].kind)})")
        elif piece:
            parts.append(r"\s*" + re.escape(piece.strip()) + r"\s*")
    return re.compile("".join(parts))


def _operand_pattern(kind: Kind) -> str:
    if kind in _LETTERS:
        return _LETTERS[kind] + r"\d+"
    if kind is Kind.F32:
        return r"f32:0x[0-9a-f]{8}|-?[0-9.]+(?:e[+-]?\d+)?"
    return r"-?\d+"


def _parse_operand(kind: Kind, text: str) -> int:
    if kind is Kind.F32:
        return parse_f32(text)
    return int(text[1:] if kind in _LETTERS else text)


def format_f32(bits: int) -> str:
    """A decimal that gives back the same bits, or ``f32:0x7fc00000`` when there is none."""
    (value,) = struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))
    if value != value or value in (float("inf"), float("-inf")):
        return f"f32:0x{bits & 0xFFFFFFFF:08x}"
    text = f"{value:.9g}"
    return text if "." in text or "e" in text else f"{text}.0"


def parse_f32(text: str) -> int:
    """The bit pattern, as a signed int, of what `format_f32` printed."""
    if text.startswith("f32:"):
        (bits,) = struct.unpack("<i", struct.pack("<I", int(text[4:], 16)))
        return int(bits)
    try:
        (bits,) = struct.unpack("<i", struct.pack("<f", float(text)))
    except (ValueError, OverflowError) as error:
        raise AssemblyError(f"{text!r} is not an f32") from error
    return int(bits)
