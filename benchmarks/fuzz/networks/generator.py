"""A random network by its seed, as JAX lowers it: forward, or a step of its training."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.fuzz.networks import images, stack
from benchmarks.fuzz.networks.draw import Dims, Draw, Layer, Maker, Weights
from benchmarks.fuzz.networks.training import DENSE, LOSSES, STEPS, Moments, clipped
from benchmarks.fuzz.traced.generator import Texts, lowered_call

_KINDS: dict[str, tuple[Maker, ...]] = {
    "image": stack.OF_IMAGES,
    "signal": stack.OF_SIGNALS,
    "volume": stack.OF_VOLUMES,
    "sequence": stack.OF_SEQUENCES,
    "tokens": stack.OF_SEQUENCES,
}


@dataclass(frozen=True)
class _Network:
    """A network whose outputs are f32 numbers for each class, or for each word of its vocabulary."""

    draw: Draw
    kind: str
    layers: list[Layer]
    head: str
    table: str | None
    is_dense: bool
    is_repeated: bool
    """Whether layers are computed again for the gradient."""

    def outputs(self, weights: Weights, x: jax.Array) -> jax.Array:
        """Outputs for a batch."""
        scaled = {n: weights[n] * p.scale for n, p in self.draw.parameters.items()}
        y = x if self.table is None else scaled[self.table][x]
        y = y.astype(self.draw.dtype)
        for layer in self.layers:
            y = (jax.checkpoint(layer) if self.is_repeated else layer)(scaled, y)
        if not self.is_dense:
            y = y.mean(tuple(range(1, y.ndim - 1)))
        return (y @ self.draw.weight(scaled, self.head, y)).astype(jnp.float32)


def generate(seed: int, real: bool = False) -> Texts:
    """The network of a seed, of the size of practice where it is `real`."""
    draw = Draw(random.Random(f"network {seed}"), real)
    draw.dtype = draw.pick(jnp.float32, jnp.bfloat16, jnp.bfloat16)
    draw.weight_dtype = draw.pick(draw.dtype, jnp.float32)
    kind = draw.pick(
        "image", "image", "image", "signal", "volume", "sequence", "sequence", "tokens"
    )
    dims = _dims(draw, kind)
    loss = draw.pick(*LOSSES)
    network = _network(draw, kind, dims, loss)
    weights = {name: jax.ShapeDtypeStruct(p.dims, p.dtype) for name, p in draw.parameters.items()}
    is_tokens = kind == "tokens"
    x = jax.ShapeDtypeStruct(dims[:2], jnp.int32) if is_tokens else _floats(draw, dims)
    kinds = ["tame"] * len(weights)
    last = "small" if is_tokens else "tame"
    if draw.chance(0.35):
        draw.label("forward")
        return lowered_call(network.outputs, (weights, x), [*kinds, last], draw.labels)
    step = _training(draw, network, loss)
    moments = {n: (_moment(w), _moment(w)) for n, w in weights.items()}
    outputs = jax.eval_shape(network.outputs, weights, x)
    labels = jax.ShapeDtypeStruct(outputs.shape[:-1], jnp.int32)
    kinds += ["tame", "positive"] * len(weights)
    return lowered_call(step, (weights, moments, x, labels), [*kinds, last, "small"], draw.labels)


def _moment(weight: Any) -> Any:
    return jax.ShapeDtypeStruct(weight.shape, jnp.float32)


def _floats(draw: Draw, dims: Dims) -> Any:
    return jax.ShapeDtypeStruct(dims, draw.pick(jnp.float32, draw.dtype))


def _dims(draw: Draw, kind: str) -> Dims:
    """Batch, positions, features."""
    pick = draw.pick
    if kind == "image":
        if not draw.is_real:
            return (2, pick(8, 9, 12), pick(8, 11), pick(3, 8, 16))
        side = pick(64, 96, 112, 128, 224)
        shape = pick((side, side), (side, side), (pick(60, 100), pick(72, 128, 200)))
        return (pick(8, 16, 32), *shape, pick(3, 3, 16, 32, 64))
    if kind == "signal":
        if not draw.is_real:
            return (2, pick(24, 33), pick(1, 8, 12))
        return (pick(8, 16), pick(1000, 4096, 8000, 16000), pick(1, 16, 64, 128))
    if kind == "volume":
        if not draw.is_real:
            return (1, 6, pick(6, 7), 8, pick(1, 4, 8))
        return (pick(1, 2, 4), pick(16, 32), pick(48, 64), pick(48, 64), pick(1, 8, 32))
    if not draw.is_real:
        return (2, pick(8, 13, 16), pick(8, 16, 24))
    return (pick(4, 8, 16), pick(128, 197, 256, 512, 1000), pick(256, 384, 512, 768))


def _network(draw: Draw, kind: str, dims: Dims, loss: str) -> _Network:
    draw.label(f"{kind} {dims} {jnp.dtype(draw.dtype).name}")
    classes = draw.sized(draw.pick(10, 100, 1000), 7)
    table = None
    if kind == "tokens":
        classes = draw.sized(draw.pick(1000, 8192, 32000), 37)
        table = draw.parameter((classes, dims[-1]), 1.0)
    layers: list[Layer] = []
    if kind in ("image", "signal", "volume") and dims[-1] < 8:
        layers, dims = stack.stacked(draw, dims, 1, (images.stem,))
    more, dims = stack.stacked(draw, dims, draw.rng.randint(3, 9), _KINDS[kind])
    head = draw.parameter((dims[-1], classes))
    is_dense = kind == "tokens" or loss in DENSE
    return _Network(draw, kind, layers + more, head, table, is_dense, draw.chance(0.2))


def _training(draw: Draw, network: _Network, loss: str) -> Any:
    """A step: weights, moments, inputs and labels to the loss, new weights and new moments."""
    optimizer = draw.pick(*STEPS)
    is_clipped = draw.chance(0.3)
    draw.label(f"{loss} {optimizer}{' clipped' * is_clipped}")
    judge, update = LOSSES[loss], STEPS[optimizer]

    def lost(weights: Weights, x: jax.Array, labels: jax.Array) -> jax.Array:
        return judge(network.outputs(weights, x), labels)

    def step(
        weights: Weights, moments: dict[str, Moments], x: jax.Array, labels: jax.Array
    ) -> tuple[jax.Array, dict[str, jax.Array], dict[str, Moments]]:
        found, gradients = jax.value_and_grad(lost)(weights, x, labels)
        if is_clipped:
            gradients = clipped(gradients)
        made, kept = {}, {}
        for name, w in weights.items():
            wide, gradient = w.astype(jnp.float32), gradients[name].astype(jnp.float32)
            new, kept[name] = update(wide, gradient, moments[name])
            made[name] = new.astype(w.dtype)
        return found, made, kept

    return step
