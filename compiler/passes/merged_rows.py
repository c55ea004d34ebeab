"""Sequences whose rows are merged: where they are, and products that sum over them.

[32,197,768] merged to [6304,768]     `Rows(32, 197)`; aligned, sequences of 208 rows
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from compiler.analysis.window_config import REQUEST, read_config
from compiler.hlo.ir import HloInstruction
from compiler.rewrite import make
from compiler.rewrite.graph import emit, replace
from tpu_sim.isa.geometry import SUBLANES

Instr = HloInstruction
Known = Callable[[Instr], "Instr | None"]
"""What an array of merged rows is with longer sequences, if that is known."""
_TILE_ROWS = 16
"""Rows of a tile of bf16, which products take."""
_MOST_ROWS = 1.35
"""How many rows there may be for one."""
_MOST_EVEN_ROWS = 1.1
"""The same where sequences are whole tiles of f32."""
_LEAST_ROWS = 256
"""Merged rows from which it pays."""


@dataclass(frozen=True)
class Rows:
    """`count` sequences of `length` rows each, which will have `aligned` rows."""

    count: int
    length: int

    @property
    def merged(self) -> int:
        """Rows in all."""
        return self.count * self.length

    @property
    def aligned(self) -> int:
        """Rows of a sequence in whole tiles."""
        return -(-self.length // _TILE_ROWS) * _TILE_ROWS

    @property
    def total(self) -> int:
        """Rows in all, in whole tiles."""
        return self.count * self.aligned

    @property
    def is_worth_it(self) -> bool:
        """Whether the sequences are odd, and few rows are added."""
        if self.count == 1 or self.length % _TILE_ROWS == 0 or self.merged < _LEAST_ROWS:
            return False
        most = _MOST_EVEN_ROWS if self.length % SUBLANES == 0 else _MOST_ROWS
        return self.aligned <= most * self.length


def is_row_product(instr: Instr) -> bool:
    """Whether this is ``[M, K] x [K, N]``, or ``x [N, K]``."""
    if instr.opcode != "dot" or REQUEST in read_config(instr):
        return False
    return all(value.array.rank == 2 for value in (instr, *instr.operands))


def merging(instr: Instr) -> Rows | None:
    """The sequences that a reshape merges into its first dimension."""
    if instr.opcode != "reshape" or not instr.array.dims:
        return None
    return _leading(instr.operands[0].array.dims, instr.array.dims[0])


def parting(instr: Instr) -> Rows | None:
    """The sequences that a reshape parts the first dimension of its operand into."""
    if instr.opcode != "reshape" or not instr.operands[0].array.dims:
        return None
    return _leading(instr.array.dims, instr.operands[0].array.dims[0])


def _leading(dims: tuple[int, ...], merged: int) -> Rows | None:
    place = _last_of(dims, merged)
    return None if place is None else Rows(merged // dims[place], dims[place])


def _last_of(dims: tuple[int, ...], merged: int) -> int | None:
    """The last of the dimensions that make so many rows; None if none do, or a single one."""
    product = 1
    for place, size in enumerate(dims):
        product *= size
        if product == merged and size > 1:
            return place if product > size else None
    return None


def lengthen(dot: Instr, rows: Rows, known: Known) -> bool:
    """Make a product that sums over merged rows sum over longer sequences, with zeros in what is added."""
    dims = _summed_dims(dot)
    if dims is None or dot.operands[0].array.dims[dims[0]] != rows.merged:
        return False
    sides = [_longer(o, d, rows, known) for o, d in zip(dot.operands, dims, strict=True)]
    if None in sides:
        return False
    found = [side for side in sides if side is not None]
    replace(dot, emit(dot, "dot", dot.array, found, dict(dot.attrs)))
    return True


def _summed_dims(dot: Instr) -> tuple[int, int] | None:
    """The dimension that a product of two matrices sums over, of both sides."""
    if not is_row_product(dot):
        return None
    (left,), (right,) = dot.ints("lhs_contracting_dims"), dot.ints("rhs_contracting_dims")
    return left, right


def summed_rows(dot: Instr) -> Rows | None:
    """The sequences that both sides of a product merge into what it sums over."""
    dims = _summed_dims(dot)
    if dims is None:
        return None
    left, right = (_merged_rows(o, d) for o, d in zip(dot.operands, dims, strict=True))
    return left if left == right and left is not None and left.is_worth_it else None


def _merged_rows(side: Instr, dim: int) -> Rows | None:
    if side.opcode == "transpose":
        return _merged_rows(side.operands[0], side.dimensions[dim])
    place = _merged_place(side, dim)
    if place is None:
        return None
    length = side.operands[0].array.dims[place]
    return Rows(side.array.dims[dim] // length, length)


def _merged_place(side: Instr, dim: int) -> int | None:
    """The last of the operand's dimensions that a reshape merges into one of its own."""
    if side.opcode != "reshape":
        return None
    dims, source = side.array.dims, side.operands[0].array.dims
    before, first, product = math.prod(dims[:dim]), 0, 1
    while product < before:
        product *= source[first]
        first += 1
    if product != before or math.prod(source[first:]) != math.prod(dims[dim:]):
        return None
    place = _last_of(source[first:], dims[dim])
    return None if place is None else first + place


def _longer(side: Instr, dim: int, rows: Rows, known: Known) -> Instr | None:
    """A side of a product with longer sequences, zeros behind each; None if it would be moved for it."""
    made = known(side) if dim == 0 else None
    if made is not None:
        return made
    if side.opcode == "transpose":
        inner = _longer(side.operands[0], side.dimensions[dim], rows, known)
        return None if inner is None else make.transpose(inner, side.dimensions)
    place = _merged_place(side, dim)
    if place is None or _merged_rows(side, dim) != rows:
        return None
    dims = side.array.dims
    longer = padded(side.operands[0], place, rows.aligned)
    return make.reshape(longer, (*dims[:dim], rows.total, *dims[dim + 1 :]))


def padded(value: Instr, dim: int, size: int) -> Instr:
    """A dimension made longer, with zeros."""
    dims = value.array.dims
    padding = tuple((0, size - n if d == dim else 0, 0) for d, n in enumerate(dims))
    shape = value.array.with_dims((*dims[:dim], size, *dims[dim + 1 :]))
    zero = make.constant(value, value.array.dtype, 0)
    return emit(value, "pad", shape, (value, zero), {"padding": padding})
