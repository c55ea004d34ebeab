"""Layers between the products: normalisations, activations, and what only moves or marks elements."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fuzz.networks.draw import (
    Dims,
    Draw,
    Layer,
    NotApplicableError,
    Weights,
    activation,
)

_EPSILON = 1e-3


def normalisation(draw: Draw, dims: Dims) -> Layer:
    """Over the batch, the features, groups of features or one image."""
    rank, features = len(dims), dims[-1]
    kinds = ("layer", "rms", "layer") if rank == 3 else ("batch", "layer", "rms", "group", "image")
    kind = draw.pick(*kinds)
    groups = 4 if kind == "group" and features % 4 == 0 else 1
    scale, shift = draw.parameter((features,), 0.2), draw.parameter((features,), 0.2)
    draw.label(f"{kind} norm")
    inner = tuple(range(1, rank - 1))
    over = {
        "batch": tuple(range(rank - 1)),
        "layer": (-1,),
        "rms": (-1,),
        "image": inner,
        "group": (*inner, rank),
    }[kind]

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        y = x.astype(jnp.float32)
        if kind == "group":
            y = y.reshape(*x.shape[:-1], groups, features // groups)
        if kind != "rms":
            y = y - y.mean(over, keepdims=True)
        y = y * lax.rsqrt((y * y).mean(over, keepdims=True) + _EPSILON)
        return (y.reshape(x.shape) * (1 + weights[scale]) + weights[shift]).astype(x.dtype)

    return layer


def elementwise(draw: Draw, _: Dims) -> Layer:
    """An activation by itself."""
    name, act = activation(draw)
    draw.label(name)
    return lambda _, x: act(x)


def rearrangement(draw: Draw, dims: Dims) -> Layer:
    """What networks do beside their products."""
    name = draw.pick(*_REARRANGEMENTS)
    layer = _REARRANGEMENTS[name](draw, dims)
    draw.label(name)
    return layer


def _dropout(draw: Draw, _: Dims) -> Layer:
    seed = draw.rng.randrange(1000)

    def layer(_: Weights, x: jax.Array) -> jax.Array:
        kept = jax.random.bernoulli(jax.random.key(seed), 0.9, x.shape)
        return jnp.where(kept, x / 0.9, 0).astype(x.dtype)

    return layer


def _rolled(_: Draw, __: Dims) -> Layer:
    return lambda _, x: x + jnp.roll(x, 3, 1)


def _spectrum(draw: Draw, dims: Dims) -> Layer:
    if math.prod(dims) > 2e7:
        raise NotApplicableError
    how = draw.pick("fft", "rfft")

    def layer(_: Weights, x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.float32)
        if how == "fft":
            return (jnp.fft.fft(wide, axis=1).real * 0.1).astype(x.dtype)
        found = jnp.fft.irfft(jnp.fft.rfft(wide, axis=1) * 0.5, x.shape[1], axis=1)
        return found.astype(x.dtype)

    return layer


def _running_mean(_: Draw, __: Dims) -> Layer:
    return lambda _, x: (jnp.cumsum(x.astype(jnp.float32), 1) / x.shape[1]).astype(x.dtype)


def _sorted(_: Draw, dims: Dims) -> Layer:
    if math.prod(dims) > 4e6:
        raise NotApplicableError
    return lambda _, x: jnp.sort(x, axis=1)


def _flipped(_: Draw, dims: Dims) -> Layer:
    half = dims[-1] // 2
    return lambda _, x: jnp.concatenate([x[:, ::-1, ..., :half], x[..., half:]], -1)


def _padded(draw: Draw, dims: Dims) -> Layer:
    mode = draw.pick("reflect", "edge", "constant", "wrap")
    widths = [(0, 0), *[(1, 2)] * (len(dims) - 2), (0, 0)]
    return lambda _, x: jnp.pad(x, widths, mode=mode)


def _placed(_: Draw, dims: Dims) -> Layer:
    length, features = dims[1], dims[-1]

    def layer(_: Weights, x: jax.Array) -> jax.Array:
        rates = 1e4 ** (-jnp.arange(features) / features)
        angles = jnp.sin(jnp.arange(length)[:, None] * rates).astype(x.dtype)
        return x + angles.reshape(1, length, *(1,) * (x.ndim - 3), features)

    return layer


def _shifted(_: Draw, dims: Dims) -> Layer:
    half = dims[-1] // 2

    def layer(_: Weights, x: jax.Array) -> jax.Array:
        before = jnp.pad(x[..., :half], [(0, 0), (1, 0), *[(0, 0)] * (x.ndim - 2)])[:, :-1]
        return jnp.concatenate([before, x[..., half:]], -1)

    return layer


def _both_signs(_: Draw, dims: Dims) -> Layer:
    if dims[-1] > 512:
        raise NotApplicableError
    return lambda _, x: jnp.concatenate([jax.nn.relu(x), jax.nn.relu(-x)], -1)


def _greatest(_: Draw, dims: Dims) -> Layer:
    if math.prod(dims) > 4e6:
        raise NotApplicableError
    count = max(1, dims[-1] // 4)
    return lambda _, x: jnp.where(x >= lax.top_k(x, count)[0][..., -1:], x, 0)


def _quantised(_: Draw, __: Dims) -> Layer:
    def layer(_: Weights, x: jax.Array) -> jax.Array:
        steps = jnp.clip(jnp.round(x.astype(jnp.float32) * 16), -128, 127).astype(jnp.int8)
        return x + lax.stop_gradient((steps.astype(jnp.float32) / 16).astype(x.dtype) - x)

    return layer


def _by_greatest(_: Draw, __: Dims) -> Layer:
    def layer(_: Weights, x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.float32)
        most = jnp.abs(wide).max(tuple(range(1, x.ndim)), keepdims=True)
        return (wide / (_EPSILON + most)).astype(x.dtype)

    return layer


_REARRANGEMENTS: dict[str, Callable[[Draw, Dims], Layer]] = {
    "dropout": _dropout,
    "roll": _rolled,
    "spectrum": _spectrum,
    "running mean": _running_mean,
    "sort": _sorted,
    "flip": _flipped,
    "pad": _padded,
    "positions": _placed,
    "shift": _shifted,
    "both signs": _both_signs,
    "greatest features": _greatest,
    "quantise": _quantised,
    "divide by the greatest": _by_greatest,
}
