"""Fields on grids and bodies in space."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.registry import Argument, Array, Made, program


@program({"size": 24, "steps": 2}, {"size": 1024, "steps": 50})
def shallow_water(size: int, steps: int) -> Made:
    def run(height: Array, east: Array, north: Array) -> tuple[tuple[Array, ...], Array]:
        def across(a: Array) -> Array:
            return (jnp.roll(a, -1, 0) - jnp.roll(a, 1, 0)) / 2

        def along(a: Array) -> Array:
            return (jnp.roll(a, -1, 1) - jnp.roll(a, 1, 1)) / 2

        def step(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], Array]:
            h, u, v = state
            du = u * across(u) + v * along(u) + 9.8 * across(h) - 0.1 * v
            dv = u * across(v) + v * along(v) + 9.8 * along(h) + 0.1 * u
            u, v = u - 0.01 * du, v - 0.01 * dv
            h = h - 0.01 * (across(h * u) + along(h * v))
            return (h, u, v), h.max()

        return lax.scan(step, (height + 10, east, north), None, length=steps)

    field = Argument((size, size), low=-0.1, high=0.1)
    return run, [field, field, field]


@program({"size": 64}, {"size": 1024})
def multigrid(size: int) -> Made:
    """V-cycles for Poisson's equation."""

    def around(u: Array) -> Array:
        p = jnp.pad(u, 1)
        return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2]

    def smooth(u: Array, f: Array, h: float) -> Array:
        for _ in range(2):
            u = u + 0.8 * ((around(u) + h * h * f) / 4 - u)
        return u

    def cycle(u: Array, f: Array, h: float) -> Array:
        u = smooth(u, f, h)
        if len(u) > 4:
            rest = f - (4 * u - around(u)) / (h * h)
            coarse = rest.reshape(len(u) // 2, 2, -1, 2).mean((1, 3))
            error = cycle(jnp.zeros_like(coarse), coarse, 2 * h)
            u = u + jnp.repeat(jnp.repeat(error, 2, 0), 2, 1)
        return smooth(u, f, h)

    def solve(f: Array) -> Array:
        u = jnp.zeros_like(f)
        for _ in range(3):
            u = cycle(u, f, 1 / size)
        return u

    return solve, [Argument((size, size))]


@program({"size": 8, "steps": 2}, {"size": 128, "steps": 20})
def maxwell(size: int, steps: int) -> Made:
    """Finite differences in time, three dimensions."""

    def run(*fields: Array) -> tuple[Array, ...]:
        def step(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
            e, h = list(state[:3]), list(state[3:])
            for i in range(3):
                j, k = (i + 1) % 3, (i + 2) % 3
                curl = jnp.roll(e[k], -1, j) - e[k] - jnp.roll(e[j], -1, k) + e[j]
                h[i] = h[i] - 0.5 * curl
            for i in range(3):
                j, k = (i + 1) % 3, (i + 2) % 3
                curl = h[k] - jnp.roll(h[k], 1, j) - h[j] + jnp.roll(h[j], 1, k)
                e[i] = e[i] + 0.5 * curl
            return (*e, *h), None

        return lax.scan(step, fields, None, length=steps)[0]

    return run, [Argument((size, size, size))] * 6


@program({"size": 40, "steps": 3}, {"size": 2048, "steps": 50})
def wave(size: int, steps: int) -> Made:
    def run(start: Array, speed: Array) -> tuple[tuple[Array, Array], Array]:
        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            now, before = state
            p = jnp.pad(now, 1)
            around = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * now
            return (2 * now - before + speed * around, now), now[size // 2]

        return lax.scan(step, (start, start), None, length=steps)

    return run, [Argument((size, size)), Argument((size, size), low=0.0, high=0.25)]


@program({"count": 24}, {"count": 2048})
def embedding_of_neighbours(count: int) -> Made:
    """Steps of t-SNE."""

    def run(affinity: Array, start: Array) -> tuple[Array, Array]:
        def divergence(y: Array) -> Array:
            far = ((y[:, None] - y[None]) ** 2).sum(-1)
            near = (1 - jnp.eye(count)) / (1 + far)
            share = near / near.sum()
            return (affinity * (jnp.log(affinity) - jnp.log(share + 1e-12))).sum()

        def step(y: Array, _: None) -> tuple[Array, Array]:
            value, slope = jax.value_and_grad(divergence)(y)
            return y - 10 * slope, value

        return lax.scan(step, start, None, length=3)

    return run, [Argument((count, count), low=1e-6, high=1e-3), Argument((count, 2))]
