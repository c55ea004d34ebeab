"""The custom calls ``ApproxTopK`` and ``PartialReduce``: arrays, then as many start values.

The first elements of one dimension in the order of the comparator that they name.
"""

from __future__ import annotations

import re

from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import leaves

_DIMENSION = re.compile(r"reduction_dim\"?\s*[:=]\s*(-?\d+)")


def reduced_dimension(instr: HloInstruction) -> int:
    """``reduction_dim`` of the configuration, or the dimension that becomes shorter."""
    dims, result = instr.operands[0].array.dims, leaves(instr.shape)[0].dims
    found = _DIMENSION.search(str(instr.attrs.get("backend_config", "")))
    if found is not None:
        return int(found[1]) % len(dims)
    shorter = [d for d, (a, b) in enumerate(zip(dims, result, strict=True)) if a != b]
    return shorter[0] if shorter else len(dims) - 1


def comparator_of(instr: HloInstruction) -> HloComputation:
    """The order; UnsupportedError if the call names none."""
    called = instr.called_computations()
    if not called:
        raise UnsupportedError(f"%{instr.name}: no comparator is named", instr.span)
    return called[0]
