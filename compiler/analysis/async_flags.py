"""The sync flag of an exchange in halves: `exchange_flag` in the backend_config of its start and done."""

from __future__ import annotations

from compiler.analysis.window_config import read_config, write_config
from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloInstruction

MOST_UNDER_WAY = 64
"""Exchanges whose start ran and whose done did not; each has a flag of its own."""
_KEY = "exchange_flag"


def exchange_flag(half: HloInstruction) -> int:
    """Which of the flags 0 .. `MOST_UNDER_WAY` - 1 a start and its done use."""
    flag = read_config(half).get(_KEY)
    if not isinstance(flag, int) or not 0 <= flag < MOST_UNDER_WAY:
        raise CompileError(
            f"%{half.name}: {_KEY} is {flag}, want 0 to {MOST_UNDER_WAY - 1}", half.span
        )
    return flag


def set_exchange_flag(half: HloInstruction, flag: int) -> None:
    """Give a half its flag."""
    write_config(half, {**read_config(half), _KEY: flag})
