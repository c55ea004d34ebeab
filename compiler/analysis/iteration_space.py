"""The index space a fusion's grid moves over, and how its results lie in it.

    kLoop    the dimensions of the largest result
    kOutput  the same (those of the dot), rows of the result whole if there are row reductions
    kInput   the dimensions of the reduces' operand; reduced ones are `arbitrary`. Results have
             the others, or all of them

Every dimension has a unit: the elements that a block must hold a multiple of so that the blocks of
all arrays that it moves are whole vreg tiles.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler.analysis.dot_parts import DotParts
from compiler.analysis.fusion_body import FusionBody
from compiler.analysis.indexing import Expr, var
from compiler.analysis.indexing_boxes import tile_units
from compiler.analysis.indexing_maps import start_variable
from compiler.analysis.lane_costs import MANY_PARTS
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.dims import reshape_groups
from tpu_sim.isa.cached_property import cached_property
from tpu_sim.isa.geometry import LANES, SUBLANES

_DOT_ROWS = 16
_MOST_JOINED = 64
"""Column tiles that code is made for one by one."""
MOST_PERIOD = 64
"""Tiles of rows in a period; each has code of its own (`backend/vector/row_periods.py`)."""
_MOVES = with_any(Trait.INDEX_MAP | Trait.PIECEWISE)
_IN_PLACE = Trait.INDEX_MAP | Trait.PIECEWISE | Trait.ELEMENTWISE
_LONG_DEPTH = 4096
"""Elements of K from which cutting it is tried."""


@dataclass(frozen=True)
class IterationDim:
    """One dimension: `size` elements in blocks of multiples of `unit`.

    One that is `better_whole` is cut only where nothing fits otherwise, one with a `period` only into
    multiples of so many units. Blocks of one that is `disjoint` divide it, so that none holds what
    another one does; the last block of one that is `open_ended` may end after it. `merged`: units after
    which an outer one of several dimensions that it stands for goes on; `turned` if what lies in between
    comes out of the transpose units.
    """

    size: int
    unit: int
    parallel: bool = True
    splittable: bool = True
    better_whole: bool = False
    disjoint: bool = False
    open_ended: bool = False
    merged: tuple[int, ...] = ()
    period: int = 1
    turned: bool = False

    @cached_property
    def tiles(self) -> int:
        """Units that cover the dimension."""
        return max(1, -(-self.size // self.unit))

    def is_within(self, block: int) -> bool:
        """Whether blocks of so many units lie within what is merged, or hold whole ones."""
        return all(block % group == 0 or group % block == 0 for group in self.merged)

    def is_off_period(self, block: int) -> bool:
        """Whether blocks of so many units begin anywhere in a period or among turned rows."""
        return block % self.period != 0 or (self.turned and not self.is_within(block))


@dataclass(frozen=True)
class IterationSpace:
    """Dimensions, outermost first; `root_dims[i]` says which of them result i has, in its order.

    `offsets` are added to the space's indices to give the results' (a dynamic-update-slice moves
    over its update alone); empty means none.
    """

    dims: tuple[IterationDim, ...]
    root_dims: tuple[tuple[int, ...], ...]
    offsets: tuple[Expr, ...] = ()


def iteration_space(body: FusionBody, kind: str, parts: DotParts) -> IterationSpace:
    """The space of a kLoop, kOutput or kInput fusion. A dot of one pass has K as its last dimension.

    Raises UnsupportedError when a result has dimensions that are not the space's first ones.
    """
    if kind == "kInput":
        return _input_space(body)
    sizes = max((r.array.dims for r in body.roots), key=lambda d: (len(d), math.prod(d)))
    root_dims = tuple(_prefix(root, sizes) for root in body.roots)
    whole_rows = any(len(_result_dims(r)) < len(sizes) for r in body.reduces)
    placed = [(r.array, dims) for r, dims in zip(body.roots, root_dims, strict=True)]
    dims = _dims(sizes, placed, _packing(body, sizes))
    if body.dot is None:
        _keep_turned_rows(body, dims)
    for number in range(max(0, len(dims) - (1 if body.dot is None else 2)), len(dims)):
        if _is_joined(body, dims[number]):
            dims[number] = replace(dims[number], better_whole=True)
    if body.dot is not None and len(dims) >= 2:
        dims[-2] = _in_merged_rows(body, _in_packed_rows(dims[-2]))
    if body.dot is None and len(dims) >= 2:
        dims[-2] = _in_turned_groups(body, dims[-2])
    if len(dims) == 2:
        dims[0] = _with_period(body, dims[0])
    if whole_rows and dims:
        dims[-1] = replace(dims[-1], splittable=False)
    if body.dot is not None and parts.passes == 1 and not parts.integer:
        depth = _in_merged_depth(body, _depth_dim(body.dot))
        is_matrix = sizes == body.dot.array.dims  # else K is not cut
        dims.append(depth if is_matrix else replace(depth, splittable=False))
    return IterationSpace(tuple(dims), root_dims)


def _keep_turned_rows(body: FusionBody, dims: list[IterationDim]) -> None:
    """Blocks of whole row tiles along major dimensions that are the rows of what is read.

    With smaller ones each block would fetch the tiles of several.
    """
    sizes = tuple(d.size for d in dims)
    rows = len(sizes) - 2
    for node in body.computation:
        if node.opcode != "transpose" or node.array.dims != sizes or rows < 1:
            continue
        place = node.dimensions.index(rows)
        unit = SUBLANES * node.array.dtype.packing
        if place < rows and sizes[place] % unit == 0:
            dims[place] = replace(dims[place], unit=math.lcm(dims[place].unit, unit))


def _is_joined(body: FusionBody, columns: IterationDim) -> bool:
    """Whether columns are of many parts: which of them a tile is made of is known in a whole row.

    For a dot they are columns of either operand, and so columns or rows of its result.
    """
    return columns.tiles <= _MOST_JOINED and any(
        node.opcode == "concatenate"
        and len(node.operands) >= MANY_PARTS
        and node.array.dims[node.dimensions[0]] == columns.size
        and (node.dimensions[0] == node.array.rank - 1 or _is_turned_into_columns(node))
        for node in body.computation
    )


def _is_turned_into_columns(joined: HloInstruction) -> bool:
    """Whether a transpose makes the dimension along which parts are joined the last one."""
    return any(
        node.opcode == "transpose"
        and node.dimensions[-1] == joined.dimensions[0]
        and _behind_arithmetic(node.operands[0]) is joined
        for node in joined.computation or ()
    )


def _depth_dim(dot: HloInstruction) -> IterationDim:
    """K, which the grid may cut; where whole rows of it are short, only if they do not fit.

    A last block may end after it: what lies there is 0 in operands that are made ready.
    """
    depth = dot.operands[0].array.dims[-1]
    is_short = depth < _LONG_DEPTH
    return IterationDim(
        depth, LANES, parallel=False, better_whole=is_short, open_ended=not is_short
    )


def _dims(
    sizes: tuple[int, ...], placed: list[tuple[ArrayShape, tuple[int, ...]]], packing: int
) -> list[IterationDim]:
    """Dimensions with the units that the placed arrays ask for.

    `packing` is the most elements a word of an operand holds: its rows come in larger tiles, and
    blocks keep to them where that leaves no array with a block that sticks out of it.
    """
    units: list[set[int]] = [{1} for _ in sizes]
    for shape, dims in placed:
        for dim, unit in zip(dims, tile_units(shape), strict=True):
            units[dim].add(unit)
    found: list[IterationDim] = []
    for number, (size, wanted) in enumerate(zip(sizes, units, strict=True)):
        unit = math.lcm(*wanted)
        if number == len(sizes) - 2:
            larger = math.lcm(unit, SUBLANES * packing)
            unit = larger if _is_even(size, {*wanted, larger}) else unit
        found.append(IterationDim(size, unit, splittable=_is_even(size, wanted | {unit})))
    return found


def _in_packed_rows(dim: IterationDim) -> IterationDim:
    """Rows of a dot: blocks of whole bf16 tiles, where those leave no result a part of one.

    Else a step multiplies the bf16 tiles around its rows, up to one more than it makes.
    """
    unit = math.lcm(dim.unit, _DOT_ROWS)
    is_even = dim.splittable and _is_even(dim.size, {dim.unit, unit})
    return replace(dim, unit=unit) if is_even else dim


def _in_merged_rows(body: FusionBody, dim: IterationDim) -> IterationDim:
    """Rows of a dot that are positions of several dimensions: blocks had better not cross them."""
    periods = _merged_sizes(body, dim.size)
    units = {p // dim.unit for p in periods if p % dim.unit == 0 and 1 < p < dim.size}
    return replace(dim, merged=tuple(sorted(units)))


def _in_turned_groups(body: FusionBody, rows: IterationDim) -> IterationDim:
    """Rows that are positions of several dimensions, of an array that is read transposed.

    Such rows come out of the transpose units in blocks of what lies along lanes. A block of the grid
    that crossed into the next group would begin anywhere in one, and look up each lane by itself.
    """
    groups: set[int] = set()
    for node in body.computation:
        if node.opcode == "reshape" and node.array.rank >= 2 and node.array.dims[-2] == rows.size:
            source = _behind_arithmetic(node.operands[0])
            if source.opcode == "transpose" and source.dimensions[-1] != source.array.rank - 1:
                groups.update(_group_sizes(source.array.dims, node.array.dims))
    units = {g // rows.unit for g in groups if g % rows.unit == 0}
    merged = tuple(sorted(units - {1, rows.tiles}))
    return replace(rows, merged=merged, turned=bool(merged))


def _group_sizes(source: tuple[int, ...], merged: tuple[int, ...]) -> Iterator[int]:
    """How many rows the inner ones of the dimensions have that a reshape merges into the last but one."""
    for old, new in reshape_groups(source, merged):
        if new == (len(merged) - 2,) and 0 not in source:
            yield from itertools.accumulate((source[d] for d in reversed(old[1:])), operator.mul)


def _behind_arithmetic(node: HloInstruction) -> HloInstruction:
    while OPCODES[node.opcode].traits & Trait.ELEMENTWISE and len(node.operands) == 1:
        node = node.operands[0]
    return node


def _in_merged_depth(body: FusionBody, dim: IterationDim) -> IterationDim:
    """K that is positions of several dimensions, as of a convolution's kernel.

    A block that crosses one of them fetches all of it for every tap. Where positions are no whole units,
    blocks hold several of them.
    """
    sizes = (math.lcm(p, dim.unit) for p in _merged_sizes(body, dim.size) if p > 1)
    units = {size // dim.unit for size in sizes if dim.size % size == 0 and size < dim.size}
    return replace(dim, merged=tuple(sorted(units)))


def _merged_sizes(body: FusionBody, size: int) -> set[int]:
    """Positions after which an outer one of the dimensions goes on that reshapes merge into `size` rows."""
    found: set[int] = set()
    for node in body.computation:
        if node.opcode == "reshape" and size in node.array.dims[-2:]:
            lead = node.operands[0].array.dims[:-1]
            if math.prod(lead) == size:
                found.update(math.prod(lead[n:]) for n in range(1, len(lead)))
    return found


def _with_period(body: FusionBody, rows: IterationDim) -> IterationDim:
    """Rows that move in groups which begin at any row of a tile: after a period they do so alike.

    Blocks of whole periods know where in a tile each of them begins.
    """
    found = 1
    for node in body.computation:
        if node.opcode == "reshape" and node.array.dims[:-1] == (rows.size,):
            for lead in _leads_behind(node, rows.size):
                for count in itertools.accumulate(reversed(lead[1:]), operator.mul):
                    tiles = math.lcm(found * rows.unit, count) // rows.unit
                    if count % rows.unit and tiles <= MOST_PERIOD and rows.tiles % tiles == 0:
                        found = tiles
    return replace(rows, period=found)


def _leads_behind(merged: HloInstruction, rows: int) -> Iterator[tuple[int, ...]]:
    """The leading dimensions of which reshapes on the way to a parameter make the rows that are `merged`."""
    pending, seen = [merged], {merged}
    while pending:
        node = pending.pop()
        for source in node.operands:
            if source in seen or not OPCODES[source.opcode].traits & _IN_PLACE:
                continue
            seen.add(source)
            pending.append(source)
            lead = source.array.dims[:-1]
            is_moved = node.opcode == "reshape" and source.opcode in _MOVES
            if is_moved and math.prod(lead) == rows:
                yield lead


def _is_even(size: int, units: set[int]) -> bool:
    """Whether arrays tiled by any of the units (but 1) pad a dimension to the same size."""
    return len({-(-size // unit) * unit for unit in units if unit > 1}) <= 1


def _result_dims(reduce: HloInstruction) -> tuple[int, ...]:
    reduced = reduce.dimensions
    operand = reduce.operands[0].array
    return tuple(size for d, size in enumerate(operand.dims) if d not in reduced)


def _prefix(root: HloInstruction, sizes: tuple[int, ...]) -> tuple[int, ...]:
    dims = root.array.dims
    if dims != sizes[: len(dims)]:
        raise UnsupportedError(
            f"%{root.name}: result dimensions {list(dims)} do not lead those of the fusion's "
            f"other results, {list(sizes)}; compile it in a fusion of its own",
            root.span,
        )
    return tuple(range(len(dims)))


def _packing(body: FusionBody, sizes: tuple[int, ...]) -> int:
    """The most elements a word holds in any array with the space's rows."""
    nodes = [n for n in (*body.parameters, *body.roots) if n not in body.carried]
    arrays = [n.array for n in nodes if isinstance(n.shape, ArrayShape)]
    rows = [s for s in arrays if s.rank >= 2 and len(sizes) >= 2 and s.dims[-2] == sizes[-2]]
    return max((s.dtype.packing for s in rows), default=1)


def _input_space(body: FusionBody) -> IterationSpace:
    """Dimensions of the reduces' operand; what they reduce is `arbitrary`."""
    first = body.reduces[0]
    operand = first.operands[0].array
    reduced = first.dimensions
    every = tuple(range(operand.rank))
    kept = tuple(d for d in every if d not in reduced)
    root_dims = tuple(every if r.array.dims == operand.dims else kept for r in body.roots)
    placed = [(operand, every)]
    results = [(r.array, dims) for r, dims in zip(body.roots, root_dims, strict=True)]
    dims = _dims(operand.dims, placed + results, _packing(body, operand.dims))
    for d in kept:
        dims[d] = replace(dims[d], splittable=_ends_together(d, dims[d], results))
    if every in root_dims:
        _keep_turned_rows(body, dims)
    # partial masks have no place, and what reads a sum in the fusion wants all of it
    sums = [r for r, of in zip(body.roots, root_dims, strict=True) if of == kept]
    is_whole = any(r.array.dtype.kind == "pred" for r in sums)
    is_whole = is_whole or not all(_is_only_stored(r, body.roots) for r in body.reduces)
    is_summed = every not in root_dims  # and not stored as well: what is beyond the end is left out
    marked = [
        replace(
            dim,
            parallel=d not in reduced,
            splittable=dim.splittable and not (is_whole and d in reduced),
            open_ended=d in reduced and is_summed,
        )
        for d, dim in enumerate(dims)
    ]
    return IterationSpace(tuple(marked), root_dims)


def _ends_together(
    number: int, dim: IterationDim, results: list[tuple[ArrayShape, tuple[int, ...]]]
) -> bool:
    """Whether blocks of a dimension that is kept stick out of no result, or out of all alike.

    What is reduced may end earlier: it is read, by windows that are brought inside, not made.
    """
    units = {tile_units(shape)[dims.index(number)] for shape, dims in results if number in dims}
    return _is_even(dim.size, units | {dim.unit})


def _is_only_stored(reduce: HloInstruction, roots: tuple[HloInstruction, ...]) -> bool:
    """Whether each result of a reduce that is taken is one of the fusion's, and nothing reads it."""
    parts = [reduce] if isinstance(reduce.shape, ArrayShape) else list(reduce.users)
    return all(
        sum(root is part for root in roots) == 1 and all(u.opcode == "tuple" for u in part.users)
        for part in parts
    )


def whole_reduction_block(
    operand: ArrayShape, reduced: tuple[int, ...], arrays: list[ArrayShape]
) -> tuple[int, ...]:
    """The least block (elements a dimension) of a kInput fusion's grid with all that is reduced.

    `arrays` are what it reads and makes; those of the operand's or result's dimensions count.
    """
    kept = tuple(d for d in range(operand.rank) if d not in reduced)
    kept_dims = tuple(operand.dims[d] for d in kept)
    placed = [(operand, tuple(range(operand.rank)))]
    placed += [(a, kept) for a in arrays if a.dims == kept_dims]
    packing = max((a.dtype.packing for a in arrays if a.rank >= 2), default=1)
    return tuple(
        dim.unit if d in kept and dim.splittable else dim.tiles * dim.unit
        for d, dim in enumerate(_dims(operand.dims, placed, packing))
    )


def update_space(update_slice: HloInstruction) -> IterationSpace:
    """The update of a dynamic-update-slice: blocks of it where it starts at a fixed place.

    Along a tiled dimension that the update does not cover it is one block, grown to whole tiles.
    The kernel writes where it reads, so a block must not be fetched while the one before is stored.
    """
    operand, update = update_slice.array, update_slice.operands[1].array
    rank = operand.rank
    units = tile_units(operand)
    dims: list[IterationDim] = []
    for d, (whole, size) in enumerate(zip(operand.dims, update.dims, strict=True)):
        is_free = size == whole or units[d] == 1
        unit = units[d] if is_free else max(size, 1)
        dims.append(IterationDim(size, unit, disjoint=True))
    offsets = tuple(var(start_variable(update_slice, d)) for d in range(rank))
    return IterationSpace(tuple(dims), (tuple(range(rank)),), offsets)
