"""Losses, graphs and prices that gather, scatter and regress."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.fresh.registry import Argument, Array, Made, integers, key, program


@program(
    {"batch": 2, "time": 12, "length": 4, "symbols": 8, "width": 16},
    {"batch": 32, "time": 400, "length": 80, "symbols": 1024, "width": 512},
)
def ctc_loss(batch: int, time: int, length: int, symbols: int, width: int) -> Made:
    """Connectionist temporal classification by the forward recursion, and its gradient."""
    states = 2 * length + 1

    def loss(weights: Array, x: Array, labels: Array) -> Array:
        scores = jax.nn.log_softmax(x @ weights)
        path = jnp.zeros((batch, states), jnp.int32).at[:, 1::2].set(labels)
        score = jnp.take_along_axis(scores, path[:, None].repeat(time, 1), -1)
        may_skip = jnp.pad(path[:, 2:] != path[:, :-2], ((0, 0), (2, 0))) & (path != 0)

        def step(alpha: Array, now: Array) -> tuple[Array, None]:
            low = -1e5
            one = jnp.pad(alpha, ((0, 0), (1, 0)), constant_values=low)[:, :-1]
            two = jnp.pad(alpha, ((0, 0), (2, 0)), constant_values=low)[:, :-2]
            two = jnp.where(may_skip, two, low)
            return jnp.logaddexp(jnp.logaddexp(alpha, one), two) + now, None

        start = jnp.full((batch, states), -1e5).at[:, :2].set(score[:, 0, :2])
        alpha, _ = lax.scan(step, start, score[:, 1:].swapaxes(0, 1))
        return -jnp.logaddexp(alpha[:, -1], alpha[:, -2]).mean()

    arguments = [
        Argument((width, symbols), low=-0.1, high=0.1),
        Argument((batch, time, width)),
        Argument((batch, length), "int32", 1, symbols),
    ]
    return jax.value_and_grad(loss), arguments


@program({"batch": 2, "length": 12}, {"batch": 256, "length": 256})
def soft_alignment(batch: int, length: int) -> Made:
    """Soft dynamic time warping along antidiagonals, and its gradient."""
    rows = np.arange(length)[:, None]
    far = 1e6

    def one(x: Array, y: Array) -> Array:
        distance = ((x[:, None] - y[None]) ** 2).sum(-1)
        skewed = jnp.full((2 * length - 1, length), far)
        skewed = skewed.at[rows + rows.T, rows].set(distance)

        def step(last: tuple[Array, Array], now: Array) -> tuple[tuple[Array, Array], None]:
            line = last[1]
            ways = (line, *(jnp.pad(a, (1, 0), constant_values=far)[:-1] for a in last))
            found = now - 0.1 * jax.nn.logsumexp(-jnp.stack(ways) / 0.1, 0)
            return (line, found), None

        start = jnp.full(length, far)
        (_, line), _ = lax.scan(step, (start, start.at[0].set(distance[0, 0])), skewed[1:])
        return line[-1]

    def loss(x: Array, y: Array) -> Array:
        return jax.vmap(one)(x, y).mean()

    return jax.value_and_grad(loss), [Argument((batch, length, 4))] * 2


@program(
    {"nodes": 40, "edges": 200, "heads": 4, "width": 8},
    {"nodes": 16384, "edges": 262144, "heads": 8, "width": 32},
)
def graph_attention(nodes: int, edges: int, heads: int, width: int) -> Made:
    """A layer of a graph attention network, and its gradient."""

    def loss(weights: Array, of_source: Array, of_target: Array, x: Array, ends: Array) -> Array:
        source, target = ends
        h = (x @ weights).reshape(nodes, heads, width)
        score = (h * of_source).sum(-1)[source] + (h * of_target).sum(-1)[target]
        score = jax.nn.leaky_relu(score, 0.2)
        score = score - lax.stop_gradient(jax.ops.segment_max(score, target, nodes))[target]
        weight = jnp.exp(score)
        share = weight / jax.ops.segment_sum(weight, target, nodes)[target]
        found = jax.ops.segment_sum(h[source] * share[..., None], target, nodes)
        return (jax.nn.elu(found) ** 2).mean()

    arguments = [
        Argument((128, heads * width), low=-0.1, high=0.1),
        Argument((heads, width)),
        Argument((heads, width)),
        Argument((nodes, 128)),
        integers(2, edges, below=nodes),
    ]
    return jax.value_and_grad(loss, argnums=(0, 1, 2)), arguments


@program({"paths": 64, "steps": 4}, {"paths": 262144, "steps": 50})
def american_option(paths: int, steps: int) -> Made:
    """Prices by regression on simulated paths, backwards in time."""

    def price(seed: Array, start: Array) -> tuple[Array, Array]:
        noise = jax.random.normal(jax.random.wrap_key_data(seed), (steps, paths))
        time = 1 / steps
        value = start * jnp.exp(jnp.cumsum(0.03 * time + 0.2 * time**0.5 * noise, 0))
        gain = jnp.maximum(1.1 - value, 0)

        def back(later: Array, now: tuple[Array, Array]) -> tuple[Array, None]:
            s, g = now
            later = later * jnp.exp(-0.05 * time)
            basis = jnp.stack([jnp.ones_like(s), s, s * s, s**3], 1)
            counted = basis * (g > 0)[:, None]
            normal = counted.T @ basis + 1e-3 * jnp.eye(4)
            factors = jnp.linalg.solve(normal, counted.T @ later)
            return jnp.where((g > basis @ factors) & (g > 0), g, later), None

        last, _ = lax.scan(back, gain[-1], (value[:-1], gain[:-1]), reverse=True)
        return last.mean(), last.std()

    return price, [key(), Argument((), low=0.9, high=1.1)]
