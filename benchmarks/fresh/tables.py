"""Tables, counts and chance."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.fresh.registry import Argument, Array, Made, integers, key, program


@program({"count": 4, "length": 12}, {"count": 65536, "length": 64})
def checksums(count: int, length: int) -> Made:
    """CRC-32 by bytes."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0xEDB88320, table >> 1).astype(np.uint32)

    def run(data: Array) -> Array:
        known = jnp.asarray(table)

        def step(state: Array, byte: Array) -> tuple[Array, None]:
            return (state >> 8) ^ known[((state ^ byte) & 255).astype(jnp.int32)], None

        start = jnp.full(count, 0xFFFFFFFF, jnp.uint32)
        return ~lax.scan(step, start, data.T.astype(jnp.uint32))[0]

    return run, [integers(count, length, below=256, dtype="uint8")]


@program({"count": 100, "bins": 16}, {"count": 4_000_000, "bins": 256})
def equalised(count: int, bins: int) -> Made:
    """A histogram, and every value's share of it."""

    def run(x: Array) -> tuple[Array, Array]:
        counts = jnp.histogram(x, bins, range=(-1.0, 1.0))[0]
        share = jnp.cumsum(counts) / count
        return counts, share[jnp.clip(((x + 1) / 2 * bins).astype(jnp.int32), 0, bins - 1)]

    return run, [Argument((count,))]


@program({"count": 16, "steps": 5}, {"count": 65536, "steps": 50})
def particle_filter(count: int, steps: int) -> Made:
    def run(start: Array, seen: Array, seed: Array) -> Array:
        def step(state: tuple[Array, Array], y: Array) -> tuple[tuple[Array, Array], Array]:
            x, seed = state
            seed, noise, draw = jax.random.split(seed, 3)
            x = 0.5 * x + 25 * x / (1 + x * x) + jax.random.normal(noise, (count,))
            weight = jax.nn.softmax(-0.5 * (y - x * x / 20) ** 2)
            at = (jnp.arange(count) + jax.random.uniform(draw)) / count
            kept = jnp.searchsorted(jnp.cumsum(weight), at).clip(0, count - 1)
            return (x[kept], seed), (weight * x).sum()

        return lax.scan(step, (start, jax.random.wrap_key_data(seed)), seen)[1]

    return run, [Argument((count,)), Argument((steps,), low=-3.0, high=3.0), key()]


@program({"size": 24, "steps": 2}, {"size": 2048, "steps": 20})
def ising(size: int, steps: int) -> Made:
    def run(start: Array, seed: Array) -> tuple[Array, Array]:
        colour = (jnp.arange(size)[:, None] + jnp.arange(size)) % 2

        def sweep(spin: Array, seed: Array) -> tuple[Array, Array]:
            for part in range(2):
                seed, draw = jax.random.split(seed)
                shifted = [jnp.roll(spin, by, axis) for by in (1, -1) for axis in (0, 1)]
                energy = 2 * spin * sum(shifted)
                chance = jnp.exp(-0.4 * energy.astype(jnp.float32))
                turns = (jax.random.uniform(draw, spin.shape) < chance) & (colour == part)
                spin = jnp.where(turns, -spin, spin)
            return spin, spin.astype(jnp.float32).mean()

        spin = (2 * start - 1).astype(jnp.int8)
        return lax.scan(sweep, spin, jax.random.split(jax.random.wrap_key_data(seed), steps))

    return run, [integers(size, size, below=2), key()]
