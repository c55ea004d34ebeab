"""HloInstructionProto -> one line of HLO text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.frontends.hlo_proto.attributes import (
    LITERAL,
    MAKERS,
    OPCODE,
    PARAMETER_NUMBER,
    SHAPE,
    Site,
    common_attributes,
)
from compiler.frontends.hlo_proto.literals import literal_text
from compiler.frontends.hlo_proto.shapes import shape_text
from compiler.hlo.opcodes import OPCODES
from compiler.protobuf import Message

NAME, ID, OPERANDS = 1, 35, 36
_LAST_PUBLISHED = 91
_READ_BESIDES = frozenset(range(92, 98))
"""Newer fields, found by trying: replica groups as an iota and over a mesh, three of scans, a
convolution's kind."""
_SPARSITY = 86


def instruction_text(
    message: Message,
    beside: Mapping[int, Message],
    names: Mapping[int, str],
    computations: Mapping[int, str],
    is_root: bool,
) -> str:
    """``ROOT %add.1 = f32[2]{0} add(%a, %b), metadata={...}``.

    `beside` are the instructions of its computation by id and `names` what they are called,
    `computations` the module's names.
    Raises ValueError naming the instruction for what the text cannot say.
    """
    name, opcode = message.text(NAME), message.text(OPCODE)
    try:
        _refuse_unknown(message, opcode)
        operands = tuple(beside[i] for i in message.integers(OPERANDS))
        site = Site(message, computations, operands)
        attributes = [*_own(site, opcode), *common_attributes(site, names)]
        shape = shape_text(message.message(SHAPE))
        inside = _between_parentheses(message, opcode, operands)
    except (KeyError, IndexError) as error:
        text = f"%{name}: the module has nothing numbered {error}"
        raise ValueError(text) from error
    except ValueError as error:
        text = f"%{name}: {error}"
        raise ValueError(text) from error
    tail = "".join(f", {key}={value}" for key, value in attributes)
    return f"{'ROOT ' if is_root else ''}%{name} = {shape} {opcode}({inside}){tail}"


def _refuse_unknown(message: Message, opcode: str) -> None:
    """A field of a newer XLA may change what an instruction means, so it is not passed over."""
    if opcode not in OPCODES:
        text = f"unknown opcode `{opcode}`"
        raise ValueError(text)
    if _SPARSITY in message:
        text = "dot_sparsity is not supported"
        raise ValueError(text)
    newer = (n for n in message.numbers_present - _READ_BESIDES if n > _LAST_PUBLISHED)
    unknown = sorted(n for n in newer if message.raw(n) or message.integers(n))
    if unknown:
        text = f"field {unknown[0]} of HloInstructionProto is not known; give the model as HLO text"
        raise ValueError(text)


def _own(site: Site, opcode: str) -> list[tuple[str, str]]:
    op = OPCODES[opcode]
    rows = [row.name for row in op.attrs]
    if "result_accuracy" in op.unprinted:
        rows.append("result_accuracy")
    made = ((name, MAKERS[name](site)) for name in rows if name in MAKERS)
    return [(name, text) for name, text in made if text is not None]


def _between_parentheses(message: Message, opcode: str, operands: Sequence[Message]) -> str:
    if opcode == "parameter":
        return str(message.integer(PARAMETER_NUMBER))
    if opcode == "constant":
        return literal_text(message.message(LITERAL))
    return ", ".join(f"%{operand.text(NAME)}" for operand in operands)
