"""Sums and products that overflow in one order of their terms or another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import from_numpy
from compiler.hlo.ir import HloInstruction

Array = npt.NDArray[Any]

_TERMS = {
    "reduce": ((0, 1), 2),
    "reduce-window": ((0, 1), 2),
    "scatter": ((0, 2), 3),
    "select-and-scatter": ((1, 2), 3),
}
"""Which operands are combined, of how many where one array is."""


def growing_terms(
    instr: HloInstruction, operands: Sequence[Array]
) -> dict[HloInstruction, Array] | None:
    """In place of the operands of a sum or product of floats, terms of which none makes it smaller.

    What overflows with these may do so on the way in some order of its own terms, and what comes
    after, a zero or a number of the other sign, makes NaN of it or leaves it infinite. None for
    other operations.
    """
    places, count = _TERMS.get(instr.opcode, ((), 0))
    if len(operands) != count or not _is_float(operands[places[0]]):
        return None
    opcodes = {i.opcode for c in instr.called_computations() for i in c}
    if not opcodes & {"add", "multiply"}:
        return None
    least = 1 if "multiply" in opcodes else 0
    with np.errstate(all="ignore"):
        return {
            instr.operands[place]: np.fmax(_sizes(operands[place]), least).astype(
                operands[place].dtype
            )
            for place in places
        }


def _is_float(array: Array) -> bool:
    dtype = from_numpy(array.dtype)
    return dtype.is_float or dtype.is_complex


def _sizes(array: Array) -> Array:
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return np.asarray(np.abs(array.astype(wide)))
