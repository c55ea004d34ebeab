"""What a network is trained by: a loss of its outputs, and a step of an optimizer."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

Array = jax.Array
Loss = Callable[[Array, Array], Array]

DENSE = frozenset({"dense cross entropy", "dice", "squares", "huber"})
"""Losses that look at every position by itself."""


def _cross_entropy(outputs: Array, labels: Array) -> Array:
    log = jax.nn.log_softmax(outputs)
    return -jnp.take_along_axis(log, labels[..., None] % outputs.shape[-1], -1).mean()


def _one_hot_cross_entropy(outputs: Array, labels: Array) -> Array:
    count = outputs.shape[-1]
    return -(jax.nn.one_hot(labels % count, count) * jax.nn.log_softmax(outputs)).sum(-1).mean()


def _wanted(outputs: Array) -> Array:
    return jnp.sin(jnp.arange(outputs.size).reshape(outputs.shape) * 0.1)


def _squares(outputs: Array, _: Array) -> Array:
    return jnp.square(outputs - _wanted(outputs)).mean()


def _huber(outputs: Array, _: Array) -> Array:
    d = jnp.abs(outputs - _wanted(outputs))
    return jnp.where(d < 1, 0.5 * d * d, d - 0.5).mean()


def _binary(outputs: Array, _: Array) -> Array:
    return (jax.nn.softplus(outputs) - outputs * (_wanted(outputs) > 0)).mean()


def _dice(outputs: Array, labels: Array) -> Array:
    found = jax.nn.softmax(outputs)
    count = outputs.shape[-1]
    there = jax.nn.one_hot(labels % count, count)
    return 1 - (2 * (found * there).sum() + 1) / (found.sum() + there.sum() + 1)


def _contrast(outputs: Array, _: Array) -> Array:
    rows = outputs.reshape(-1, outputs.shape[-1])[:1024]
    rows = rows / (1e-3 + jnp.linalg.norm(rows, axis=-1, keepdims=True))
    s = rows @ rows.T * 5
    others = jax.nn.logsumexp(s - 1e9 * jnp.eye(len(s)), -1)
    return (others - jnp.diagonal(jnp.roll(s, 1, 0))).mean()


LOSSES: dict[str, Loss] = {
    "cross entropy": _cross_entropy,
    "dense cross entropy": _one_hot_cross_entropy,
    "squares": _squares,
    "huber": _huber,
    "binary": _binary,
    "dice": _dice,
    "contrast": _contrast,
}

Moments = tuple[Array, Array]
Step = Callable[[Array, Array, Moments], tuple[Array, Moments]]
"""New weights and moments (of f32) from weights, their gradient and moments."""


def _descent(w: Array, g: Array, m: Moments) -> tuple[Array, Moments]:
    return w - 0.01 * g, m


def _momentum(w: Array, g: Array, m: Moments) -> tuple[Array, Moments]:
    first = 0.9 * m[0] + g
    return w - 0.01 * first, (first, m[1])


def _adam(w: Array, g: Array, m: Moments) -> tuple[Array, Moments]:
    first, second = 0.9 * m[0] + 0.1 * g, 0.999 * m[1] + 0.001 * g * g
    return w - 1e-3 * (first / (jnp.sqrt(second) + 1e-8) + 0.01 * w), (first, second)


def _lion(w: Array, g: Array, m: Moments) -> tuple[Array, Moments]:
    return w - 1e-3 * jnp.sign(0.9 * m[0] + 0.1 * g), (0.99 * m[0] + 0.01 * g, m[1])


def _rms(w: Array, g: Array, m: Moments) -> tuple[Array, Moments]:
    second = 0.9 * m[1] + 0.1 * g * g
    return w - 1e-3 * g * lax.rsqrt(second + 1e-6), (m[0], second)


def _factored(w: Array, g: Array, m: Moments) -> tuple[Array, Moments]:
    if w.ndim < 2:
        return w - 1e-3 * g, m
    rows, columns = (jnp.square(g).mean(dim, keepdims=True) for dim in (-1, -2))
    scale = lax.rsqrt(rows * columns / (rows.mean() + 1e-6) + 1e-6)
    return w - 1e-3 * g * scale, m


STEPS: dict[str, Step] = {
    "descent": _descent,
    "momentum": _momentum,
    "adam": _adam,
    "lion": _lion,
    "rms": _rms,
    "factored": _factored,
}


def clipped(gradients: dict[str, Array]) -> dict[str, Array]:
    """Gradients scaled so that their common norm is at most one."""
    norm = jnp.sqrt(sum(jnp.square(g.astype(jnp.float32)).sum() for g in gradients.values()))
    scale = jnp.minimum(1, 1 / (norm + 1e-6))
    return {name: (g * scale).astype(g.dtype) for name, g in gradients.items()}
