"""Makers of matches for rules whose matches are more than a pattern says."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from benchmarks.rule_fuzz.generator import Generator, Impossible, Wanted
from benchmarks.rule_fuzz.place_makers import gather_at_known_places, scatter_at_known_places
from benchmarks.rule_fuzz.planners import reducer, reducer_kinds
from benchmarks.rule_fuzz.slice_makers import (
    gather_slice_per_batch,
    reduce_of_concatenate,
    reduce_of_merged_transpose,
    scatter_of_whole_windows,
    sum_of_parts,
)
from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.dtypes import BY_NAME, PRED, S32, DType
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.rewrite.dims import Dims

Maker = Callable[[Generator], HloInstruction]


def _adjacent_slices(g: Generator) -> HloInstruction:
    """Slices of one array side by side, empty parts and nested concatenates among them."""
    wanted = Wanted(g.dtype(), g.dims(1, 3))
    source = g.value(wanted)
    dim = g.integer(0, len(wanted.dims) - 1)
    size = wanted.dims[dim]
    cuts = sorted(g.integer(0, size) for _ in range(g.integer(1, 3)))
    parts = []
    for start, end in zip([0, *cuts], [*cuts, size], strict=True):
        bounds = [(0, n, 1) for n in wanted.dims]
        bounds[dim] = (start, end, 1)
        parts.append(g.emit("slice", (source,), {"slice": tuple(bounds)}))
    if g.chance(0.3):
        parts = [parts[i] for i in g.permutation(len(parts))]
    if g.chance(0.3):
        parts[0] = g.emit("concatenate", (parts[0], g.choose(parts)), {"dimensions": (dim,)})
    return g.emit("concatenate", parts, {"dimensions": (dim,)})


def _update_of_neighbours(g: Generator) -> HloInstruction:
    """An update made of slices of what it overwrites, at constant starts."""
    wanted = Wanted(g.dtype(), g.dims(1, 3))
    source = g.parameter(wanted)
    sizes = tuple(g.integer(max(1, n - 3), n) for n in wanted.dims if n)
    if len(sizes) != len(wanted.dims):
        raise Impossible
    cut = []
    for _ in range(2):
        firsts = [g.integer(0, n - s) for n, s in zip(wanted.dims, sizes, strict=True)]
        bounds = tuple((f, f + s, 1) for f, s in zip(firsts, sizes, strict=True))
        cut.append(g.emit("slice", (source,), {"slice": bounds}))
    opcode = g.choose(("add", "subtract", "multiply", "maximum", "and"))
    update = g.emit(opcode, cut)
    starts = [
        g.literal(S32, g.rng.integers(-1, n - s + 2, ()))
        for n, s in zip(wanted.dims, sizes, strict=True)
    ]
    return g.emit("dynamic-update-slice", (source, update, *starts))


def _sum_with_updates(g: Generator) -> HloInstruction:
    """A sum of an array and small updates of zeros, at places that are data."""
    wanted = Wanted(g.dtype(), (g.integer(24, 30), g.integer(43, 50)))
    total = g.value(wanted)
    for _ in range(g.integer(1, 2)):
        sizes = tuple(g.integer(1, n // 4) for n in wanted.dims)
        update = g.value(wanted.like(sizes))
        starts = [g.parameter(Wanted(S32, ())) for _ in sizes]
        placed = g.emit("dynamic-update-slice", (g.splat(wanted, 0), update, *starts))
        total = g.emit("add", (placed, total) if g.chance(0.5) else (total, placed))
    return total


def _stacked_columns(g: Generator) -> HloInstruction:
    """Eight columns or more side by side."""
    column = Wanted(g.dtype(), (*g.dims(0, 1, 3), g.integer(64, 70), 1))
    parts = [g.value(column) for _ in range(g.integer(8, 10))]
    return g.emit("concatenate", parts, {"dimensions": (len(column.dims) - 1,)})


def _split_parts(g: Generator) -> HloInstruction:
    """A concatenate of reshapes that split the dimensions before and after its own."""
    dtype = g.dtype()
    before, after = (g.choose((1, 2, 8, 24)) for _ in range(2))
    parts = []
    for _ in range(g.integer(1, 3)):
        size = g.choose((1, 2, 7))
        source = g.value(Wanted(dtype, (before, size, after)))
        dims = (2, before // 2, size, 1, after) if before > 1 else (1, size, after)
        parts.append(g.emit("reshape", (source,), {}, Wanted(dtype, dims)))
    return g.emit(
        "concatenate", parts, {"dimensions": (len(parts[0].array.dims) - 3 + (before == 1),)}
    )


def _rounds_up(g: Generator) -> HloInstruction:
    """Whether a quotient of natural numbers, or of any integers, is to be rounded to the other side."""
    wanted = Wanted(S32, g.dims(1, 2))
    iota = g.emit("iota", (), {"iota_dimension": g.integer(0, len(wanted.dims) - 1)}, wanted)
    x = g.choose((iota, iota, g.value(wanted)))
    one, zero, divisor = (g.splat(wanted, n) for n in (1, 0, g.choose((1, 2, 7, 100))))
    pairs = (g.emit("sign", (x,)), one), (g.emit("remainder", (x, divisor)), zero)
    masks = [
        g.emit("compare", pair, {"direction": "NE"}, Wanted(PRED, wanted.dims)) for pair in pairs
    ]
    return g.emit("and", masks if g.chance(0.5) else masks[::-1])


def _scatter_of_elements(g: Generator) -> HloInstruction:
    """Single elements into a vector."""
    dtype = g.dtype()
    places, count = g.choose((1, 7, 129, 1024)), g.integer(64, 200)
    operand, updates = (g.value(Wanted(dtype, (n,))) for n in (places, count))
    index_type = g.dtype(("s8", "u8", "s16", "s32", "u32", "s64"))
    has_vector = g.chance(0.5)
    indices = g.indices(Wanted(index_type, (count, 1) if has_vector else (count,)), places)
    kind = g.choose(reducer_kinds(dtype))
    attrs: dict[str, object] = {
        "update_window_dims": (),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
        "to_apply": reducer(g, kind, dtype),
    }
    return g.emit("scatter", (operand, indices, updates), attrs)


def _scatter_that_counts(g: Generator) -> HloInstruction:
    """Rows at places of which one coordinate counts, and the other is data, counts, too, or stays.

    Some rows have several updates, which may meet.
    """
    dtype, count, width = g.dtype(), g.integer(1, 40), g.choose((1, 3, 130))
    first, room = g.integer(0, 3), g.choose((1, 5, 64))
    rows = first + count + g.integer(0, 2)
    several = g.integer(2, 6) if g.chance(0.4) else 0
    kind = g.choose(reducer_kinds(dtype))
    if dtype.is_complex and kind == "multiply":
        raise Impossible  # rounded in another way by itself than in an array, by the host
    order = g.permutation(2)
    dims = [(rows, room)[d] for d in order]
    operand = g.value(Wanted(dtype, (*dims, width)))
    at = g.integer(0, 1)  # of the two dimensions that number the updates, the one of rows
    numbers = (count,) if not several else (count, several) if at == 0 else (several, count)
    updates = g.value(Wanted(dtype, (*numbers, width)))
    shape = Wanted(S32, (*numbers, 1))
    counting = g.emit("iota", (), {"iota_dimension": at if several else 0}, shape)
    counted = g.emit("add", (counting, g.splat(shape, first)))
    other = g.indices(shape, room)
    if g.chance(0.2):
        other = g.splat(shape, g.integer(0, room - 1))
    indices = g.emit("concatenate", (counted, other), {"dimensions": (len(numbers),)})
    attrs: dict[str, object] = {
        "update_window_dims": (len(numbers),),
        "inserted_window_dims": (0, 1),
        "scatter_dims_to_operand_dims": tuple(order.index(d) for d in range(2)),
        "index_vector_dim": len(numbers),
        "to_apply": reducer(g, kind, dtype),
    }
    return g.emit("scatter", (operand, indices, updates), attrs)


def _split_rows(g: Generator) -> tuple[DType, int, int, int, Dims, int]:
    """A type, places, slices, columns, what these are split into, and whether places come last."""
    dtype, rows, count = g.dtype(), g.choose((1, 5, 40)), g.choose((1, 7, 33))
    window = g.choose(((1,), (2, 3), (4, 1), (1, 2, 4)))
    return dtype, rows, count, math.prod(window), window, g.choose((0, 1))


def _gather_of_split_rows(g: Generator) -> HloInstruction:
    """Slices of rows that a reshape has split, or of columns."""
    dtype, rows, count, columns, window, side = _split_rows(g)
    is_vector = window == (1,)
    lies = (rows,) if is_vector else (rows, columns) if side == 0 else (columns, rows)
    dims = (rows, *window) if side == 0 else (*window, rows)
    split = g.emit("reshape", (g.value(Wanted(dtype, lies)),), {}, Wanted(dtype, dims))
    place = 0 if side == 0 else len(window)
    indices = g.indices(Wanted(S32, (count,)), rows)
    first = g.choose((0, 1))
    attrs: dict[str, object] = {
        "offset_dims": tuple(range(first, first + len(window))),
        "collapsed_slice_dims": (place,),
        "start_index_map": (place,),
        "index_vector_dim": 1,
        "slice_sizes": (1, *window) if side == 0 else (*window, 1),
    }
    return g.emit("gather", (split, indices), attrs)


def _scatter_of_split_rows(g: Generator) -> HloInstruction:
    """Updates that a reshape has split, into zeros or into what is split alike."""
    dtype, rows, count, columns, window, _ = _split_rows(g)
    source = (count,) if window == (1,) else (count, columns)
    updates = g.emit(
        "reshape", (g.value(Wanted(dtype, source)),), {}, Wanted(dtype, (count, *window))
    )
    operand = g.splat(Wanted(dtype, (rows, *window)))
    if g.chance(0.5):
        lies = (rows,) if window == (1,) else (rows, columns)
        whole = g.value(Wanted(dtype, lies))
        operand = g.emit("reshape", (whole,), {}, Wanted(dtype, (rows, *window)))
    indices = g.indices(Wanted(S32, (count,)), rows)
    attrs: dict[str, object] = {
        "update_window_dims": tuple(range(1, 1 + len(window))),
        "inserted_window_dims": (0,),
        "scatter_dims_to_operand_dims": (0,),
        "index_vector_dim": 1,
        "to_apply": reducer(g, g.choose(reducer_kinds(dtype)), dtype),
    }
    return g.emit("scatter", (operand, indices, updates), attrs)


def _tiny_rows(g: Generator) -> HloInstruction:
    """Reductions of elementwise values of broadcasts, with a last dimension of few elements."""
    dims = (g.choose((32, 65)), g.choose((129, 256)), g.integer(2, 8))
    return _sum_of_spread(g, dims, ((2,), (1,), (0,), (0, 1), (1, 2), (0, 1, 2)))


def _tiny_middle(g: Generator) -> HloInstruction:
    """The same with few elements in another dimension."""
    dims = (g.choose((64, 129)), g.integer(2, 4), g.choose((129, 256)))
    if g.chance(0.3):
        dims = (dims[1], dims[0], dims[2])
    places = [(), (0,), (1,), (2,), (0, 1)]
    return _sum_of_spread(g, dims, ((1,), (0,)), places)


def _few_rows(g: Generator) -> HloInstruction:
    """A reduction over the rows of an array that has few and long ones."""
    dtype = g.dtype()
    kind = g.choose(reducer_kinds(dtype))
    neutral = identity(kind, dtype)
    if neutral is None:
        raise Impossible
    outer = (g.integer(1, 3),) if g.chance(0.3) else ()
    value = g.value(Wanted(dtype, (*outer, g.integer(2, 7), g.choose((1024, 1030, 2048)))))
    attrs = {"dimensions": (len(outer),), "to_apply": reducer(g, kind, dtype)}
    return g.emit("reduce", (value, g.splat(Wanted(dtype, ()), neutral)), attrs)


def _reshaped_sum(g: Generator) -> HloInstruction:
    """A reduction of all that one long vector of several dimensions has, or the other way round."""
    dtype = g.dtype()
    kind = g.choose(reducer_kinds(dtype))
    neutral = identity(kind, dtype)
    if neutral is None:
        raise Impossible
    dims = (g.integer(1, 4), g.integer(2, 9), g.integer(70, 140))
    merged = (dims[0] * dims[1] * dims[2],)
    source, target = g.choose(((dims, merged), (merged, dims), (dims, dims[::-1])))
    if source[-1:] == target[-1:]:
        raise Impossible
    parts = [
        g.emit("reshape", (g.value(Wanted(dtype, source)),), {}, Wanted(dtype, target))
        for _ in range(g.integer(1, 3))
    ]
    value = parts[0]
    for part in (*parts[1:], g.splat(Wanted(dtype, target), neutral)):
        value = g.emit(kind, (value, part))
    attrs = {"dimensions": tuple(range(len(target))), "to_apply": reducer(g, kind, dtype)}
    return g.emit("reduce", (value, g.splat(Wanted(dtype, ()), neutral)), attrs)


_PLACES: tuple[Dims, ...] = ((), (0,), (2,), (0, 2), (1, 2), (0, 1), (0, 1, 2))


def _sum_of_spread(
    g: Generator, dims: Dims, reduced: Sequence[Dims], places: Sequence[Dims] = _PLACES
) -> HloInstruction:
    dtype = g.dtype()

    def spread() -> HloInstruction:
        mapping = g.choose(places)
        operand = g.value(Wanted(dtype, tuple(dims[d] for d in mapping)))
        return g.emit("broadcast", (operand,), {"dimensions": mapping}, Wanted(dtype, dims))

    kind = g.choose(reducer_kinds(dtype))
    neutral = identity(kind, dtype)
    if neutral is None:
        raise Impossible
    first = g.emit(g.choose(reducer_kinds(dtype)), (spread(), spread()))
    value = g.emit(g.choose(reducer_kinds(dtype)), (first, spread()))
    attrs = {"dimensions": g.choose(reduced), "to_apply": reducer(g, kind, dtype)}
    return g.emit("reduce", (value, g.splat(Wanted(dtype, ()), neutral)), attrs)


def _groups_of_features(g: Generator) -> HloInstruction:
    """Reductions over whole dimensions and over a part of the last one, which a reshape splits."""
    dtype = g.dtype()
    batch, rows, groups = g.choose((1, 2, 3)), g.choose((4, 8, 10)), g.choose((2, 3, 16))
    inner = g.choose((1, 2, 8))
    features = groups * inner
    dims = g.choose(((batch, 2 * rows, features), (batch, rows, 2, features)))
    split = g.emit(
        "reshape",
        (g.value(Wanted(dtype, dims)),),
        {},
        Wanted(dtype, (batch, 2 * rows, groups, inner)),
    )
    kind = g.choose(reducer_kinds(dtype))
    neutral = identity(kind, dtype)
    if neutral is None:
        raise Impossible
    attrs = {
        "dimensions": g.choose(((1, 3), (1, 2), (0, 1, 3), (3,))),
        "to_apply": reducer(g, kind, dtype),
    }
    return g.emit("reduce", (split, g.splat(Wanted(dtype, ()), neutral)), attrs)


def _neighbours(g: Generator) -> HloInstruction:
    """Reductions of short rows that a reshape made of long ones, and maybe of other dimensions."""
    dtype, count = g.dtype(), g.integer(2, 16)
    rows, lanes = g.choose((64, 128)), g.choose((128 // count + 1, 150))
    shape, places = g.choose(
        (
            ((rows, lanes, count), ((2,),)),
            ((rows // 2, 2, lanes, count), ((3,), (1, 3))),
            ((rows // 16, 16, lanes, count), ((3,), (1, 3))),
        )
    )
    whole = g.value(Wanted(dtype, (rows, lanes * count)))
    split = g.emit("reshape", (whole,), {}, Wanted(dtype, shape))
    kind = g.choose(reducer_kinds(dtype))
    neutral = identity(kind, dtype)
    if neutral is None:
        raise Impossible
    attrs = {"dimensions": g.choose(places), "to_apply": reducer(g, kind, dtype)}
    return g.emit("reduce", (split, g.splat(Wanted(dtype, ()), neutral)), attrs)


def _taking_turns(g: Generator) -> HloInstruction:
    """Rows whose elements take turns: a stack along a new last dimension, merged with the one before."""
    dtype, count = g.dtype(), g.integer(2, 4)
    rows, lanes = g.integer(1, 9), g.choose((128, 150, 256))
    parts = [
        g.emit(
            "reshape", (g.value(Wanted(dtype, (rows, lanes))),), {}, Wanted(dtype, (rows, lanes, 1))
        )
        for _ in range(count)
    ]
    stack = Wanted(dtype, (rows, lanes, count))
    joined = g.emit("concatenate", tuple(parts), {"dimensions": (2,)}, stack)
    merged = g.choose(((rows, lanes * count), (rows * lanes * count,), (1, rows, lanes * count)))
    return g.emit("reshape", (joined,), {}, Wanted(dtype, merged))


def _split_positions(g: Generator) -> tuple[HloInstruction, Window, Dims]:
    """An array whose last dimensions a reshape made of one, a window over it, what the window leaves."""
    dtype = g.choose((BY_NAME["f32"], BY_NAME["s32"]))
    rows, features = g.integer(2, 9), g.choose(((2, 8), (3, 4), (4, 1)))
    ahead = (g.integer(1, 3),) if g.chance(0.5) else ()
    whole = g.value(Wanted(dtype, (*ahead, rows, math.prod(features))))
    dims = (*ahead, rows, *features)
    split = g.emit("reshape", (whole,), {}, Wanted(dtype, dims))
    moved = WindowDim(g.integer(1, 3), g.integer(1, 2), g.integer(0, 2), g.integer(0, 2))
    still = WindowDim(1)
    along = WindowDim(2) if g.chance(0.2) and features[0] > 1 else still
    window = Window((*(still,) * len(ahead), moved, along, still))
    left = tuple(d.output_size(n) for d, n in zip(window.dims, dims, strict=True))
    if 0 in left:
        raise Impossible
    return split, window, left


def _split_pool(g: Generator) -> HloInstruction:
    """A pool of an array whose last dimensions a reshape made of one."""
    split, window, left = _split_positions(g)
    dtype = split.array.dtype
    kind = g.choose(("add", "maximum", "minimum"))
    start = identity(kind, dtype)
    attrs = {"window": window, "to_apply": reducer(g, kind, dtype)}
    return g.emit(
        "reduce-window", (split, g.splat(Wanted(dtype, ()), start)), attrs, Wanted(dtype, left)
    )


def _split_selection(g: Generator) -> HloInstruction:
    """A pool's gradient, likewise."""
    split, window, left = _split_positions(g)
    dtype = split.array.dtype
    given = g.value(Wanted(dtype, left))
    attrs = {"window": window, "select": _chooser(g, dtype), "scatter": reducer(g, "add", dtype)}
    operands = (split, given, g.splat(Wanted(dtype, ()), 0))
    return g.emit("select-and-scatter", operands, attrs, Wanted(dtype, split.array.dims))


def _chooser(g: Generator, dtype: DType) -> HloComputation:
    """A computation that says whether its first number is as great as its second."""
    computation = HloComputation(f"ge_{dtype.name}")
    scalar = ArrayShape(dtype, ())
    pair = tuple(
        computation.add(HloInstruction("parameter", n, scalar, (), {"parameter_number": i}))
        for i, n in enumerate("ab")
    )
    compared = HloInstruction("compare", "ge", ArrayShape(PRED, ()), pair, {"direction": "GE"})
    computation.root = computation.add(compared)
    return g.module.add_computation(computation)


MAKERS: dict[str, Maker] = {
    "reduce-of-neighbours": _neighbours,
    "interleaved-lanes": _taking_turns,
    "reduce-before-split": _groups_of_features,
    "reduce-of-few-rows": _few_rows,
    "reduce-of-reshaped": _reshaped_sum,
    "reduce-of-tiny-middle": _tiny_middle,
    "reduce-of-tiny-rows": _tiny_rows,
    "concatenate-parts": _adjacent_slices,
    "sink-reshape-through-concatenate": _split_parts,
    "remainder-of-zero": _rounds_up,
    "scatter-into-few-places": _scatter_of_elements,
    "scatter-at-counted-places": _scatter_that_counts,
    "gather-at-known-places": gather_at_known_places,
    "scatter-at-known-places": scatter_at_known_places,
    "update-of-its-own-neighbours": _update_of_neighbours,
    "sum-with-placed-updates": _sum_with_updates,
    "stacked-columns": _stacked_columns,
    "sink-reshape-through-window": _split_pool,
    "sink-reshape-through-selection": _split_selection,
    "sum-of-parts": sum_of_parts,
    "reduce-of-concatenate": reduce_of_concatenate,
    "reduce-of-merged-transpose": reduce_of_merged_transpose,
    "gather-slice-per-batch": gather_slice_per_batch,
    "scatter-of-whole-windows": scatter_of_whole_windows,
    "merge-gathered-windows": _gather_of_split_rows,
    "merge-scattered-windows": _scatter_of_split_rows,
}
