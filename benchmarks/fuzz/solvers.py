"""Operations that solve, factor or transform whole arrays: every result depends on every element."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.hlo.ir import HloInstruction

_OPCODES = frozenset({
    "cholesky", "triangular-solve", "fft", "batch-norm-training", "batch-norm-inference",
    "batch-norm-grad",
})  # fmt: skip
_FACTORS = (
    "Eigh", "LuDecomposition", "ProductOfElementaryHouseholderReflectors", "Qr", "lapack_",
)  # fmt: skip
"""How the targets of custom calls that factor matrices begin."""
_SQUARED = 2.0**60


def is_solver(instr: HloInstruction) -> bool:
    """Whether noise of a right implementation reaches all of its results."""
    if instr.opcode == "custom-call":
        return instr.custom_call_target.startswith(_FACTORS)
    return instr.opcode in _OPCODES


def overflows(instr: HloInstruction, operands: Sequence[Any]) -> bool:
    """Whether a factorisation meets numbers whose products overflow, which in more bits they do not."""
    if instr.opcode != "custom-call":
        return False
    with np.errstate(all="ignore"):
        sizes = [np.abs(np.asarray(o).astype(np.complex128)).max(initial=0.0) for o in operands]
    return not max(sizes, default=0.0) < _SQUARED
