"""Products of f32 rows with a constant matrix whose sums are exact (after Ozaki et al., 2012).

Both sides are cut into slices of 8 bits in fixed point, the rows relative to their largest element.
A product of two slices is one pass of the matrix unit, and as long as the sum has at most
24 bits the f32 accumulator does not round. What is rounded is the sum of the groups of slices.

    rows    x = x0 + x1 + x2 + rest      of 2**-6, 2**-14, 2**-22 times the row's power of two
    matrix  t = t0 + t1 + t2 + rest      of 2**-7, 2**-15, 2**-23
    groups  x0 t0;  x0 t1 + x1 t0;  x0 t2 + x1 t1 + x2 t0;  x0 rest + x1 t2 + x2 t1 + rest t0
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import BF16, F32, S32
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.emitter import Emitter

Instr = HloInstruction
MAX_TERMS = 1024  # of 14 bits each: 24 bits
_SLICES = 3
_SLICE_BITS = 8
_EXPONENT_MASK = 0xFF << 23
_TOP_EXPONENT = 253 << 23  # its reciprocal is still normal


def sliced_dot(e: Emitter, rows: Instr, matrix: npt.NDArray[np.float64]) -> Instr:
    """``rows x matrix`` for f32[m,k] and a matrix of numbers of magnitude at most 1."""
    assert rows.array.dims[1] <= MAX_TERMS
    unit, inverse = _row_units(e, rows)
    slices = _row_slices(e, e.multiply(rows, inverse))
    tables = _matrix_slices(matrix)
    groups = [[(k, group - k) for k in range(group + 1)] for group in range(_SLICES + 1)]
    total: Instr | None = None
    for group in reversed(groups):
        left = e.join([slices[x] for x, _ in group], 1) if len(group) > 1 else slices[0]
        right = np.concatenate([tables[t] for _, t in group])
        product = _one_pass(e, left, e.table(BF16, right))
        total = product if total is None else e.add(product, total)
    assert total is not None
    return e.multiply(total, e.broadcast(unit, total.array.dims, (0,)))


def _row_units(e: Emitter, rows: Instr) -> tuple[Instr, Instr]:
    """The power of two below each row's largest magnitude ``[m]``, and its inverse ``[m,k]``."""
    top = e.total(e.unary("abs", rows), 1, kind="maximum")
    bits = e.instruction("bitcast-convert", (top,), None, top.array.with_dtype(S32))
    exponent = e.binary("and", bits, e.like(bits, _EXPONENT_MASK))
    exponent = e.binary("maximum", exponent, e.like(bits, 1 << 23))
    exponent = e.binary("minimum", exponent, e.like(bits, _TOP_EXPONENT))
    opposite = e.subtract(e.like(bits, 254 << 23), exponent)
    unit, inverse = (
        e.instruction("bitcast-convert", (x,), None, top.array) for x in (exponent, opposite)
    )
    return unit, e.broadcast(inverse, rows.array.dims, (0,))


def _row_slices(e: Emitter, x: Instr) -> list[Instr]:
    """bf16 parts of numbers below 2 in magnitude; the last is what is left."""
    slices: list[Instr] = []
    for number in range(_SLICES):
        # adding 1.5 * 2**23 units rounds to whole units
        big = e.like(x, 1.5 * 2.0 ** (23 - 6 - _SLICE_BITS * number))
        part = e.subtract(e.add(x, big), big)
        slices.append(e.cast(part, BF16))
        x = e.subtract(x, part)
    return [*slices, e.cast(x, BF16)]


def _matrix_slices(matrix: npt.NDArray[np.float64]) -> list[npt.NDArray[np.float64]]:
    slices: list[npt.NDArray[np.float64]] = []
    for number in range(_SLICES):
        unit = 2.0 ** -(7 + _SLICE_BITS * number)
        slices.append(np.rint(matrix / unit) * unit)
        matrix = matrix - slices[-1]
    return [*slices, matrix]


def _one_pass(e: Emitter, left: Instr, right: Instr) -> Instr:
    attrs: dict[str, object] = {
        "lhs_contracting_dims": (1,),
        "rhs_contracting_dims": (0,),
    }
    shape = left.array.with_dtype(F32).with_dims(())
    return e.instruction("dot", (left, right), attrs, shape)
