"""Blocks of calls under JAX's transformations: loops, branches, batches, derivatives."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fuzz.traced import draw
from benchmarks.fuzz.traced.program import Function, NotAddedError, Program, Spec

Filler = Callable[[Program, int], None]
_BATCH_SIZES = (1, 2, 3, 5, 8)


@dataclass(frozen=True)
class Block:
    """A part of a program: `function` of values shaped `specs`, whose kinds are `kinds`."""

    function: Function
    specs: list[Spec]
    kinds: list[str]
    results: list[Spec]


def block(program: Program, specs: Sequence[Spec], fill: Filler) -> Block:
    """A random function of values of these types, and of others that it asks for itself."""
    inner = Program(program.rng, program.most, program.real)
    for spec in specs:
        inner.give(spec.dtype.name, spec.shape)
    fill(inner, program.rng.randint(1, 4))
    results = inner.results()
    if not results:
        raise NotAddedError("an empty block")
    parameters = list(inner.given)
    return Block(
        inner.function(results),
        [inner.specs[n] for n in parameters],
        [inner.given[n] for n in parameters],
        [inner.specs[n] for n in results],
    )


def fitted(value: Any, spec: Spec) -> Any:
    """The value in the type and dimensions asked for."""
    if value.size == 0:
        return jnp.zeros(spec.shape, spec.dtype)
    shaped = value if value.shape == spec.shape else jnp.resize(value, spec.shape)
    if jnp.issubdtype(value.dtype, jnp.complexfloating) and spec.dtype.name != "complex64":
        shaped = shaped.real
    return shaped.astype(spec.dtype)


def _start(program: Program, least: int = 1) -> tuple[list[int], list[Spec]]:
    """Values there are, or a new one."""
    rng = program.rng
    numbers = []
    for _ in range(rng.randint(least, 2)):
        found = program.pick()
        if found is None:
            dims = draw.dims(rng, program.most, program.real)
            found = program.give(draw.dtype(rng), dims)
        numbers.append(found)
    return numbers, [program.specs[n] for n in numbers]


def _rest(program: Program, made: Block, count: int) -> list[int]:
    """What the block asks for beside its first values, as values or new parameters of the program."""
    numbers = []
    for spec, kind in list(zip(made.specs, made.kinds, strict=True))[count:]:
        numbers.append(program.give(spec.dtype.name, spec.shape, kind))
    return numbers


Drawn = tuple[str, Function, list[int]]


def called(program: Program, fill: Filler) -> Drawn:
    """A function called twice, or computed again by a gradient."""
    numbers, specs = _start(program)
    made = block(program, specs, fill)
    numbers += _rest(program, made, len(numbers))
    inner = jax.jit(made.function)
    wrapped = jax.checkpoint(inner) if program.rng.random() < 0.3 else inner
    return "call", lambda *x: (wrapped(*x), wrapped(*x[::1])), numbers


def counted(program: Program, fill: Filler) -> Drawn:
    """fori_loop with a known count, or one that is read."""
    rng = program.rng
    numbers, specs = _start(program)
    made = block(program, specs, fill)
    rest = _rest(program, made, len(numbers))
    count, trips = len(numbers), rng.randint(0, 5)
    bound = [program.give(rng.choice(("int32", "uint8", "int8")), (), "small")]
    known = rng.random() < 0.5

    def run(*arrays: Any) -> Any:
        carried, others, (last,) = arrays[:count], arrays[count:-1], arrays[-1:]

        def body(i: Any, carry: Any) -> Any:
            results = made.function(*carry, *others)
            return tuple(
                fitted(results[n % len(results)], s) if n % 2 == 0 else fitted(c + i, s)
                for n, (c, s) in enumerate(zip(carry, specs, strict=True))
            )

        return lax.fori_loop(0, trips if known else jnp.minimum(last, 6), body, carried)

    return "fori", run, [*numbers, *rest, *bound]


def repeated(program: Program, fill: Filler) -> Drawn:
    """while_loop until a value says so, or a counter ends."""
    rng = program.rng
    numbers, specs = _start(program)
    made = block(program, specs, fill)
    rest, count = _rest(program, made, len(numbers)), len(numbers)
    trips, narrow = rng.randint(1, 6), rng.choice(("int32", "uint8", "int8", "int16"))

    def run(*arrays: Any) -> Any:
        carried, others = arrays[:count], arrays[count:]

        def more(carry: Any) -> Any:
            i, values = carry
            some = values[0].reshape(-1)[:1]
            return (i < trips) & ~jnp.any(some == 3)

        def body(carry: Any) -> Any:
            i, values = carry
            results = made.function(*values, *others)
            return i + jnp.ones((), narrow), tuple(
                fitted(results[n % len(results)], s) for n, s in enumerate(specs)
            )

        return lax.while_loop(more, body, (jnp.zeros((), narrow), carried))

    return "while", run, [*numbers, *rest]


def scanned(program: Program, fill: Filler) -> Drawn:
    """A scan over rows with results of each step."""
    rng = program.rng
    numbers, specs = _start(program)
    made = block(program, specs, fill)
    count, length = len(numbers), rng.choice(_BATCH_SIZES)
    scanned_, kept = [], []
    for at, spec in enumerate(made.specs[count:], count):
        is_row = rng.random() < 0.6
        dims = (length, *spec.shape) if is_row else spec.shape
        number = program.give(spec.dtype.name, dims, made.kinds[at])
        (scanned_ if is_row else kept).append((at, number))
    back = rng.random() < 0.3
    split = len(scanned_)
    unroll = rng.choice((1, 1, 1, 2))

    def run(*arrays: Any) -> Any:
        carried, rows, others = arrays[:count], arrays[count:][:split], arrays[count + split :]

        def body(carry: Any, row: Any) -> Any:
            values: dict[int, Any] = dict(enumerate(carry))
            values.update(zip((at for at, _ in scanned_), row, strict=True))
            values.update(zip((at for at, _ in kept), others, strict=True))
            results = made.function(*(values[n] for n in range(len(values))))
            nexts = tuple(fitted(results[n % len(results)], s) for n, s in enumerate(specs))
            return nexts, results

        return lax.scan(body, carried, rows, length=length, reverse=back, unroll=unroll)

    return "scan", run, [*numbers, *(n for _, n in scanned_), *(n for _, n in kept)]


def branched(program: Program, fill: Filler) -> Drawn:
    """cond or switch over two to four blocks."""
    rng = program.rng
    numbers, specs = _start(program)
    count = rng.choice((2, 2, 3, 4))
    blocks = [block(program, specs, fill) for _ in range(count)]
    rests, wanted = list[range](), blocks[0].results
    all_numbers = list(numbers)
    for made in blocks:
        rest = _rest(program, made, len(numbers))
        rests.append(range(len(all_numbers), len(all_numbers) + len(rest)))
        all_numbers += rest
    chooser = (
        rng.choice(("bool", "int32", "uint8")) if count == 2 else rng.choice(("int32", "int8"))
    )
    at = program.give(chooser, (), "small" if chooser != "bool" else "tame")

    def branch(made: Block, places: range) -> Function:
        def run(arrays: Sequence[Any]) -> Any:
            results = made.function(*arrays[: len(numbers)], *(arrays[n] for n in places))
            return [fitted(results[n % len(results)], s) for n, s in enumerate(wanted)]

        return run

    branches = [branch(made, places) for made, places in zip(blocks, rests, strict=True)]
    if chooser == "bool":
        return "cond", lambda *x: lax.cond(x[-1], *branches, x[:-1]), [*all_numbers, at]
    return "switch", lambda *x: lax.switch(x[-1], branches, x[:-1]), [*all_numbers, at]


def batched(program: Program, fill: Filler) -> Drawn:
    """vmap over any dimension of some of the arguments."""
    rng = program.rng
    size = rng.choice(_BATCH_SIZES)
    dims = draw.dims(rng, max(1, program.most // size), program.real)
    made = block(program, [Spec(dims, jnp.dtype(draw.dtype(rng)))], fill)
    numbers, axes = [], []
    for place, (spec, kind) in enumerate(zip(made.specs, made.kinds, strict=True)):
        axis = rng.randint(0, len(spec.shape)) if place == 0 or rng.random() < 0.6 else None
        shape = list(spec.shape)
        if axis is not None:
            shape.insert(axis, size)
        numbers.append(program.give(spec.dtype.name, shape, kind))
        axes.append(axis)
    inner = jax.vmap(made.function, in_axes=tuple(axes), out_axes=rng.choice((0, 0, -1)))
    return "vmap", inner, numbers


def mapped(program: Program, fill: Filler) -> Drawn:
    """lax.map, also of several rows at a time."""
    rng = program.rng
    size = rng.choice((2, 3, 5, 8))
    dims = draw.dims(rng, max(1, program.most // size), program.real)
    made = block(program, [Spec(dims, jnp.dtype(draw.dtype(rng)))], fill)
    numbers = [
        program.give(s.dtype.name, (size, *s.shape), k)
        for s, k in zip(made.specs, made.kinds, strict=True)
    ]
    rows = rng.choice((None, None, 2))
    return "map", lambda *x: lax.map(lambda r: made.function(*r), x, batch_size=rows), numbers


def differentiated(program: Program, fill: Filler) -> Drawn:
    """A gradient, a value and its gradient, or a derivative along a direction."""
    rng = program.rng
    numbers, specs = _start(program)
    made = block(program, specs, fill)
    numbers += _rest(program, made, len(numbers))
    wanted = [n for n, s in enumerate(made.specs) if jnp.issubdtype(s.dtype, jnp.floating)]
    wanted = [n for n in wanted if made.specs[n].dtype.name in ("float32", "bfloat16", "float16")]
    if not wanted:
        raise NotAddedError("nothing to differentiate")
    way = rng.choice(("grad", "grad", "vjp", "jvp", "second"))

    def loss(*arrays: Any) -> Any:
        results = made.function(*arrays)
        total = jnp.zeros((), jnp.float32)
        for r in results:
            if jnp.issubdtype(r.dtype, jnp.floating):
                total = total + jnp.sum(r.astype(jnp.float32))
            elif jnp.issubdtype(r.dtype, jnp.complexfloating):
                total = total + jnp.sum(r.real)
        return total

    if way == "jvp":
        return "jvp", lambda *x: jax.jvp(*_along(made.function, x, wanted)), numbers
    if way == "second":
        first = jax.grad(loss, wanted[0])
        return (
            "grad2",
            jax.grad(lambda *x: jnp.sum(first(*x)).astype(jnp.float32), wanted[0]),
            numbers,
        )
    return "grad", jax.value_and_grad(loss, tuple(wanted)), numbers


def _along(function: Function, arrays: Sequence[Any], wanted: Sequence[int]) -> Any:
    def of_some(*some: Any) -> Any:
        values = dict(enumerate(arrays)) | dict(zip(wanted, some, strict=True))
        return function(*(values[n] for n in range(len(arrays))))

    some = tuple(arrays[n] for n in wanted)
    return of_some, some, tuple(jnp.ones_like(x) for x in some)


TRANSFORMS: tuple[tuple[Callable[[Program, Filler], Drawn], int], ...] = (
    (called, 2), (counted, 4), (repeated, 4), (scanned, 6), (branched, 4), (batched, 6), (mapped, 2),
    (differentiated, 7),
)  # fmt: skip


def drawn(program: Program, fill: Filler) -> Drawn:
    """One of these, around a block."""
    return _chosen(program.rng)(program, fill)


def _chosen(rng: random.Random) -> Callable[[Program, Filler], Drawn]:
    return rng.choices([t for t, _ in TRANSFORMS], [weight for _, weight in TRANSFORMS])[0]
