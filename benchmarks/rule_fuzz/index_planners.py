"""Planners of the opcodes whose indices are data: dynamic slices, gathers, scatters."""

from __future__ import annotations

from benchmarks.rule_fuzz.generator import Generator, Impossible, Plan, Planner, Wanted
from benchmarks.rule_fuzz.planners import PLANNERS, reducer, reducer_kinds
from benchmarks.rule_fuzz.values import Dims
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction

_INDEX_TYPES = ("s32", "s32", "u32", "s64", "u8", "s8", "u16", "s16", "u64")


def _index_type(g: Generator) -> DType:
    return g.dtype(_INDEX_TYPES)


def starts(g: Generator, dims: Dims, sizes: Dims) -> tuple[HloInstruction, ...]:
    """A scalar start for each dimension, inside or outside."""
    dtype = _index_type(g)
    return tuple(
        g.indices(Wanted(dtype, ()), max(d - n, 0)) for d, n in zip(dims, sizes, strict=True)
    )


def _grown(g: Generator, dims: Dims) -> Dims:
    return tuple(n + g.choose((0, 0, 1, 5)) for n in dims)


def _dynamic_slice(g: Generator, wanted: Wanted) -> Plan:
    source = _grown(g, wanted.dims)
    attrs: dict[str, object] = {"dynamic_slice_sizes": wanted.dims}
    return Plan((wanted.like(source), *starts(g, source, wanted.dims)), attrs)


def _dynamic_update_slice(g: Generator, wanted: Wanted) -> Plan:
    sizes = tuple(
        n if g.chance(0.4) else g.integer(0 if g.chance(0.2) else min(1, n), n) for n in wanted.dims
    )
    return Plan((wanted, wanted.like(sizes), *starts(g, wanted.dims, sizes)))


def _with_vector(g: Generator, batch: Dims, count: int) -> tuple[Dims, int]:
    """Index dimensions and index_vector_dim; a vector of one may have no dimension."""
    if count == 1 and g.chance(0.4):
        return batch, len(batch)
    at = g.integer(0, len(batch))
    return (*batch[:at], count, *batch[at:]), at


def _gather(g: Generator, wanted: Wanted) -> Plan:
    if g.chance(0.35):
        return _gather_of_rows(g, wanted)
    rank = len(wanted.dims)
    share = g.choose((0.0, 0.5, 1.0))
    offset = [d for d in range(rank) if g.chance(share)]
    sizes = [wanted.dims[d] for d in offset]
    source = list(_grown(g, tuple(sizes)))
    collapsed: list[int] = []
    for _ in range(g.integer(0, 2)):
        at = g.integer(0, len(source))
        sizes.insert(at, 1)
        source.insert(at, g.choose((1, 3, 8, 200, 300)))
        collapsed = [*(c + (c >= at) for c in collapsed), at]
    order = g.permutation(len(source))
    mapped = order[: g.integer(min(1, len(source)), len(source))]
    batch = tuple(n for d, n in enumerate(wanted.dims) if d not in offset)
    dims, vector_dim = _with_vector(g, batch, len(mapped))
    limit = max((source[d] for d in mapped), default=1)
    attrs: dict[str, object] = {
        "offset_dims": tuple(offset),
        "collapsed_slice_dims": tuple(sorted(collapsed)),
        "start_index_map": mapped,
        "index_vector_dim": vector_dim,
        "slice_sizes": tuple(sizes),
    }
    _check_size(source)
    indices = g.indices(Wanted(_index_type(g), dims), limit)
    return Plan((wanted.like(tuple(source)), indices), attrs)


def _check_size(dims: list[int]) -> None:
    count = 1
    for n in dims:
        count *= n
    if count > 20_000:
        raise Impossible


def _gather_of_rows(g: Generator, wanted: Wanted) -> Plan:
    """One element of every row."""
    rank = len(wanted.dims)
    size = g.choose((1, 2, 7, 128, 200, 300))
    lead = tuple(range(rank))
    at = rank if g.chance(0.8) else g.integer(0, rank)
    source = [*wanted.dims[:at], size, *wanted.dims[at:]]
    _check_size(source)
    dims = (*wanted.dims, 1) if g.chance(0.5) else wanted.dims
    attrs: dict[str, object] = {
        "offset_dims": (),
        "collapsed_slice_dims": (at,),
        "start_index_map": (at,),
        "operand_batching_dims": tuple(d for d in range(rank + 1) if d != at),
        "start_indices_batching_dims": lead,
        "index_vector_dim": rank,
        "slice_sizes": (1,) * (rank + 1),
    }
    indices = g.indices(Wanted(_index_type(g), dims), size)
    return Plan((wanted.like(tuple(source)), indices), attrs)


def _combiner(g: Generator, dtype: DType) -> dict[str, object]:
    kinds = reducer_kinds(dtype)
    others = ("second", "subtract") if dtype.kind != "pred" else ("second",)
    return {"to_apply": reducer(g, g.choose((*kinds, *others)), dtype)}


def _scatter(g: Generator, wanted: Wanted) -> Plan:
    if wanted.dims and g.chance(0.3):
        return _scatter_to_rows(g, wanted)
    rank = len(wanted.dims)
    share = g.choose((0.0, 0.5, 1.0))
    inserted = [d for d in range(rank) if g.chance(share) and wanted.dims[d]]
    window = [
        n if g.chance(0.4) else g.integer(min(n, 1), n)
        for d, n in enumerate(wanted.dims)
        if d not in inserted
    ]
    order = g.permutation(rank)
    mapped = order[: g.integer(min(1, rank), rank)]
    batch = [g.choose((0, 1, 1, 2, 7, 70, 129)) for _ in range(g.integer(0, 2))]
    updates, update_window = list(batch), [False] * len(batch)
    at = 0
    for size in window:
        at = g.integer(at, len(updates))
        updates.insert(at, size)
        update_window.insert(at, True)
        at += 1
    _check_size(updates)
    dims, vector_dim = _with_vector(g, tuple(batch), len(mapped))
    limit = max((wanted.dims[d] for d in mapped), default=1)
    attrs: dict[str, object] = {
        "update_window_dims": tuple(d for d, is_in in enumerate(update_window) if is_in),
        "inserted_window_dims": tuple(inserted),
        "scatter_dims_to_operand_dims": mapped,
        "index_vector_dim": vector_dim,
        **_combiner(g, wanted.dtype),
    }
    indices = g.indices(Wanted(_index_type(g), dims), limit)
    return Plan((wanted, indices, wanted.like(tuple(updates))), attrs)


def _scatter_to_rows(g: Generator, wanted: Wanted) -> Plan:
    """One update for every row, of one element or of whole other dimensions."""
    rank = len(wanted.dims)
    at = rank - 1 if g.chance(0.8) else g.integer(0, rank - 1)
    others = [d for d in range(rank) if d != at]
    window = [d for d in others if g.chance(0.4)] if g.chance(0.4) else []
    lead = [d for d in others if d not in window]
    rows = tuple(wanted.dims[d] for d in lead)
    dims = (*rows, 1) if g.chance(0.5) else rows
    places = sorted(g.rng.choice(rank - 1, len(window), replace=False).tolist()) if window else []
    numbers, slices = iter(rows), iter(window)
    update = [
        wanted.dims[next(slices)] if place in places else next(numbers) for place in range(rank - 1)
    ]
    attrs: dict[str, object] = {
        "update_window_dims": tuple(places),
        "inserted_window_dims": (at,),
        "scatter_dims_to_operand_dims": (at,),
        "input_batching_dims": tuple(lead),
        "scatter_indices_batching_dims": tuple(range(len(lead))),
        "index_vector_dim": len(lead),
        **_combiner(g, wanted.dtype),
    }
    indices = g.indices(Wanted(_index_type(g), dims), wanted.dims[at])
    operand = g.splat(wanted) if window and g.chance(0.8) else wanted
    return Plan((operand, indices, wanted.like(tuple(update))), attrs)


INDEX_PLANNERS: dict[str, Planner] = {
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
}
ALL_PLANNERS: dict[str, Planner] = {**PLANNERS, **INDEX_PLANNERS}
