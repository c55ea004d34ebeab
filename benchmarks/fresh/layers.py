"""Layers, losses and optimisers that several programs of learning share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.registry import Argument, Array

Weights = dict[str, Array]


def weights(shapes: Mapping[str, tuple[int, ...]], dtype: str = "float32") -> list[Argument]:
    """Arguments of a model's weights, of about one over the root of what they are summed over."""
    found = []
    for dims in shapes.values():
        most = 1.0 if len(dims) < 2 else (3 / max(1, _fan_in(dims))) ** 0.5
        found.append(Argument(dims, dtype, -most, most))
    return found


def _fan_in(dims: tuple[int, ...]) -> int:
    total = 1
    for size in dims[:-1]:
        total *= size
    return total


def named(shapes: Mapping[str, tuple[int, ...]], flat: Sequence[Array]) -> Weights:
    """The weights by name."""
    return dict(zip(shapes, flat, strict=True))


def layer_norm(x: Array, scale: Array, shift: Array) -> Array:
    """Layer norm over the last dimension, in f32."""
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    spread = lax.rsqrt(wide.var(-1, keepdims=True) + 1e-5)
    return ((wide - mean) * spread * scale + shift).astype(x.dtype)


def rms_norm(x: Array, scale: Array) -> Array:
    """Root mean square norm over the last dimension, in f32."""
    wide = x.astype(jnp.float32)
    return (wide * lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def attend(q: Array, k: Array, v: Array, bias: Array | None = None) -> Array:
    """Attention of `[batch, tokens, heads, features]`."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    wide = scores.astype(jnp.float32)
    if bias is not None:
        wide = wide + bias
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(wide).astype(v.dtype), v)


def split_heads(x: Array, heads: int) -> Array:
    """`[batch, tokens, features]` as `[batch, tokens, heads, features of one]`."""
    return x.reshape(*x.shape[:-1], heads, x.shape[-1] // heads)


def convolve(x: Array, kernel: Array, stride: int = 1, groups: int = 1) -> Array:
    """A convolution of channels last, in two dimensions."""
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (stride, stride), "SAME", dimension_numbers=names, feature_group_count=groups
    )


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Of each row, in f32."""
    wide = logits.astype(jnp.float32)
    chosen = jnp.take_along_axis(wide, labels[..., None], -1)[..., 0]
    return jax.nn.logsumexp(wide, -1) - chosen


def adam(
    loss: Callable[[Weights], Array], now: Weights, mean: Weights, square: Weights
) -> tuple[Array, Weights, Weights, Weights]:
    """One step of Adam with decay of weights."""
    value, slopes = jax.value_and_grad(loss)(now)
    mean = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slopes)
    square = jax.tree.map(lambda s, g: 0.999 * s + 0.001 * g * g, square, slopes)
    new = jax.tree.map(
        lambda w, m, s: w - 1e-3 * (m / (jnp.sqrt(s) + 1e-8) + 0.01 * w), now, mean, square
    )
    return value, new, mean, square


def descend(loss: Callable[[Weights], Array], now: Weights) -> tuple[Array, Weights]:
    """One step of gradient descent."""
    value, slopes = jax.value_and_grad(loss)(now)
    return value, jax.tree.map(lambda w, g: w - 0.01 * g.astype(w.dtype), now, slopes)
