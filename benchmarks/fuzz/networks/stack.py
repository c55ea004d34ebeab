"""Layers one after another, each of which fits what the one before it gives."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax

from benchmarks.fuzz.networks import elements, images, sequences
from benchmarks.fuzz.networks.draw import Dims, Draw, Layer, Maker, NotApplicableError, Weights

_TRIES = 40

Stacked = tuple[list[Layer], Dims]


def stacked(draw: Draw, dims: Dims, count: int, makers: Sequence[Maker]) -> Stacked:
    """Up to `count` layers, and the dimensions that the last one gives."""
    layers: list[Layer] = []
    for _ in range(_TRIES):
        if len(layers) == count:
            break
        kept = dict(draw.parameters), list(draw.labels)
        try:
            layer = draw.rng.choice(makers)(draw, dims)
            given = _given(draw, layer, dims)
        except (NotApplicableError, TypeError, ValueError):  # the last two are JAX's
            draw.parameters, draw.labels = kept
            continue
        layers.append(layer)
        dims = given
    return layers, dims


def _given(draw: Draw, layer: Layer, dims: Dims) -> Dims:
    """What a layer gives for arrays of some dimensions. Raises `NotApplicableError` where that is no good."""
    weights = {name: jax.ShapeDtypeStruct(p.dims, p.dtype) for name, p in draw.parameters.items()}
    out = jax.eval_shape(layer, weights, jax.ShapeDtypeStruct(dims, draw.dtype))
    is_alike = out.dtype == draw.dtype and len(out.shape) == len(dims) and 0 not in out.shape
    if not is_alike or math.prod(out.shape) > draw.sized(6e7, 3e4):
        raise NotApplicableError
    return tuple(out.shape)


def residual(draw: Draw, dims: Dims) -> Layer:
    """Some layers, and what they were given."""
    of_images = (images.convolution, elements.normalisation, elements.elementwise)
    of_rows = (elements.normalisation, sequences.perceptron, sequences.attention)
    is_image = len(dims) > 3 or draw.chance(0.5)
    layers, given = stacked(draw, dims, draw.pick(2, 3), of_images if is_image else of_rows)
    draw.label("residual")

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        y = x
        for inner in layers:
            y = inner(weights, y)
        return x + y if given == dims else y

    return layer


OF_IMAGES: tuple[Maker, ...] = (
    *[images.convolution] * 3,
    *[elements.normalisation] * 2,
    *[elements.elementwise] * 2,
    *[residual] * 2,
    images.pool,
    images.excitation,
    images.enlarge,
    images.patches,
    elements.rearrangement,
    sequences.attention,
    sequences.perceptron,
)
OF_SIGNALS: tuple[Maker, ...] = (
    *[images.convolution] * 3,
    elements.normalisation,
    elements.elementwise,
    images.pool,
    residual,
    elements.rearrangement,
    sequences.attention,
    sequences.recurrence,
    sequences.state_space,
    images.enlarge,
    sequences.perceptron,
)
OF_VOLUMES: tuple[Maker, ...] = (
    *[images.convolution] * 2,
    elements.normalisation,
    elements.elementwise,
    images.pool,
    residual,
    elements.rearrangement,
    images.enlarge,
)
OF_SEQUENCES: tuple[Maker, ...] = (
    *[sequences.attention] * 2,
    *[sequences.perceptron] * 2,
    *[elements.normalisation] * 2,
    sequences.recurrence,
    sequences.state_space,
    sequences.experts,
    elements.rearrangement,
    images.convolution,
    residual,
)
