"""Which box of each leaf a box of a node reads: interval analysis over index maps.

A `Box` has per dimension a first index (an expression over grid variables and dynamic starts) and a
constant extent. Where a leaf's index cannot be bounded like that, the box is the whole dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache

from compiler.analysis.index_bounds import close_bounds
from compiler.analysis.indexing import (
    Expr,
    Quotient,
    Var,
    const,
    var,
    variables,
)
from compiler.analysis.indexing_maps import Index, operand_reads
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from tpu_sim.isa.geometry import LANES, SUBLANES


@dataclass(frozen=True)
class Box:
    """Indices ``low[d] .. low[d] + extent[d] - 1`` in each dimension d.

    A box may stick out of its array (a partial last block, padding): readers clip transfers.
    """

    low: tuple[Expr, ...]
    extent: tuple[int, ...]


def whole_box(shape: ArrayShape) -> Box:
    """All of an array."""
    return Box(tuple(const(0) for _ in shape.dims), shape.dims)


def operand_boxes(
    node: HloInstruction,
    box: Box,
    stop: Collection[HloInstruction] = (),
    units_of: Callable[[HloInstruction], tuple[int, ...]] | None = None,
) -> dict[HloInstruction, Box]:
    """The boxes of parameters and of nodes in `stop` that `box` of `node` reads, in whole tiles.

    A leaf that is read at several indices gets the union of their boxes. `units_of` gives a
    leaf's tile sizes where they are not those of its shape (values kept one a row).
    """
    inner = tuple(var(Var(f"box{d}", 0, n - 1)) for d, n in enumerate(box.extent))
    index = tuple(low + i for low, i in zip(box.low, inner, strict=True))
    outer = frozenset().union(*(variables(low) for low in box.low))
    return {
        leaf: round_to_tiles(
            leaf.array,
            _union(leaf.array, indices, outer),
            None if units_of is None else units_of(leaf),
        )
        for leaf, indices in leaf_indices(node, index, stop).items()
    }


def merge_boxes(
    shape: ArrayShape, boxes: Iterable[Box], units: tuple[int, ...] | None = None
) -> Box:
    """The union of tile-rounded boxes of one array; whole where their distance varies much."""
    result: Box | None = None
    for box in boxes:
        result = box if result is None else _join(shape, result, box)
    assert result is not None, "no boxes"
    return round_to_tiles(shape, result, units)


def tile_units(shape: ArrayShape) -> tuple[int, ...]:
    """The multiples that box origins keep to in each dimension: vreg tiles in the tiled ones."""
    packing = shape.dtype.packing
    if shape.rank == 1:
        return (LANES * SUBLANES * packing,)
    tiled = (SUBLANES * packing, LANES)
    return (*(1 for _ in shape.dims[:-2]), *tiled) if shape.rank else ()


def round_to_tiles(shape: ArrayShape, box: Box, units: tuple[int, ...] | None = None) -> Box:
    """The box grown to whole vreg tiles (or `units`); a dimension covered entirely starts at 0."""
    units = tile_units(shape) if units is None else units
    return _rounded(shape.dims, units, box.low, box.extent)


@lru_cache(maxsize=4096)
def _rounded(
    dims: tuple[int, ...], units: tuple[int, ...], low: Index, extent: tuple[int, ...]
) -> Box:
    lows: list[Expr] = []
    extents: list[int] = []
    for first, count, size, unit in zip(low, extent, dims, units, strict=True):
        start = (first // unit) * unit
        lead = (first - start).range()[1]
        grown = -(-(lead + count) // unit) * unit
        is_whole = grown >= size
        lows.append(const(0) if is_whole else start)
        extents.append(size if is_whole else grown)
    return Box(tuple(lows), tuple(extents))


def leaf_indices(
    node: HloInstruction, index: Index, stop: Collection[HloInstruction] = ()
) -> dict[HloInstruction, list[Index]]:
    """Every index at which `node` at `index` reads a parameter or a node in `stop`."""
    found: dict[HloInstruction, list[Index]] = {}
    one_of_each = {index: index}  # so that equal indices are one object, known by its address
    seen = {(node, id(index))}
    pending = [(node, index)]
    while pending:
        current, at = pending.pop()
        if current.opcode == "parameter" or (current in stop):
            found.setdefault(current, []).append(at)
            continue
        for operand, read in operand_reads(current, at):
            if read is not at:
                read = one_of_each.setdefault(read, read)
            key = (operand, id(read))
            if key not in seen:
                seen.add(key)
                pending.append((operand, read))
    return found


def _union(shape: ArrayShape, indices: list[Index], outer: frozenset[Var]) -> Box:
    boxes = [_bounds(shape.dims, index, outer) for index in indices]
    result = boxes[0]
    for box in boxes[1:]:
        result = _join(shape, result, box)
    return result


def _join(shape: ArrayShape, a: Box, b: Box) -> Box:
    lows: list[Expr] = []
    extents: list[int] = []
    for d, size in enumerate(shape.dims):
        if a.low[d] is b.low[d]:
            lows.append(a.low[d])
            extents.append(max(a.extent[d], b.extent[d]))
            continue
        distance = b.low[d] - a.low[d]
        least, most = close_bounds(distance)
        first = min(0, least)
        last = max(a.extent[d], most + b.extent[d])
        if last - first >= size and not distance.is_constant:
            lows.append(const(0))
            extents.append(size)
            continue
        lows.append(a.low[d] + first)
        extents.append(last - first)
    return Box(tuple(lows), tuple(extents))


@lru_cache(maxsize=4096)
def _bounds(dims: tuple[int, ...], index: Index, outer: frozenset[Var]) -> Box:
    lows: list[Expr] = []
    extents: list[int] = []
    for expr, size in zip(index, dims, strict=True):
        low, span = interval(expr, outer)
        if low.is_constant:  # padding reads past the ends; nothing there is needed
            first = max(0, min(low.constant, size - 1))
            last = max(first, min(size - 1, low.constant + span))
            low, span = const(first), last - first
        lows.append(low if span + 1 < size else const(0))
        extents.append(min(span + 1, size))
    return Box(tuple(lows), tuple(extents))


def interval(expr: Expr, outer: Collection[Var]) -> tuple[Expr, int]:
    """(low, span) with low <= expr <= low + span; low is over `outer` and start variables only."""
    low = const(expr.constant)
    span = 0
    for atom, factor in expr.terms:
        atom_low, atom_span = _atom_interval(atom, outer)
        nearest = atom_low if factor >= 0 else atom_low + atom_span
        low = low + nearest * factor
        span += abs(factor) * atom_span
    return low, span


def _atom_interval(atom: object, outer: Collection[Var]) -> tuple[Expr, int]:
    if isinstance(atom, Var):
        if atom in outer or atom.start_of is not None:
            return var(atom), 0
        return const(atom.low), atom.high - atom.low
    body = atom.body  # type: ignore[attr-defined]
    divisor: int = atom.divisor  # type: ignore[attr-defined]
    low, span = interval(body, outer)
    phase = low % divisor
    if isinstance(atom, Quotient):
        if phase.is_constant:
            return low // divisor, (phase.constant + span) // divisor
        return low // divisor, -(-span // divisor)
    if span == 0 or phase.range()[1] + span < divisor:
        return phase, span
    return const(0), divisor - 1


__all__ = [
    "Box",
    "interval",
    "leaf_indices",
    "merge_boxes",
    "operand_boxes",
    "round_to_tiles",
    "tile_units",
    "whole_box",
]
