"""Layers of images, signals and volumes: convolutions, pools, and what makes them larger."""

from __future__ import annotations

import math

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
    spatial,
)

_MOST_FEATURES = 1024


def convolution(draw: Draw, dims: Dims) -> Layer:
    """A convolution: strided, dilated, in groups, of either order of dimensions."""
    rank, features = len(dims), dims[-1]
    space = spatial(rank)
    least = min(dims[1:-1])
    size = draw.pick(1, 3, 3, 3, 5, 7) if rank < 5 else draw.pick(1, 3, 3)
    stride = draw.pick(1, 1, 1, 2) if least >= 8 else 1
    dilation = draw.pick(1, 1, 1, 2, 3) if stride == 1 and size > 1 else 1
    groups, out = _groups(draw, features)
    reach = dilation * (size - 1)
    padding = draw.pick("SAME", "SAME", "VALID", "explicit")
    if padding == "VALID" and least <= reach + 2:
        padding = "SAME"
    pads = [(reach // 2, reach // 2)] * (rank - 2) if padding == "explicit" else padding
    kernel = draw.parameter((*(size,) * (rank - 2), features // groups, out))
    bias = draw.parameter((out,), 0.1) if draw.chance(0.5) else None
    is_features_first = draw.chance(0.3)
    order = " features first" if is_features_first else ""
    draw.label(f"conv {features}->{out} k{size} s{stride} d{dilation} g{groups} {padding}{order}")
    last = (f"N{space}C", f"{space}IO", f"N{space}C")
    first = (f"NC{space}", f"OI{space}", f"NC{space}")

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        w = draw.weight(weights, kernel, x)
        if is_features_first:
            x, w = jnp.moveaxis(x, -1, 1), jnp.moveaxis(w, (-1, -2), (0, 1))
        y = lax.conv_general_dilated(
            x,
            w,
            (stride,) * len(space),
            pads,
            rhs_dilation=(dilation,) * len(space),
            feature_group_count=groups,
            dimension_numbers=first if is_features_first else last,
        )
        if is_features_first:
            y = jnp.moveaxis(y, 1, -1)
        return y if bias is None else y + draw.weight(weights, bias, y)

    return layer


def _groups(draw: Draw, features: int) -> tuple[int, int]:
    """In how many groups, and to how many features."""
    kind = draw.pick("full", "full", "full", "depthwise", "groups")
    if kind == "depthwise":
        return features, features
    out = draw.pick(features, features, 2 * features, max(8, features // 2))
    if out > _MOST_FEATURES:
        out = features
    groups = draw.pick(2, 4, 8) if kind == "groups" else 1
    return (groups, out) if features % groups == out % groups == 0 else (1, out)


def stem(draw: Draw, dims: Dims) -> Layer:
    """The first convolution of an image of few features."""
    space = spatial(len(dims))
    out, stride = draw.sized(draw.pick(16, 32, 64), 8), draw.pick(1, 2)
    kernel = draw.parameter((*(3,) * len(space), dims[-1], out))
    draw.label(f"stem {dims[-1]}->{out} s{stride}")
    numbers = (f"N{space}C", f"{space}IO", f"N{space}C")

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        w = draw.weight(weights, kernel, x)
        return lax.conv_general_dilated(
            x, w, (stride,) * len(space), "SAME", dimension_numbers=numbers
        )

    return layer


def pool(draw: Draw, dims: Dims) -> Layer:
    """The greatest or the mean of a window."""
    if min(dims[1:-1]) < 6:
        raise NotApplicableError
    size, stride = draw.pick(2, 3), draw.pick(2, 2, 1)
    kind, padding = draw.pick("max", "mean"), draw.pick("SAME", "VALID")
    draw.label(f"{kind} pool k{size} s{stride} {padding}")
    inner = len(dims) - 2
    window, strides = (1, *(size,) * inner, 1), (1, *(stride,) * inner, 1)

    def layer(_: Weights, x: jax.Array) -> jax.Array:
        if kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, padding)
        total = lax.reduce_window(x.astype(jnp.float32), 0.0, lax.add, window, strides, padding)
        return (total / size**inner).astype(x.dtype)

    return layer


def excitation(draw: Draw, dims: Dims) -> Layer:
    """Squeeze-and-excite: features weighted by what the whole image has of them."""
    features, inner = dims[-1], max(4, dims[-1] // 4)
    down, up = draw.parameter((features, inner)), draw.parameter((inner, features))
    name, act = activation(draw)
    draw.label(f"excite {name}")

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        mean = x.mean(tuple(range(1, x.ndim - 1)), dtype=jnp.float32).astype(x.dtype)
        hidden = act(mean @ draw.weight(weights, down, x))
        gate = jax.nn.sigmoid(hidden @ draw.weight(weights, up, x))
        return x * gate.reshape(x.shape[0], *(1,) * (x.ndim - 2), features)

    return layer


def enlarge(draw: Draw, dims: Dims) -> Layer:
    """Twice the size in every direction."""
    if math.prod(dims) > draw.sized(3e7, 2e4):
        raise NotApplicableError
    space, features = spatial(len(dims)), dims[-1]
    doubled = (dims[0], *(2 * n for n in dims[1:-1]), features)
    how = draw.pick("nearest", "linear", "cubic", "repeat", "transposed", "shuffle")
    if how == "shuffle" and (len(dims) != 4 or features % 4):
        how = "nearest"
    draw.label(f"enlarge {how}")
    if how == "transposed":
        kernel = draw.parameter((*(4,) * len(space), features, features))
        numbers = (f"N{space}C", f"{space}IO", f"N{space}C")
        return lambda weights, x: lax.conv_transpose(
            x,
            draw.weight(weights, kernel, x),
            (2,) * len(space),
            "SAME",
            dimension_numbers=numbers,
        )
    if how == "shuffle":
        return _shuffled
    if how == "repeat":
        return _repeated
    return lambda _, x: jax.image.resize(x, doubled, how)


def _shuffled(_: Weights, x: jax.Array) -> jax.Array:
    n, h, w, c = x.shape
    blocks = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return blocks.reshape(n, 2 * h, 2 * w, c // 4)


def _repeated(_: Weights, x: jax.Array) -> jax.Array:
    for dim in range(1, x.ndim - 1):
        x = jnp.repeat(x, 2, axis=dim)
    return x


def patches(draw: Draw, dims: Dims) -> Layer:
    """Blocks of four pixels as one position with four times the features."""
    if len(dims) != 4 or dims[1] % 2 or dims[2] % 2 or dims[-1] > 256:
        raise NotApplicableError
    kernel = draw.parameter((4 * dims[-1], 2 * dims[-1]))
    draw.label("patches")

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        n, h, w, c = x.shape
        blocks = x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5)
        return blocks.reshape(n, h // 2, w // 2, 4 * c) @ draw.weight(weights, kernel, x)

    return layer
