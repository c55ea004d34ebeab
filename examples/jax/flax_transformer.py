"""A small transformer in flax, trained with optax to continue a sequence.

    JAX_PLATFORMS=tpuc python examples/jax/flax_transformer.py    # needs flax and optax

The sequences count up by a step that must be read off the first two numbers.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

VOCABULARY, LENGTH, WIDTH = 16, 12, 32


class Block(nn.Module):
    """Attention and a feed-forward layer, each with a norm before and a residual around it."""

    @nn.compact
    def __call__(self, x):
        """Return [batch, length, WIDTH] for the same."""
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(2 * WIDTH)(nn.LayerNorm()(x))))


class Model(nn.Module):
    """Tokens to logits."""

    @nn.compact
    def __call__(self, tokens):
        """Return [batch, length, VOCABULARY] for [batch, length]."""
        places = self.param("places", nn.initializers.normal(0.1), (LENGTH, WIDTH))
        x = nn.Embed(VOCABULARY, WIDTH)(tokens) + places
        return nn.Dense(VOCABULARY)(nn.LayerNorm()(Block()(x)))


def batch(key, size=32):
    """Sequences [size, LENGTH + 1] that count up by a step of their own."""
    first, step = jax.random.randint(key, (2, size, 1), 0, VOCABULARY)
    return (first + step * jnp.arange(LENGTH + 1)) % VOCABULARY


def main(steps=30):
    """Train; return the losses."""
    model, optimiser = Model(), optax.adam(3e-3)
    params = jax.jit(model.init)(jax.random.key(0), jnp.zeros((1, LENGTH), int))
    state = jax.jit(optimiser.init)(params)

    def loss(params, rows):
        logits = model.apply(params, rows[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, rows[:, 1:]).mean()

    @jax.jit
    def step(params, state, key):
        value, slopes = jax.value_and_grad(loss)(params, batch(key))
        updates, state = optimiser.update(slopes, state)
        return optax.apply_updates(params, updates), state, value

    losses = []
    for key in jax.random.split(jax.random.key(1), steps):
        params, state, value = step(params, state, key)
        losses.append(float(value))
    return losses


if __name__ == "__main__":
    found = main()
    print(f"on {jax.devices()[0]}: loss {found[0]:.4f} -> {found[-1]:.4f}")
