"""Molecules, planets, trees of life, machines that are steered."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program(
    {"atoms": 24, "near": 6, "steps": 3},
    {"atoms": 32000, "near": 60, "steps": 20},
)
def molecular_dynamics(atoms: int, near: int, steps: int) -> Made:
    """Lennard-Jones forces from lists of neighbours, in a box that repeats, by Verlet's steps."""
    box = 8.0

    def run(place: Array, speed: Array, lists: Array) -> tuple[Array, Array]:
        mine = jnp.arange(atoms)[:, None]

        def energy(x: Array) -> Array:
            way = x[:, None] - x[lists]
            way = way - box * jnp.round(way / box)
            square = (way**2).sum(-1) + 0.5
            known = (lists != mine) & (square < 6.25)
            six = (1 / square) ** 3
            return jnp.where(known, 2 * (six**2 - six), 0.0).sum()

        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            x, v = state
            e, slope = jax.value_and_grad(energy)(x)
            v = v - 1e-4 * slope
            return (jnp.mod(x + 1e-3 * v, box), v), e

        (x, _), energies = lax.scan(step, (place, speed), None, steps)
        return x, energies

    arguments = [
        Argument((atoms, 3), low=0.0, high=8.0),
        Argument((atoms, 3)),
        integers(atoms, near, below=atoms),
    ]
    return run, arguments


@program({"levels": 2, "rows": 12, "degree": 6}, {"levels": 40, "rows": 360, "degree": 127})
def spherical_harmonics(levels: int, rows: int, degree: int) -> Made:
    """A planet's fields to its harmonics, a step of diffusion there, and back."""
    columns = 2 * rows

    def run(field: Array, legendre: Array, weight: Array) -> Array:
        waves = jnp.fft.rfft(field, axis=-1)[..., : degree + 1]
        spectrum = jnp.einsum("lrm,mnr->lmn", waves * weight[:, None], legendre)
        n = jnp.arange(degree + 1)
        spectrum = spectrum * jnp.exp(-1e-4 * n * (n + 1)) * (n >= n[:, None])
        waves = jnp.einsum("lmn,mnr->lrm", spectrum, legendre)
        return jnp.fft.irfft(waves, n=columns, axis=-1)

    arguments = [
        Argument((levels, rows, columns)),
        Argument((degree + 1, degree + 1, rows)),
        Argument((rows,), low=0.0, high=1.0),
    ]
    return run, arguments


@program({"leaves": 6, "sites": 20}, {"leaves": 64, "sites": 40000})
def phylogeny(leaves: int, sites: int) -> Made:
    """Felsenstein's pruning: likelihoods of sites up a tree that is data, and gradients of branches."""
    inner = leaves - 1

    def loss(lengths: Array, rates: Array, tree: Array, bases: Array) -> Array:
        q = jnp.exp(rates).reshape(4, 4) * (1 - jnp.eye(4))
        q = q - jnp.diag(q.sum(1))
        moves = jax.vmap(jax.scipy.linalg.expm)(jnp.abs(lengths)[:, None, None] * q)
        known = jax.nn.one_hot(bases, 4, axis=1)
        likely = jnp.concatenate([known, jnp.zeros((inner, 4, sites))])

        def step(
            state: tuple[Array, Array], pair: tuple[Array, Array]
        ) -> tuple[tuple[Array, Array], None]:
            likely, scale = state
            children, own = pair
            a, b = (moves[c] @ likely[c] for c in children)
            new = a * b
            most = new.max(0)
            likely = lax.dynamic_update_index_in_dim(likely, new / most, own, 0)
            return (likely, scale + jnp.log(most)), None

        own = jnp.arange(leaves, leaves + inner)
        start = (likely, jnp.zeros(sites))
        children = jnp.minimum(tree, own[:, None] - 1)
        (likely, scale), _ = lax.scan(step, start, (children, own))
        return -(jnp.log(likely[-1].mean(0)) + scale).sum()

    nodes = 2 * leaves - 1
    arguments = [
        Argument((nodes,), low=0.05, high=0.3),
        Argument((16,), low=-0.3, high=0.3),
        integers(inner, 2, below=nodes),
        integers(leaves, sites, below=4, dtype="uint8"),
    ]
    return jax.value_and_grad(loss, argnums=(0, 1)), arguments


@program(
    {"batch": 3, "states": 4, "inputs": 2, "steps": 5},
    {"batch": 1024, "states": 13, "inputs": 4, "steps": 50},
)
def steering(batch: int, states: int, inputs: int, steps: int) -> Made:
    """Riccati's recursion backwards for many robots, then their paths forwards (LQR)."""

    def one(a: Array, b: Array, q: Array, start: Array) -> tuple[Array, Array]:
        def back(
            value: tuple[Array, Array], now: tuple[Array, ...]
        ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
            big, small = value
            a, b, q = now
            h = b.T @ big @ b + jnp.eye(inputs)
            factor = jax.scipy.linalg.cho_factor(h)
            gain = jax.scipy.linalg.cho_solve(factor, b.T @ big @ a)
            push = jax.scipy.linalg.cho_solve(factor, b.T @ small)
            closed = a - b @ gain
            new = jnp.diag(q * q) + a.T @ big @ closed
            return ((new + new.T) / 2, closed.T @ small + q), (gain, push)

        first = (jnp.eye(states), jnp.zeros(states))
        _, (gains, pushes) = lax.scan(back, first, (a, b, q), reverse=True)

        def go(x: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
            a, b, gain, push = now
            u = -gain @ x - push
            return a @ x + b @ u, u

        return lax.scan(go, start, (a, b, gains, pushes))

    arguments = [
        Argument((batch, steps, states, states), low=-0.3, high=0.3),
        Argument((batch, steps, states, inputs)),
        Argument((batch, steps, states)),
        Argument((batch, states)),
    ]
    return jax.vmap(one), arguments


@program({"filled": 3, "empty": 5}, {"filled": 20, "empty": 90})
def coupled_clusters(filled: int, empty: int) -> Made:
    """A step of coupled cluster doubles: products of four-dimensional tensors in many orders."""

    def run(
        t: Array, oooo: Array, ooov: Array, oovv: Array, ovov: Array, energy: Array
    ) -> tuple[Array, Array]:
        w = oooo + jnp.einsum("klcd,ijcd->klij", oovv, t)
        new = 0.5 * jnp.einsum("klij,klab->ijab", w, t)
        ring = jnp.einsum("kbcj,ikac->ijab", ovov + 0.5 * jnp.einsum("klcd,jldb->kbcj", oovv, t), t)
        ring = ring - ring.swapaxes(0, 1)
        new = new + ring - ring.swapaxes(2, 3)
        f_vv = jnp.einsum("klcd,klbd->bc", oovv, t)
        f_oo = jnp.einsum("klcd,jlcd->kj", oovv, t)
        new = new - jnp.einsum("bc,ijac->ijab", f_vv, t) - jnp.einsum("kj,ikab->ijab", f_oo, t)
        new = new + jnp.einsum("kjia,kb->ijab", ooov, t.sum((0, 2)))
        below = energy[:filled, None, None, None] + energy[:filled, None, None]
        gap = below - energy[filled:, None] - energy[filled:]
        new = (oovv + new) / (gap - 4)
        return new, 0.25 * jnp.einsum("ijab,ijab->", oovv, new)

    o, v = filled, empty
    arguments = [
        Argument((o, o, v, v)),
        Argument((o, o, o, o)),
        Argument((o, o, o, v)),
        Argument((o, o, v, v)),
        Argument((o, v, v, o)),
        Argument((o + v,)),
    ]
    return run, arguments


@program(
    {"particles": 50, "size": 4, "steps": 2},
    {"particles": 262144, "size": 32, "steps": 10},
)
def plasma(particles: int, size: int, steps: int) -> Made:
    """Particles in cells: charges spread to a grid, fields by transforms, forces looked up."""
    wave = 2 * np.pi * np.fft.fftfreq(size)
    square = wave[:, None, None] ** 2 + wave[:, None] ** 2 + wave[: size // 2 + 1] ** 2
    square[0, 0, 0] = 1.0
    green = (1 / square).astype(np.float32)
    green[0, 0, 0] = 0.0

    def run(place: Array, speed: Array) -> tuple[Array, Array]:
        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            x, v = state
            cell = jnp.floor(x).astype(jnp.int32)
            part = x - cell
            grid = jnp.zeros((size, size, size))
            corners = []
            for corner in np.ndindex(2, 2, 2):
                side = np.array(corner)
                share = jnp.where(side == 1, part, 1 - part).prod(-1)
                at = (cell + side) % size
                corners.append((at, share))
                grid = grid.at[at[:, 0], at[:, 1], at[:, 2]].add(share)
            potential = jnp.fft.irfftn(jnp.fft.rfftn(grid) * green)
            field = jnp.stack(
                [jnp.roll(potential, 1, i) - jnp.roll(potential, -1, i) for i in range(3)], -1
            )
            pull = jnp.zeros_like(x)
            for at, share in corners:
                pull = pull + share[:, None] * field[at[:, 0], at[:, 1], at[:, 2]]
            v = v + 0.01 * pull
            return (jnp.mod(x + 0.1 * v, size), v), (field**2).sum()

        (x, _), energy = lax.scan(step, (place, speed), None, steps)
        return x, energy

    return run, [Argument((particles, 3), low=0.0, high=size), Argument((particles, 3))]
