"""Long rows that a product makes, in groups of 128 neighbours: `[rows, n]` as `[groups, rows, 128]`.

The right side of the product is cut into groups of 128 rows, which the left side multiplies one after the
other. So no kernel cuts the rows, each of which would be spread over other tiles.
"""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.passes.fusion_roles import is_by_element
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit
from tpu_sim.isa.geometry import SUBLANES

Instr = HloInstruction

GROUP = 128
_MOST_STEPS = 16
"""Operations between a product and what its rows are searched by, at most (assumed)."""


def in_groups(e: Emitter, rows: Instr, fill: int | float) -> Instr:
    """Rows `[rows, n]` that `come_from_product` as `[groups, rows, 128]`, `fill` behind their ends."""
    size = rows.array.dims[1]
    made = _Split(e, rows.array.dims).of(rows)
    if made.array.dims[0] * GROUP == size:
        return made
    group, lane = (e.positions(made.array.dims, d) for d in (0, 2))
    place = e.add(e.multiply(group, e.like(group, GROUP)), lane)
    return e.select(e.compare(place, e.like(place, size), "LT"), made, e.like(made, fill))


def come_from_product(rows: Instr, search: Instr) -> bool:
    """Whether rows are made by element of a product and nothing else that is as large, for a search alone."""
    inner: dict[Instr, None] = {}
    pending, has_product = [rows], False
    while pending:
        value = pending.pop()
        if value in inner:
            continue
        inner[value] = None
        if _right_side(value) is not None:
            has_product = True
        elif is_by_element(value) and value.operands and len(inner) <= _MOST_STEPS:
            pending += [o for o in value.operands if o.array.dims == rows.array.dims]
        elif value.opcode != "broadcast":
            return False
    needed = (user for value in inner if value.opcode != "broadcast" for user in value.users)
    return has_product and all(user in inner or user is search for user in needed)


class _Split:
    """Puts values of some dimensions `[rows, n]` into groups."""

    def __init__(self, e: Emitter, dims: tuple[int, ...]) -> None:
        self._e = e
        self._dims = dims
        # whole tiles of what says one thing of each group
        self._count = -(-dims[1] // (GROUP * SUBLANES)) * SUBLANES
        self._whole = (self._count, dims[0], GROUP)
        self._made: dict[Instr, Instr] = {}

    def of(self, value: Instr) -> Instr:
        """A value in groups, computed in groups as far as a product."""
        if value not in self._made:
            self._made[value] = self._of(value)
        return self._made[value]

    def _of(self, value: Instr) -> Instr:
        right = _right_side(value)
        if right is not None:
            return self._product(value, right)
        if value.opcode == "broadcast":
            return self._repeated(value)
        operands = [self.of(o) if o.array.dims == self._dims else o for o in value.operands]
        return make.elementwise(value, operands, self._whole)

    def _repeated(self, value: Instr) -> Instr:
        source, dims = value.operands[0], value.dimensions
        if 1 not in dims:
            return self._e.broadcast(source, self._whole, tuple(d + 1 for d in dims))
        cut = self._e.shaped(self._padded(source, dims.index(1), 0), self._cut(source, dims))
        return self._e.broadcast(cut, self._whole, (0, 2) if dims == (1,) else (1, 0, 2))

    def _cut(self, source: Instr, dims: tuple[int, ...]) -> tuple[int, ...]:
        first = source.array.dims[: dims.index(1)]
        return (*first, self._count, GROUP)

    def _padded(self, value: Instr, dim: int, fill: int | float) -> Instr:
        return self._e.pad_dim(value, dim, 0, self._count * GROUP - self._dims[1], fill)

    def _product(self, dot: Instr, right: Instr) -> Instr:
        """One product for each group of rows of the right side."""
        left = dot.operands[0]
        cut = self._e.shaped(self._padded(right, 0, 0), (self._count, GROUP, *right.array.dims[1:]))
        wide = self._e.broadcast(left, (self._count, *left.array.dims), (1, 2))
        attrs = {
            **dot.attrs,
            "lhs_batch_dims": (0,),
            "rhs_batch_dims": (0,),
            "lhs_contracting_dims": (dot.lhs_contracting_dims[0] + 1,),
            "rhs_contracting_dims": (2,),
        }
        return emit(dot, "dot", dot.array.with_dims(self._whole), (wide, cut), attrs)


def _right_side(value: Instr) -> Instr | None:
    """The rows that the left side's are multiplied by, if a value is such a product of two matrices."""
    if value.opcode != "dot" or any(o.array.rank != 2 for o in value.operands):
        return None
    right, dims = value.operands[1], value.rhs_contracting_dims
    if value.lhs_batch_dims or len(dims) != 1:
        return None
    if dims == (0,):
        return right.operands[0] if right.opcode == "transpose" else None
    return right
