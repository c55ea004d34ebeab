"""Makers of parts of arrays: sums of pads, sums of what is joined, slices of each batch."""

from __future__ import annotations

from benchmarks.rule_fuzz.generator import Generator, Wanted
from benchmarks.rule_fuzz.planners import reducer, reducer_kinds
from compiler.hlo.dtypes import S32
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction


def sum_of_parts(g: Generator) -> HloInstruction:
    """Pads with zeros of either sign whose parts lie one after the other along a dimension."""
    dtype = g.dtype()
    dims = g.dims(1, 3)
    dim = g.integer(0, len(dims) - 1)
    sizes = [g.integer(1, 5) for _ in range(g.integer(2, 4))]
    gaps = [g.choose((0, 0, 1, 3)) for _ in (*sizes, 0)]
    whole = sum(sizes) + sum(gaps)
    pads = []
    place = gaps[0]
    for size, gap in zip(sizes, gaps[1:], strict=True):
        part = g.value(Wanted(dtype, tuple(size if d == dim else n for d, n in enumerate(dims))))
        padding = [(0, 0, 0)] * len(dims)
        padding[dim] = (place, whole - place - size, 0)
        zero = g.splat(Wanted(dtype, ()), g.choose((0, -0.0)) if dtype.is_float else 0)
        pads.append(g.emit("pad", (part, zero), {"padding": tuple(padding)}))
        place += size + gap
    total, *others = (pads[n] for n in g.permutation(len(pads)))
    for pad in others:
        total = g.emit("add", (total, pad) if g.chance(0.5) else (pad, total))
    return total


def reduce_of_concatenate(g: Generator) -> HloInstruction:
    """Rows of large parts that lie side by side."""
    dtype = g.dtype()
    rows, sizes = g.integer(700, 800), [g.integer(390, 450) for _ in range(g.integer(2, 3))]
    parts = [g.value(Wanted(dtype, (rows, size))) for size in sizes]
    joined = g.emit("concatenate", parts, {"dimensions": (1,)})
    kind = g.choose(reducer_kinds(dtype))
    start = g.splat(Wanted(dtype, ()), identity(kind, dtype))
    return g.emit(
        "reduce", (joined, start), {"dimensions": (0,), "to_apply": reducer(g, kind, dtype)}
    )


def reduce_of_merged_transpose(g: Generator) -> HloInstruction:
    """Dimensions that a transpose turns and a reshape merges, of which some are reduced."""
    dtype = g.dtype()
    source = g.value(Wanted(dtype, tuple(g.integer(1, 5) for _ in range(4))))
    turned = g.emit("transpose", (source,), {"dimensions": g.permutation(4)})
    a, b, c, d = turned.array.dims
    dims = g.choose(((a, b, c * d), (a * b, c, d), (a * b, c * d), (a, b * c, d)))
    merged = g.emit("reshape", (turned,), {}, Wanted(dtype, dims))
    reduced = g.choose(((0,), (1,), (len(dims) - 1,), tuple(range(len(dims) - 1))))
    kind = g.choose(reducer_kinds(dtype))
    start = g.splat(Wanted(dtype, ()), identity(kind, dtype))
    attrs = {"dimensions": reduced, "to_apply": reducer(g, kind, dtype)}
    return g.emit("reduce", (merged, start), attrs)


def gather_slice_per_batch(g: Generator) -> HloInstruction:
    """One slice of each batch, at a place inside or outside of the operand."""
    batch, size = g.integer(2, 5), g.integer(2, 9)
    inside = (*g.dims(0, 1), g.integer(2, 5))
    cut = g.integer(0, len(inside))
    dims = (batch, *inside[:cut], size, *inside[cut:])
    operand = g.value(Wanted(g.dtype(), dims))
    has_all = g.chance(0.5)
    starts = (cut + 1, *(d for d in range(1, len(dims)) if d != cut + 1 and has_all))
    places = g.rng.integers(-2, size + 2, (batch, len(starts)))
    sizes = tuple(n if d not in (0, cut + 1) else 1 for d, n in enumerate(dims))
    is_gone = g.chance(0.5)
    attrs: dict[str, object] = {
        "offset_dims": tuple(range(1, len(dims) - is_gone)),
        "collapsed_slice_dims": (cut + 1,) if is_gone else (),
        "start_index_map": starts,
        "operand_batching_dims": (0,),
        "start_indices_batching_dims": (0,),
        "index_vector_dim": 1,
        "slice_sizes": sizes,
    }
    return g.emit("gather", (operand, g.literal(S32, places)), attrs)


def scatter_of_whole_windows(g: Generator) -> HloInstruction:
    """Rows at places of two components, of which the second is 0."""
    batch, rows, lanes = g.integer(1, 4), g.integer(2, 9), g.integer(1, 5)
    dtype = g.dtype()
    operand = g.value(Wanted(dtype, (batch, rows, lanes)))
    update = g.value(Wanted(dtype, (batch, 1, lanes)))
    place = g.parameter(Wanted(S32, (batch, 1)))
    zero = g.splat(Wanted(S32, (batch, 1)), 0)
    indices = g.emit("concatenate", (place, zero), {"dimensions": (1,)})
    if g.chance(0.5):
        low, high = (
            g.literal(S32, g.rng.integers(n, n + 1, (batch, 2)) * [1, 0]) for n in (0, rows - 1)
        )
        indices = g.emit("clamp", (low, indices, high))
    kinds = reducer_kinds(dtype)
    attrs: dict[str, object] = {
        "update_window_dims": (1, 2),
        "inserted_window_dims": (),
        "scatter_dims_to_operand_dims": (1, 2),
        "input_batching_dims": (0,),
        "scatter_indices_batching_dims": (0,),
        "index_vector_dim": 1,
        "to_apply": reducer(g, g.choose(kinds), dtype),
    }
    return g.emit("scatter", (operand, indices, update), attrs)
