"""Cholesky and triangular solve by blocks, whose large parts are dots of full precision.

A turn of a loop costs kernel launches and a pass over the loop's state, so that loops run over the
columns of one diagonal block only. What is beside a block is found with dots and the block's
inverse, which takes a logarithmic number of steps: two neighbouring blocks of size s on the
diagonal, inverted already, give the inverse of their block of size 2 s.
"""

from __future__ import annotations

import math

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.columns import MatrixDims, cholesky_columns
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction

BLOCK = 128
"""The rows of a matrix unit: smaller blocks would leave part of it idle."""
_MOST_BLOCKS = 16
"""Blocks are unrolled; a larger matrix gets larger blocks so that programs stay small."""


def block_size(n: int) -> int:
    """Rows of a diagonal block for matrices of n rows: all of a small matrix."""
    if n <= BLOCK:
        return n
    return BLOCK * math.ceil(n / (BLOCK * _MOST_BLOCKS))


def blocked_cholesky(e: Emitter, source: Instr) -> Instr:
    """The lower factor of ``[.., n, n]``, of which the lower triangle is read.

    A matrix that is not positive definite has a NaN somewhere in its lower triangle.
    """
    n = source.array.dims[-1]
    size = block_size(n)
    rest = source
    bands: list[Instr] = []
    for start in range(0, n, size):
        width = min(size, n - start)
        factor = _diagonal_factor(e, square(e, rest, 0, width))
        band = factor
        if start + width < n:
            beside = e.part(e.part(rest, -1, 0, width), -2, width, n - start)
            inverse = lower_inverse(e, factor)
            panel = product(e, beside, e.conj(e.swap_last(inverse)))
            band = e.join([factor, panel], -2)
            update = product(e, panel, e.conj(e.swap_last(panel)))
            rest = e.subtract(square(e, rest, width, n - start), update)
        bands.append(e.pad_dim(band, -2, start, 0))
    return e.join(bands, -1)


def blocked_solve(e: Emitter, a: Instr, b: Instr) -> Instr:
    """x of ``a x = b`` for lower triangles ``a[.., n, n]`` with zeros above, ``b[.., n, m]``."""
    n = a.array.dims[-1]
    size = block_size(n)
    solved: list[Instr] = []
    for start, inverse in zip(range(0, n, size), _diagonal_inverses(e, a, size), strict=True):
        limit = min(start + size, n)
        right = e.part(b, -2, start, limit)
        if solved:
            left = e.part(e.part(a, -2, start, limit), -1, 0, start)
            right = e.subtract(right, product(e, left, e.join(solved, -2)))
        solved.append(product(e, inverse, right))
    return e.join(solved, -2)


def _diagonal_inverses(e: Emitter, a: Instr, size: int) -> list[Instr]:
    """The inverse of each diagonal block; all whole blocks are inverted together."""
    dims = a.array.dims
    n = dims[-1]
    starts = range(0, n - n % size, size)
    blocks = [square(e, a, start, start + size) for start in starts]
    inverses: list[Instr] = []
    if blocks:
        own = (*dims[:-2], 1, size, size)
        together = lower_inverse(e, e.join([e.reshape(block, own) for block in blocks], -3))
        parts = [e.part(together, -3, k, k + 1) for k in range(len(blocks))]
        inverses = [e.reshape(part, (*dims[:-2], size, size)) for part in parts]
    if n % size:
        inverses.append(lower_inverse(e, square(e, a, n - n % size, n)))
    return inverses


def lower_inverse(e: Emitter, a: Instr) -> Instr:
    """The inverse of lower triangles ``[.., n, n]``, zero above, by blocks of doubled size.

    With x the inverse of the blocks of size s on the diagonal and c what is beside them within
    blocks of size 2 s, the inverse of the latter is ``x - x c x``.
    """
    dims = a.array.dims
    row, column = e.positions(dims, -2), e.positions(dims, -1)
    diagonal = e.compare(row, column, "EQ")
    inverse = e.select(diagonal, e.divide(e.like(a, 1), a), e.like(a, 0))
    shift = 0
    while 1 << shift < dims[-1]:
        beside = e.compare(_block_of(e, row, shift), _block_of(e, column, shift), "NE")
        within = e.compare(_block_of(e, row, shift + 1), _block_of(e, column, shift + 1), "EQ")
        next_to = e.select(e.and_(beside, within), a, e.like(a, 0))
        inverse = e.subtract(inverse, product(e, inverse, product(e, next_to, inverse)))
        shift += 1
    return inverse


def _block_of(e: Emitter, place: Instr, shift: int) -> Instr:
    """The number of the block of ``2 ** shift`` places each place is in."""
    amount = e.full(S32, place.array.dims, shift)
    return e.binary("shift-right-logical", place, amount)


def product(e: Emitter, lhs: Instr, rhs: Instr) -> Instr:
    """Matrix products of a batch, in the precision of the type."""
    rank = lhs.array.rank
    batch = tuple(range(rank - 2))
    made = e.dot(lhs, rhs, ((rank - 1,), (rank - 2,)), (batch, batch))
    made.attrs["operand_precision"] = ("highest", "highest")
    return made


def square(e: Emitter, matrix: Instr, start: int, limit: int) -> Instr:
    """Rows and columns start to limit."""
    return e.part(e.part(matrix, -2, start, limit), -1, start, limit)


def _diagonal_factor(e: Emitter, block: Instr) -> Instr:
    """The factor of a block; a single one is a batch of one, whose pivots are vectors."""
    dims = block.array.dims
    batch = dims[:-2] or (1,)
    source = e.shaped(block, (*batch, *dims[-2:]))
    return e.shaped(cholesky_columns(e, source, MatrixDims(len(batch))), dims)
