"""Calls whose arguments must fit each other: windows, contractions, gathers, scatters, reductions, sorts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fuzz.traced import draw
from benchmarks.fuzz.traced.program import Function, NotAddedError, Program, Spec

Drawn = tuple[str, Function, list[int]]


def _operand(program: Program, accept: Callable[[Spec], bool], least_rank: int = 0) -> int:
    def fits(spec: Spec) -> bool:
        return len(spec.shape) >= least_rank and accept(spec)

    found = program.pick(fits) if program.rng.random() < 0.75 else None
    if found is not None:
        return found
    rng = program.rng
    for _ in range(20):
        name = draw.dtype(rng)
        rank = rng.randint(least_rank, max(least_rank, 4))
        dims = draw.dims(rng, program.most, program.real, rank)
        if fits(Spec(dims, jnp.dtype(name))):
            return program.give(name, dims)
    raise NotAddedError("no operand")


def _is_number(spec: Spec) -> bool:
    return bool(spec.dtype != jnp.bool_)


def _any(spec: Spec) -> bool:
    return True


def convolution(program: Program) -> Drawn:
    """Any numbers of dimensions, strides, dilations, groups and paddings."""
    rng = program.rng
    spatial = rng.choice((0, 1, 1, 2, 2, 2, 3))
    groups, batch_groups = rng.choice(((1, 1), (1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (4, 1)))
    inputs, outputs = (
        rng.choice((1, 1, 3, 8, 17)),
        rng.choice((1, 2, 5, 130)) * groups * batch_groups,
    )
    batch = rng.choice((1, 2, 3)) * batch_groups
    room = max(1, program.most // (batch * inputs * groups))
    sizes = list(draw.dims(rng, room, program.real, spatial))
    window = [rng.choice((1, 1, 2, 3, 5, 7, max(1, min(n, 13)))) for n in sizes]
    name = rng.choice(("float32", "bfloat16", "float16", "int8", "int32", "float32", "complex64"))
    left = rng.sample(range(spatial + 2), spatial + 2)
    right = rng.sample(range(spatial + 2), spatial + 2)
    out = rng.sample(range(spatial + 2), spatial + 2)
    lhs = _placed((batch, inputs * groups, *sizes), left)
    rhs = _placed((outputs, inputs, *window), right)
    low = rng.choice((0, 0, -2))
    padding: Any = [(rng.randint(low, 4), rng.randint(low, 4)) for _ in sizes]
    if rng.random() < 0.3:
        padding = rng.choice(("SAME", "VALID"))
    options = {
        "window_strides": [rng.choice((1, 1, 2, 3)) for _ in sizes],
        "padding": padding,
        "lhs_dilation": [rng.choice((1, 1, 1, 2, 3)) for _ in sizes],
        "rhs_dilation": [rng.choice((1, 1, 1, 2, 3)) for _ in sizes],
        "dimension_numbers": lax.ConvDimensionNumbers(tuple(left), tuple(right), tuple(out)),
        "feature_group_count": groups,
        "batch_group_count": batch_groups,
        "preferred_element_type": rng.choice((None, None, "float32"))
        if name in ("bfloat16", "float16")
        else None,
    }
    kind = rng.choice(("whole", "tame"))
    numbers = [program.give(name, lhs, kind), program.give(name, rhs, kind)]
    return "conv", lambda x, w: lax.conv_general_dilated(x, w, **options), numbers


def _placed(sizes: Sequence[int], places: Sequence[int]) -> tuple[int, ...]:
    dims = [0] * len(sizes)
    for size, place in zip(sizes, places, strict=True):
        dims[place] = size
    return tuple(dims)


def dot(program: Program) -> Drawn:
    """A contraction of any dimensions, with any batch dimensions, in any order."""
    rng = program.rng
    a = _operand(program, _any)
    spec = program.specs[a]
    rank = len(spec.shape)
    order = rng.sample(range(rank), rank)
    batch = order[: rng.choice((0, 0, 0, 1, 2))]
    contracted = order[len(batch) :][: rng.choice((0, 1, 1, 1, 2))]
    room = max(1, program.most // max(1, spec.size))
    extra = draw.dims(rng, min(room, 300), False, rng.randint(0, 2))
    sizes = [spec.shape[d] for d in (*batch, *contracted)] + list(extra)
    places = rng.sample(range(len(sizes)), len(sizes))
    other = spec.dtype.name if rng.random() < 0.85 else rng.choice(("bfloat16", "int8", "float32"))
    b = program.give(other, _placed(sizes, places), rng.choice(("whole", "tame")))
    right_batch = places[: len(batch)]
    right = places[len(batch) : len(batch) + len(contracted)]
    numbers = ((contracted, right), (batch, right_batch))
    wanted = rng.choice((None, None, "float32", "int32", "bfloat16"))
    exact = rng.choice((None, "highest", "default"))

    def run(x: Any, y: Any) -> Any:
        return lax.dot_general(x, y, numbers, precision=exact, preferred_element_type=wanted)

    return "dot", run, [a, b]


def gather(program: Program) -> Drawn:
    """All of GatherDimensionNumbers, batching dimensions too."""
    rng = program.rng
    a = _operand(program, _any, 1)
    dims = program.specs[a].shape
    rank = len(dims)
    order = rng.sample(range(rank), rank)
    batching = sorted(order[: rng.choice((0, 0, 0, 1))])
    indexed = [d for d in order if d not in batching][: rng.randint(1, 3)]
    sizes = [
        1
        if d in batching
        else rng.randint(0 if n == 0 else 1, n)
        if rng.random() < 0.6
        else min(1, n)
        for d, n in enumerate(dims)
    ]
    collapsed = [
        d for d in range(rank) if d not in batching and sizes[d] == 1 and rng.random() < 0.7
    ]
    batch = draw.dims(rng, 30, False, rng.randint(0, 2))
    places = [rng.randrange(len(batch) + 1) for _ in batching]
    shape, start_batching = list(batch), []
    for d, place in sorted(zip(batching, places, strict=True), key=lambda pair: pair[1]):
        start_batching.append((d, place))
        shape.insert(place, dims[d])
    if len(start_batching) > 1:
        raise NotAddedError("one batching dimension at a time")
    offsets = rank - len(collapsed) - len(batching)
    out_rank = offsets + len(shape)
    numbers = lax.GatherDimensionNumbers(
        offset_dims=tuple(sorted(rng.sample(range(out_rank), offsets))),
        collapsed_slice_dims=tuple(collapsed),
        start_index_map=tuple(indexed),
        operand_batching_dims=tuple(d for d, _ in start_batching),
        start_indices_batching_dims=tuple(p for _, p in start_batching),
    )
    name = rng.choice(("int32", "int32", "uint8", "int8", "uint32", "int16"))
    i = program.give(name, (*shape, len(indexed)), "index")
    mode = rng.choice(("clip", "fill", "promise_in_bounds"))
    if mode == "promise_in_bounds":
        mode = "clip"
    return "gather", lambda x, at: lax.gather(x, at, numbers, tuple(sizes), mode=mode), [a, i]


def scatter(program: Program) -> Drawn:
    """An update by JAX's own indexing: points, rows, slices, masks, in each combination."""
    rng = program.rng
    a = _operand(program, _any, 1)
    spec = program.specs[a]
    method = rng.choice(("set", "add", "mul", "min", "max", "get", "apply", "subtract", "divide"))
    made, numbers = _index(program, spec.shape)
    mode = rng.choice((None, "drop", "clip", "fill"))

    def picked(x: Any, *parts: Any) -> Any:
        return x[made(parts)]

    if method == "get":
        return "index", picked, [a, *numbers]
    if method == "apply":
        return "apply", lambda x, *p: x.at[made(p)].apply(lambda v: v * v), [a, *numbers]
    target = jax.eval_shape(picked, spec, *(program.specs[n] for n in numbers))
    dims = target.shape if rng.random() < 0.6 else draw.broadcast_of(rng, target.shape)
    u = program.give(spec.dtype.name, dims)

    def run(x: Any, values: Any, *parts: Any) -> Any:
        return getattr(x.at[made(parts)], method)(values, mode=mode)

    return f"at.{method}", run, [a, u, *numbers]


def _index(program: Program, dims: Sequence[int]) -> tuple[Callable[[Any], Any], list[int]]:
    rng, numbers = program.rng, list[int]()
    parts: list[Any] = []
    shared = draw.dims(rng, 40, False, rng.randint(0, 2))
    for n in dims[: rng.randint(1, len(dims))]:
        draw_ = rng.random()
        if draw_ < 0.35:
            name = rng.choice(("int32", "int32", "uint8", "int8", "uint16"))
            numbers.append(program.give(name, draw.broadcast_of(rng, shared), "index"))
            parts.append(len(numbers) - 1)
        elif draw_ < 0.5:
            parts.append((rng.randint(-n, n - 1) if n else 0,))
        elif draw_ < 0.6:
            parts.append(None)
        else:
            bounds = sorted(rng.randint(0, n) for _ in range(2))
            step = rng.choice((None, None, 2, 3, -1))
            parts.append(slice(*(bounds[::-1] if step == -1 else bounds), step))
            if rng.random() < 0.4:
                parts[-1] = slice(None)
    if rng.random() < 0.15:
        parts.append(...)

    def made(arrays: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(
            arrays[p] if isinstance(p, int) else p[0] if isinstance(p, tuple) else p for p in parts
        )

    return made, numbers


_COMBINERS: tuple[Callable[[Any, Any], Any], ...] = (
    lax.add, lax.max, lax.min, lax.mul, lambda a, b: jnp.where((a > b) | (a != a), a, b),
    lambda a, b: lax.add(a, b), lambda a, b: lax.bitwise_or(a, b), lambda a, b: lax.bitwise_xor(a, b),
)  # fmt: skip


def reduce(program: Program) -> Drawn:
    """Several arrays, any combiner, any start."""
    rng = program.rng
    a = _operand(program, _any)
    dims = program.specs[a].shape
    count = rng.choice((1, 1, 2, 3))
    numbers = [a] + [program.give(draw.dtype(rng), dims) for _ in range(count - 1)]
    starts = [program.give(program.specs[n].dtype.name, ()) for n in numbers]
    combine = [rng.choice(_COMBINERS) for _ in numbers]
    over = draw.axes(rng, len(dims))
    if all(dims[d] == 1 for d in over):  # nothing is combined: XLA may leave the start out, or not
        raise NotAddedError("a reduction of single elements")

    def run(*arrays: Any) -> Any:
        def folded(x: Sequence[Any], y: Sequence[Any]) -> tuple[Any, ...]:
            return tuple(f(p, q) for f, p, q in zip(combine, x, y, strict=True))

        return lax.reduce(tuple(arrays[:count]), tuple(arrays[count:]), folded, over)

    return "reduce", run, numbers + starts


def window(program: Program) -> Drawn:
    """A reduction over windows, dilated and padded."""
    rng = program.rng
    a = _operand(program, _is_number, 1)
    spec = program.specs[a]
    sizes = [rng.choice((1, 1, 2, 3, 4)) for _ in spec.shape]
    options = {
        "window_strides": tuple(rng.choice((1, 1, 2, 3)) for _ in sizes),
        "padding": rng.choice(
            ("SAME", "VALID", tuple((rng.randint(0, 4), rng.randint(0, 4)) for _ in sizes))
        ),
        "base_dilation": tuple(rng.choice((1, 1, 2)) for _ in sizes),
        "window_dilation": tuple(rng.choice((1, 1, 2)) for _ in sizes),
    }
    combine = rng.choice(_COMBINERS)
    start = rng.choice((0, 1, -3, 5))
    neutral = {lax.add: 0, lax.max: -jnp.inf, lax.min: jnp.inf, lax.mul: 1}
    if combine in neutral and rng.random() < 0.7:
        start = neutral[combine]

    def run(x: Any) -> Any:
        first = jnp.asarray(start).astype(x.dtype)
        return lax.reduce_window(x, first, combine, tuple(sizes), **options)

    return "window", run, [a]


def pooling_gradient(program: Program) -> Drawn:
    """select-and-scatter as gradients of pools make it."""
    rng = program.rng
    a = _operand(program, lambda s: s.dtype in (jnp.float32, jnp.bfloat16, jnp.float16), 2)
    spec = program.specs[a]
    sizes = tuple(rng.choice((1, 1, 2, 3)) for _ in spec.shape)
    strides = tuple(rng.choice((1, 2, 2, 3)) for _ in sizes)
    padding = rng.choice(("SAME", "VALID"))

    def pooled(x: Any) -> Any:
        return lax.reduce_window(x, -jnp.inf, lax.max, sizes, strides, padding)

    shape = jax.eval_shape(pooled, spec).shape
    g = program.give(spec.dtype.name, shape)
    return "pool_grad", lambda x, y: jax.vjp(pooled, x)[1](y), [a, g]


def sort(program: Program) -> Drawn:
    """Several arrays by several keys."""
    rng = program.rng
    a = _operand(program, lambda s: s.dtype.name != "complex64", 1)
    spec = program.specs[a]
    count = rng.randint(1, 3)
    numbers = [a] + [program.give(draw.dtype(rng), spec.shape) for _ in range(count - 1)]
    keys, over = rng.randint(1, count), rng.randrange(len(spec.shape))

    def run(*arrays: Any) -> Any:
        return lax.sort(arrays, dimension=over, num_keys=keys, is_stable=True)

    return "sort", run, numbers


def einsum(program: Program) -> Drawn:
    """Two or three arrays by letters, diagonals and ellipses too."""
    rng = program.rng
    letters = "abcdef"[: rng.randint(1, 5)]
    sizes = {c: rng.choice((1, 2, 3, 5, 8, 17)) for c in letters}
    words, numbers = [], []
    name = rng.choice(("float32", "bfloat16", "int32", "complex64", "int8", "bool"))
    for _ in range(rng.choice((1, 2, 2, 3))):
        word = "".join(rng.choice(letters) for _ in range(rng.randint(1, 3)))
        words.append(word)
        dims = [sizes[c] for c in word]
        numbers.append(program.give(name, dims, "" if name == "bool" else "whole"))
    seen = sorted(set("".join(words)))
    out = "".join(rng.sample(seen, rng.randint(0, len(seen))))
    text = f"{','.join(words)}->{out}"
    return f"einsum {text}", lambda *x: jnp.einsum(text, *x), numbers


def associative(program: Program) -> Drawn:
    """A scan that combines neighbours in any order."""
    rng = program.rng
    a = _operand(program, _is_number, 1)
    over, back = rng.randrange(len(program.specs[a].shape)), rng.random() < 0.4
    combine = rng.choice((jnp.add, jnp.maximum, jnp.multiply, jnp.minimum))
    return "scan", lambda x: lax.associative_scan(combine, x, reverse=back, axis=over), [a]


def convert(program: Program) -> Drawn:
    """Another type, by value or by bits."""
    rng = program.rng
    a = _operand(program, _any)
    name = draw.dtype(rng)
    if rng.random() < 0.3:
        return "bits", lambda x: lax.bitcast_convert_type(x, jnp.dtype(name)), [a]
    return "convert", lambda x: x.astype(name), [a]


def segments(program: Program) -> Drawn:
    """Segments of rows, some of them outside."""
    rng = program.rng
    a = _operand(program, _is_number, 1)
    spec = program.specs[a]
    i = program.give(rng.choice(("int32", "uint8", "int8")), spec.shape[:1], "index")
    function = getattr(jax.ops, f"segment_{rng.choice(('sum', 'max', 'min', 'prod'))}")
    count = rng.randint(1, 40)
    mode = rng.choice((None, "clip", "drop"))
    return "segment", lambda x, at: function(x, at, num_segments=count, mode=mode), [a, i]


def resized(program: Program) -> Drawn:
    """An image of another size."""
    rng = program.rng
    a = _operand(program, lambda s: s.dtype in (jnp.float32, jnp.bfloat16, jnp.float16), 2)
    dims = program.specs[a].shape
    wanted = tuple(n if rng.random() < 0.5 else rng.randint(1, 2 * n + 1) for n in dims)
    method = rng.choice(("linear", "nearest", "cubic", "lanczos3"))
    smooth = rng.random() < 0.5
    return "resize", lambda x: jax.image.resize(x, wanted, method, antialias=smooth), [a]


STRUCTURED: tuple[tuple[Callable[[Program], Drawn], int], ...] = (
    (convolution, 5), (dot, 6), (gather, 5), (scatter, 8), (reduce, 5), (window, 5),
    (pooling_gradient, 2), (sort, 4), (einsum, 3), (associative, 3), (convert, 5), (segments, 3),
    (resized, 2),
)  # fmt: skip


def drawn(program: Program) -> Drawn:
    """One of these calls."""
    makers = [maker for maker, _ in STRUCTURED]
    return _chosen(program.rng, makers)(program)


def _chosen(
    rng: random.Random, makers: Sequence[Callable[[Program], Drawn]]
) -> Callable[[Program], Drawn]:
    return rng.choices(makers, [weight for _, weight in STRUCTURED])[0]
