"""A reshape through one dimension: rows are laid end to end, then cut anew."""

from __future__ import annotations

import math

from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.looped.parts import (
    Dims,
    Fits,
    Instr,
    part_counts,
    small_enough,
    starts_of,
    update_of,
    value,
)
from compiler.rewrite.emitter import Emitter

_MINOR_ELEMENTS = 1024


def reshape_in_parts(e: Emitter, near: Instr, fits: Fits) -> Instr | None:
    """Through one dimension; short minor dimensions are joined before and parted after."""
    found: Instr | None = near.operands[0]
    assert found is not None
    first, wanted = found.array.dims, near.array.dims
    for dims in (_joined(first), (found.array.element_count,), _joined(wanted), wanted):
        if dims != found.array.dims:
            found = _reshaped(e, found, dims, fits)
            if found is None:
                return None
            found = e.apart(found)
    return found


def _joined(dims: Dims) -> Dims:
    """The dimensions with the last ones as one, which is not short."""
    first = next(
        (d for d in reversed(range(len(dims))) if math.prod(dims[d:]) >= _MINOR_ELEMENTS), 0
    )
    return (*dims[:first], math.prod(dims[first:]))


def _reshaped(e: Emitter, given: Instr, dims: Dims, fits: Fits) -> Instr | None:
    """To or from one dimension row by row, unless the reshape has windows as it is."""
    shape = given.array.with_dims(dims)
    if fits(HloInstruction("reshape", "reshape", shape, (value(given.array),), {})):
        return e.reshape(given, dims)
    if len(dims) == 1:
        return _laid_out(e, given, fits)
    if given.array.rank == 1:
        return _cut_anew(e, given, dims, fits)
    flat = _reshaped(e, given, (given.array.element_count,), fits)
    return None if flat is None else _reshaped(e, e.apart(flat), dims, fits)


def _rows_at_once(dims: Dims, given: ArrayShape, fits: Fits, *, is_cut: bool) -> Dims | None:
    """The block of rows and columns of an array of `dims` that is moved at once: the largest one
    that has windows with its rows laid end to end. None where not even an element has."""
    whole = given.with_dims(dims if is_cut else (math.prod(dims),))
    majors = (1,) * (len(dims) - 2)

    def is_small(minor: Dims) -> bool:
        block = given.with_dims((*majors, *minor))
        line = given.with_dims((math.prod(minor),))
        source, target = (line, block) if is_cut else (block, line)
        moved = HloInstruction("reshape", "reshape", target, (value(source),), {})
        return fits(moved) and fits(update_of(whole, target.dims))

    minor = small_enough(dims[-2:], (0,), is_small)
    return None if minor is None else (*majors, *minor)


def _row_starts(b: Emitter, number: Instr, dims: Dims, block: Dims) -> tuple[list[Instr], Instr]:
    """Where block `number` begins in an array of `dims`, and among all elements in a line."""
    starts = starts_of(b, number, dims, block)
    place = b.constant(S32, 0)
    for d, start in enumerate(starts):
        stride = b.constant(S32, math.prod(dims[d + 1 :]))
        place = b.add(place, b.multiply(start, stride))
    return starts, place


def _laid_out(e: Emitter, given: Instr, fits: Fits) -> Instr | None:
    """All rows of an array end to end."""
    dims = given.array.dims
    block = _rows_at_once(dims, given.array, fits, is_cut=False)
    if block is None:
        return None

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        source, line = state
        starts, place = _row_starts(b, number, dims, block)
        rows = b.reshape(b.dynamic_slice(source, starts, block), (math.prod(block),))
        return [source, b.dynamic_update_slice(line, b.apart(rows), [place])]

    empty = e.full(given.array.dtype, (given.array.element_count,), 0)
    return e.loop(math.prod(part_counts(dims, block)), [given, empty], step)[-1]


def _cut_anew(e: Emitter, given: Instr, dims: Dims, fits: Fits) -> Instr | None:
    """An array of one dimension as rows of `dims`."""
    block = _rows_at_once(dims, given.array, fits, is_cut=True)
    if block is None:
        return None

    def step(b: Emitter, number: Instr, state: list[Instr]) -> list[Instr]:
        line, target = state
        starts, place = _row_starts(b, number, dims, block)
        rows = b.reshape(b.dynamic_slice(line, [place], (math.prod(block),)), block)
        return [line, b.dynamic_update_slice(target, b.apart(rows), starts)]

    empty = e.full(given.array.dtype, dims, 0)
    return e.loop(math.prod(part_counts(dims, block)), [given, empty], step)[-1]
