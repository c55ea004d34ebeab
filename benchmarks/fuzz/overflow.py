"""Sums and products that overflow, and products that underflow, in one order of their terms or another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    opcodes = _combined_by(instr)
    if not opcodes & {"add", "multiply"}:
        return None
    least = 1 if "multiply" in opcodes else 0
    return _sized(instr, operands, lambda sizes: np.fmax(sizes, least))


def shrinking_terms(
    instr: HloInstruction, operands: Sequence[Array]
) -> dict[HloInstruction, Array] | None:
    """In place of the operands of a product of floats, terms of which none makes it larger.

    Where the product of these is below the normal numbers, that of some terms may be: rounded after
    each of them it stays at the least number, in a wider float it goes on, and what comes after makes
    anything of either. None for other operations.
    """
    if "multiply" not in _combined_by(instr):
        return None
    return _sized(instr, operands, lambda sizes: np.where(sizes == 0, 1, np.fmin(sizes, 1)))


def _combined_by(instr: HloInstruction) -> set[str]:
    """The opcodes of what combines terms; nothing for what is no sum or product."""
    if instr.opcode not in (*_TERMS, "reduce", "reduce-window"):
        return set()
    return {i.opcode for c in instr.called_computations() for i in c}


def _sized(
    instr: HloInstruction, operands: Sequence[Array], change: Callable[[Array], Array]
) -> dict[HloInstruction, Array] | None:
    """Floats of the operands that are combined, their sizes changed; None without any."""
    if instr.opcode in _TERMS and len(operands) > 3:
        return None
    places = _TERMS.get(instr.opcode, range(len(operands)))
    floats = [place for place in places if _is_float(operands[place])]
    with np.errstate(all="ignore"):
        made = {
            instr.operands[place]: change(_sizes(operands[place])).astype(operands[place].dtype)
            for place in floats
        }
    return made or None


def _is_float(array: Array) -> bool:
    dtype = from_numpy(array.dtype)
    return dtype.is_float or dtype.is_complex


def _sizes(array: Array) -> Array:
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return np.asarray(np.abs(array.astype(wide)))
