"""Makers of gathers and scatters whose places are known: digits that count, and what breaks them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.rule_fuzz.generator import Generator, Impossible, Wanted
from benchmarks.rule_fuzz.planners import reducer, reducer_kinds
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.rewrite.dims import Dims


@dataclass(frozen=True)
class _Access:
    """Windows of `windows` elements at `starts`, [count, rank], within `dims`."""

    dims: Dims
    windows: Dims
    starts: npt.NDArray[np.int64]
    batch: Dims


def _access(g: Generator, *, outside: int) -> _Access:
    """Places that digits count, ends of rings among them; up to `outside` beyond the operand."""
    rank = g.integer(1, 3)
    sizes = [g.choose((1, 2, 3, 4, 8)) for _ in range(g.integer(0, 3))]
    starts = np.zeros((1, rank), np.int64)
    for size in sizes:
        steps = np.zeros(rank, np.int64)
        if g.chance(0.8):
            steps[g.integer(0, rank - 1)] = g.choose((1, 1, 2, 3, 5, 8, -1, -2))
        moved = starts[:, None] + np.arange(size)[None, :, None] * steps
        starts = moved.reshape(-1, rank)
    starts -= starts.min(axis=0)
    if g.chance(0.3):
        starts = np.roll(starts, g.integer(1, 2), axis=0)
    if g.chance(0.3):
        starts = np.concatenate([starts, starts[: g.integer(1, 2)]])
    windows = tuple(g.choose((1, 1, 2, 5, 9)) for _ in range(rank))
    room = starts.max(axis=0) + windows
    dims = tuple(int(n) + g.choose((0, 0, 1, 7)) for n in room)
    if outside and g.chance(0.3):
        starts = starts + g.integer(-outside, outside)
    count = len(starts)
    batch = (count,)
    if count % 2 == 0 and g.chance(0.3):
        batch = (2, count // 2)
    return _Access(dims, windows, starts, batch)


def _indices(g: Generator, access: _Access, start_map: Dims) -> tuple[HloInstruction, int]:
    """The index array of components `start_map`, and which dimension holds them."""
    vectors = access.starts[:, list(start_map)].reshape(*access.batch, len(start_map))
    vector_dim = g.integer(0, len(access.batch))
    values = np.moveaxis(vectors, -1, vector_dim)
    if len(start_map) == 1 and g.chance(0.5):
        return g.literal(S32, values.squeeze(vector_dim)), len(access.batch)
    return g.literal(S32, values), vector_dim


def _start_map(g: Generator, access: _Access) -> Dims:
    """Dimensions that have a component: all that move, in any order."""
    moving = [d for d in range(len(access.dims)) if access.starts[:, d].any()]
    others = [d for d in range(len(access.dims)) if d not in moving and g.chance(0.5)]
    found = moving + others
    if not found:
        raise Impossible
    return tuple(found[k] for k in g.permutation(len(found)))


def _gone(g: Generator, access: _Access) -> Dims:
    """Dimensions of a window's single element that the window does not have."""
    return tuple(d for d, n in enumerate(access.windows) if n == 1 and g.chance(0.7))


def gather_at_known_places(g: Generator) -> HloInstruction:
    """Windows at places that digits count."""
    access = _access(g, outside=2)
    operand = g.value(Wanted(g.dtype(), access.dims))
    start_map = _start_map(g, access)
    indices, vector_dim = _indices(g, access, start_map)
    gone = _gone(g, access)
    rank = len(access.batch) + len(access.dims) - len(gone)
    first = g.integer(0, len(access.batch))
    attrs: dict[str, object] = {
        "offset_dims": tuple(range(first, first + rank - len(access.batch))),
        "collapsed_slice_dims": gone,
        "start_index_map": start_map,
        "index_vector_dim": vector_dim,
        "slice_sizes": access.windows,
    }
    return g.emit("gather", (operand, indices), attrs)


def scatter_at_known_places(g: Generator) -> HloInstruction:
    """Updates at places that digits count, which may meet."""
    access = _access(g, outside=1 if g.chance(0.1) else 0)
    dtype = g.dtype()
    wanted = Wanted(dtype, access.dims)
    operand = g.splat(wanted, g.choose((0, 1))) if g.chance(0.4) else g.value(wanted)
    start_map = _start_map(g, access)
    indices, vector_dim = _indices(g, access, start_map)
    gone = _gone(g, access)
    window = tuple(n for d, n in enumerate(access.windows) if d not in gone)
    first = g.integer(0, len(access.batch))
    dims = (*access.batch[:first], *window, *access.batch[first:])
    kind = g.choose(reducer_kinds(dtype))
    if dtype.is_complex and kind == "multiply":
        raise Impossible  # rounded in another way by itself than in an array, by the host
    attrs: dict[str, object] = {
        "update_window_dims": tuple(range(first, first + len(window))),
        "inserted_window_dims": gone,
        "scatter_dims_to_operand_dims": start_map,
        "index_vector_dim": vector_dim,
        "to_apply": reducer(g, kind, dtype),
    }
    return g.emit("scatter", (operand, indices, g.value(Wanted(dtype, dims))), attrs)
