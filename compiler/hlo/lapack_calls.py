"""How JAX's CPU lowerings name LAPACK routines and their character arguments.

``lapack_spotrf_ffi``: the letter after the prefix is the type (s, c). A character argument is an
attribute of the call's `backend_config`, by its code: ``uplo = 76 : ui8`` is "L".
"""

from __future__ import annotations

import re

from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction

_NAME = re.compile(r"lapack_[sc](\w+?)(_ffi)?$")
_CHARACTER = re.compile(r"(\w+) = (\d+)")


def lapack_routine(instr: HloInstruction) -> str | None:
    """The routine a custom call is of, without its type, such as ``potrf``; None if of none."""
    found = _NAME.match(instr.custom_call_target)
    return None if found is None else found[1]


def lapack_character(instr: HloInstruction, name: str) -> str:
    """A character argument; UnsupportedError if the call does not state it."""
    config = dict(_CHARACTER.findall(instr.backend_config))
    if name not in config:
        message = (
            f"%{instr.name}: {instr.custom_call_target} without '{name}' in its backend_config"
        )
        raise UnsupportedError(message, instr.span)
    return chr(int(config[name]))
