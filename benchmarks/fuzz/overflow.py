"""Sums and products that overflow in one order of their terms or another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import from_numpy
from compiler.hlo.ir import HloInstruction

Array = npt.NDArray[Any]

_TERMS = {"scatter": (0, 2), "select-and-scatter": (1, 2)}
"""Which operands are combined; of other sums all are."""


def growing_terms(
    instr: HloInstruction, operands: Sequence[Array]
) -> dict[HloInstruction, Array] | None:
    """In place of the operands of a sum or product of floats, terms of which none makes it smaller.

    What overflows with these may do so on the way in some order of its own terms, and what comes
    after, a zero or a number of the other sign, makes NaN of it or leaves it infinite. None for
    other operations.
    """
    if instr.opcode in _TERMS and len(operands) > 3:
        return None
    places = _TERMS.get(instr.opcode, range(len(operands)))
    floats = [place for place in places if _is_float(operands[place])]
    if instr.opcode not in (*_TERMS, "reduce", "reduce-window") or not floats:
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
            for place in floats
        }


def _is_float(array: Array) -> bool:
    dtype = from_numpy(array.dtype)
    return dtype.is_float or dtype.is_complex


def _sizes(array: Array) -> Array:
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return np.asarray(np.abs(array.astype(wide)))
