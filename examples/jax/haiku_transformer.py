"""A small transformer in Haiku, trained to reverse sequences.

JAX_PLATFORMS=tpuc python examples/jax/haiku_transformer.py    # needs dm-haiku and optax
"""

import haiku as hk
import jax
import jax.numpy as jnp
import optax

VOCABULARY, LENGTH, WIDTH, LAYERS = 8, 8, 32, 2


def network(tokens):
    """Logits [batch, LENGTH, VOCABULARY] for tokens [batch, LENGTH]."""
    places = hk.get_parameter("places", (LENGTH, WIDTH), init=hk.initializers.RandomNormal(0.1))
    x = hk.Embed(VOCABULARY, WIDTH)(tokens) + places
    scale = hk.initializers.VarianceScaling(2 / LAYERS)
    for _ in range(LAYERS):
        y = hk.LayerNorm(-1, True, True)(x)
        x = x + hk.MultiHeadAttention(2, WIDTH // 2, w_init=scale)(y, y, y)
        y = hk.LayerNorm(-1, True, True)(x)
        x = x + hk.nets.MLP([2 * WIDTH, WIDTH], activation=jax.nn.gelu)(y)
        x = hk.dropout(hk.next_rng_key(), 0.1, x)
    return hk.Linear(VOCABULARY)(hk.LayerNorm(-1, True, True)(x))


def main(steps=30):
    """Train; return the losses."""
    model, optimiser = hk.transform(network), optax.adamw(5e-3)
    params = model.init(jax.random.key(0), jnp.zeros((1, LENGTH), int))
    state = optimiser.init(params)

    def loss(params, key):
        tokens_key, dropout_key = jax.random.split(key)
        tokens = jax.random.randint(tokens_key, (32, LENGTH), 0, VOCABULARY)
        logits = model.apply(params, dropout_key, tokens)
        wanted = tokens[:, ::-1]
        return optax.softmax_cross_entropy_with_integer_labels(logits, wanted).mean()

    @jax.jit
    def step(params, state, key):
        value, slopes = jax.value_and_grad(loss)(params, key)
        updates, state = optimiser.update(slopes, state, params)
        return optax.apply_updates(params, updates), state, value

    losses = []
    for key in jax.random.split(jax.random.key(1), steps):
        params, state, value = step(params, state, key)
        losses.append(float(value))
    return losses


if __name__ == "__main__":
    found = main()
    print(f"on {jax.devices()[0]}: loss {found[0]:.4f} -> {found[-1]:.4f}")
