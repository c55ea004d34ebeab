"""Ragged products by blocks of rows: each is multiplied with the groups that have rows in it, and no others.

    r = f32[m,n] ragged-dot(x, w, sizes), lhs_ragged_dims={0}, rhs_group_dims={0}

    visits  (block, group) for each group that has rows in a block, by block: at most m / rows + groups - 1
    loop over visits:
        r[block] = select(rows of the group, x[block] * w[group], r[block])
    where rows are summed over:
        r[group] += where(rows of the group, x[block], 0)^T * where(.., y[block], 0)

Each group with all rows would be as many times the work as there are groups. Blocks of an average group's
rows are twice the work at most, and bring each group's matrix twice.

A last block starts earlier, to end with the rows; those that the block before had count once. What no group
has stays zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.passes.expanders.window_taps import sum_type
from compiler.rewrite.emitter import Emitter
from tpu_sim.isa.geometry import LANES

Instr = HloInstruction

_MOST_ROWS = 1024
"""Of a block: more keep the MXUs no busier, and are multiplied in vain at the borders of groups (assumed)."""
_WORTH = 0.75
"""Of the rows that all groups with all rows would multiply: beyond, the loop is not made."""


def by_blocks(instr: Instr) -> Instr | None:
    """The product block by block; None where it has batches, or is small."""
    lhs, rhs, sizes = instr.operands
    (ragged,) = instr.lhs_ragged_dims
    is_summed = ragged in instr.lhs_contracting_dims
    if instr.ints("lhs_batch_dims") or len(instr.lhs_contracting_dims) != 1:
        return None
    if lhs.array.rank != 2 or rhs.array.rank != (2 if is_summed else 3) or sizes.array.rank != 1:
        return None
    count, groups = lhs.array.dims[ragged], sizes.array.dims[0]
    rows = _block_rows(count, groups)
    visits = -(-count // max(rows, 1)) + groups - 1
    if not rows or not groups or visits * rows > _WORTH * groups * count:
        return None
    e = Emitter.at(instr)
    tables = _visits(e, e.cast(sizes, S32), count, rows, visits)
    product = _Product(instr, ragged, rows)
    total_type = sum_type(instr.array.dtype) if is_summed else instr.array.dtype
    total = e.full(total_type, instr.array.dims, 0)
    state = [lhs, rhs, tables.groups, tables.blocks, tables.starts, tables.stops, total]
    step = product.summed if is_summed else product.rows_of
    return e.cast(e.loop(visits, state, step)[-1], instr.array.dtype)


def _block_rows(count: int, groups: int) -> int:
    """Whole lanes of an average group's rows; all rows where they are fewer."""
    average = count // max(groups, 1) // LANES * LANES
    return min(max(average, LANES), _MOST_ROWS, count)


@dataclass(frozen=True)
class _Visits:
    """By visit: its group, its block, and which rows of all are the group's; none beyond the last visit."""

    groups: Instr
    blocks: Instr
    starts: Instr
    stops: Instr


def _visits(e: Emitter, sizes: Instr, count: int, rows: int, visits: int) -> _Visits:
    """The tables of so many visits: `sizes` are those of the groups, of `count` rows in blocks of `rows`."""
    groups = sizes.array.dims[0]
    most, all_before = e.like(sizes, count), running_sum(e, sizes)
    stops = e.minimum(all_before, most)
    starts = e.minimum(e.subtract(all_before, sizes), most)
    size = e.like(sizes, rows)
    first = e.divide(starts, size)
    last = e.divide(e.subtract(stops, e.like(stops, 1)), size)
    own = e.add(e.subtract(last, first), e.like(last, 1))
    own = e.select(e.compare(stops, starts, "GT"), own, e.like(own, 0))
    ends = running_sum(e, own)
    begins = e.subtract(ends, own)

    both = (visits, groups)
    number = e.positions(both, 0)
    is_own = e.and_(
        e.compare(number, e.broadcast(begins, both, (1,)), "GE"),
        e.compare(number, e.broadcast(ends, both, (1,)), "LT"),
    )

    def of_visit(values: Instr) -> Instr:
        spread = e.broadcast(values, both, (1,))
        chosen = e.select(is_own, spread, e.like(spread, 0))
        return e.reduce(chosen, e.constant(S32, 0), (1,), e.scalar("add", S32))

    blocks = e.add(of_visit(e.subtract(first, begins)), e.positions((visits,), 0))
    return _Visits(of_visit(e.positions((groups,), 0)), blocks, of_visit(starts), of_visit(stops))


class _Product:
    """The steps of the loop over visits."""

    def __init__(self, instr: Instr, ragged: int, rows: int) -> None:
        self.instr = instr
        self.ragged = ragged
        self.rows = rows
        self.count = instr.operands[0].array.dims[ragged]

    def rows_of(self, b: Emitter, i: Instr, state: list[Instr]) -> list[Instr]:
        """Rows of one group in one block of the result."""
        left, right, *tables, total = state
        group, at, inside = self._place(b, i, tables)
        (dim,) = self.instr.rhs_group_dims
        slab = _cut(b, right, dim, group, 1)
        dims = slab.array.dims
        other = b.reshape(slab, (*dims[:dim], *dims[dim + 1 :]))
        contracting = tuple(d - (d > dim) for d in self.instr.rhs_contracting_dims)
        shape = total.array.with_dims(())
        attrs = self._attributes() | {"rhs_contracting_dims": contracting}
        product = b.instruction(
            "dot", (_cut(b, left, self.ragged, at, self.rows), other), attrs, shape
        )
        mask = b.broadcast(inside, product.array.dims, (0,))
        old = _cut(b, total, 0, at, self.rows)
        changed = b.dynamic_update_slice(
            total, b.select(mask, product, old), (at, b.constant(S32, 0))
        )
        return [left, right, *tables, changed]

    def summed(self, b: Emitter, i: Instr, state: list[Instr]) -> list[Instr]:
        """What the rows of one block add to one group's matrix."""
        left, right, *tables, total = state
        group, at, inside = self._place(b, i, tables)
        (paired,) = self.instr.rhs_contracting_dims
        sides: list[Instr] = []
        for array, dim in ((left, self.ragged), (right, paired)):
            block = _cut(b, array, dim, at, self.rows)
            mask = b.broadcast(inside, block.array.dims, (dim,))
            sides.append(b.select(mask, block, b.like(block, 0)))
        product = b.instruction("dot", sides, self._attributes(), total.array.with_dims(()))
        old = _cut(b, total, 0, group, 1)
        new = b.add(old, b.reshape(product, old.array.dims))
        zero = b.constant(S32, 0)
        changed = b.dynamic_update_slice(total, new, (group, zero, zero))
        return [left, right, *tables, changed]

    def _place(self, b: Emitter, i: Instr, tables: list[Instr]) -> tuple[Instr, Instr, Instr]:
        """The visit's group, the first row of its block, and which of the block's rows are the group's and
        no earlier block's."""
        group, block, start, stop = (
            b.reshape(b.dynamic_slice(table, (i,), (1,)), ()) for table in tables
        )
        first = b.multiply(block, b.constant(S32, self.rows))
        at = first
        if self.count % self.rows:
            at = b.minimum(first, b.constant(S32, self.count - self.rows))
        dims = (self.rows,)
        place = b.add(b.positions(dims, 0), b.broadcast(at, dims))
        low = b.broadcast(b.maximum(start, first), dims)
        inside = b.and_(
            b.compare(place, low, "GE"), b.compare(place, b.broadcast(stop, dims), "LT")
        )
        return group, at, inside

    def _attributes(self) -> dict[str, object]:
        kept = ("lhs_contracting_dims", "rhs_contracting_dims", "operand_precision", "algorithm")
        return {name: self.instr.attrs[name] for name in kept if name in self.instr.attrs}


def running_sum(e: Emitter, values: Instr) -> Instr:
    """Of a vector: each element and all before it."""
    shift = 1
    count = values.array.dims[0]
    while shift < count:
        moved = e.pad_dim(e.part(values, 0, 0, count - shift), 0, shift, 0)
        values = e.add(values, moved)
        shift *= 2
    return values


def _cut(b: Emitter, array: Instr, dim: int, at: Instr, size: int) -> Instr:
    """`size` elements of one dimension from `at` on, all of the others."""
    zero = b.constant(S32, 0)
    starts = [at if d == dim else zero for d in range(array.array.rank)]
    sizes = tuple(size if d == dim else n for d, n in enumerate(array.array.dims))
    return b.dynamic_slice(array, starts, sizes)
