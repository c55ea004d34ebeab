"""HLO text for XLA's reader: opcodes that it does not know are custom calls ``tpuc.<opcode>`` there."""

from __future__ import annotations

import re

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module

_UNREAD = re.compile(rf" ({'|'.join(sorted(with_trait(Trait.UNREAD)))})\(")
_KEPT = ("sharding", "frontend_attributes", "metadata", "control-predecessors")
"""What holds of any instruction. What only the opcode has is not said: such a text is for reading alone."""


def readable_text(text: str) -> str:
    """The module's text, with what XLA does not know as custom calls."""
    if _UNREAD.search(text) is None:
        return text
    module = parse_module(text)
    for computation in module.computations.values():
        for instr in computation:
            if OPCODES[instr.opcode].has(Trait.UNREAD):
                _as_custom_call(instr)
    return print_module(module)


def _as_custom_call(instr: HloInstruction) -> None:
    """In its place: the order of instructions is that of the schedule."""
    kept = {name: instr.attrs[name] for name in _KEPT if name in instr.attrs}
    instr.attrs = {"custom_call_target": f"tpuc.{instr.opcode}", **kept}
    instr.opcode = "custom-call"
