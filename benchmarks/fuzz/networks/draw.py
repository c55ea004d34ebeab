"""What the layers of a network are drawn from, and the parameters that they ask for."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import jax
import jax.numpy as jnp

Dims = tuple[int, ...]
Weights = Mapping[str, jax.Array]
Layer = Callable[[Weights, jax.Array], jax.Array]
T = TypeVar("T")


class NotApplicableError(Exception):
    """A layer that cannot follow what comes before it."""


@dataclass(frozen=True)
class Parameter:
    """An array of weights; `scale` is the deviation it is meant to have."""

    dims: Dims
    scale: float
    dtype: Any


@dataclass
class Draw:
    """One network in the making.

    `is_real` is whether arrays have the sizes of practice. `dtype` is what layers compute in.
    """

    rng: random.Random
    is_real: bool
    dtype: Any = jnp.float32
    weight_dtype: Any = jnp.float32
    parameters: dict[str, Parameter] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)

    def pick(self, *choices: T) -> T:
        """One of the choices; those that are named twice are twice as likely."""
        return self.rng.choice(choices)

    def sized(self, real: T, tiny: T) -> T:
        """What belongs to the size of the network."""
        return real if self.is_real else tiny

    def chance(self, probability: float) -> bool:
        """True that often."""
        return self.rng.random() < probability

    def parameter(self, dims: Dims, scale: float | None = None) -> str:
        """The name of new weights; by default they keep the deviation of what they multiply."""
        name = f"p{len(self.parameters):02d}"
        deviation = 1 / math.sqrt(max(1, math.prod(dims[:-1]))) if scale is None else scale
        self.parameters[name] = Parameter(dims, deviation, self.weight_dtype)
        return name

    def label(self, text: str) -> None:
        """Say what was drawn."""
        self.labels.append(text)

    def weight(self, weights: Weights, name: str, like: jax.Array) -> jax.Array:
        """Weights in the type of what they meet."""
        return weights[name].astype(like.dtype)


Maker = Callable[[Draw, Dims], Layer]
"""Makes a layer for arrays of some dimensions, batch first and features last."""


def spatial(rank: int) -> str:
    """Letters for the dimensions between the batch and the features."""
    return "XYZ"[: rank - 2]


def activation(draw: Draw) -> tuple[str, Callable[[jax.Array], jax.Array]]:
    """A function of one element, with its name."""
    name = draw.pick(*_ACTIVATIONS)
    return name, _ACTIVATIONS[name]


_NAMED = (
    *("relu", "gelu", "silu", "leaky_relu", "elu", "hard_swish", "softplus"),
    *("relu6", "sigmoid", "celu", "selu", "mish", "squareplus"),
)
_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    **{name: getattr(jax.nn, name) for name in _NAMED},
    "gelu_exact": lambda x: jax.nn.gelu(x, approximate=False),
    "tanh": jnp.tanh,
    "squared_relu": lambda x: jnp.square(jax.nn.relu(x)),
}
