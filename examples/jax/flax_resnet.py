"""A small ResNet with batch normalisation in flax, trained with optax to tell textures apart.

    JAX_PLATFORMS=tpuc python examples/jax/flax_resnet.py    # needs flax and optax

Each image is stripes of some direction under noise; the direction is the class.
"""

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

CLASSES, SIZE = 4, 16


class ResidualBlock(nn.Module):
    """Two convolutions with batch norms, and a way around them."""

    features: int
    stride: int = 1

    @nn.compact
    def __call__(self, x, train):
        """Return [batch, height / stride, width / stride, features]."""
        strides = (self.stride, self.stride)
        y = nn.Conv(self.features, (3, 3), strides, use_bias=False)(x)
        y = nn.relu(nn.BatchNorm(not train, momentum=0.9)(y))
        y = nn.Conv(self.features, (3, 3), use_bias=False)(y)
        y = nn.BatchNorm(not train, momentum=0.9)(y)
        if x.shape != y.shape:
            x = nn.Conv(self.features, (1, 1), strides, use_bias=False)(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """Images to logits."""

    @nn.compact
    def __call__(self, images, train):
        """Return [batch, CLASSES] for [batch, SIZE, SIZE, 1]."""
        x = nn.relu(nn.Conv(8, (3, 3))(images))
        x = ResidualBlock(8)(x, train)
        x = ResidualBlock(16, 2)(x, train)
        x = nn.max_pool(x, (2, 2), (2, 2))
        return nn.Dense(CLASSES)(x.mean((1, 2)))


def batch(key, size=16):
    """Images [size, SIZE, SIZE, 1] and their classes."""
    kinds, phases, noise = jax.random.split(key, 3)
    kind = jax.random.randint(kinds, (size,), 0, CLASSES)
    angle = (kind * jnp.pi / CLASSES)[:, None, None]
    row, column = jnp.meshgrid(jnp.arange(SIZE), jnp.arange(SIZE), indexing="ij")
    along = jnp.cos(angle) * row + jnp.sin(angle) * column
    phase = jax.random.uniform(phases, (size, 1, 1), maxval=6.0)
    image = jnp.sin(1.5 * along + phase) + 0.3 * jax.random.normal(noise, (size, SIZE, SIZE))
    return image[..., None], kind


def main(steps=20):
    """Train; return the losses."""
    model, optimiser = ResNet(), optax.sgd(0.1, momentum=0.9)
    images, _ = batch(jax.random.key(0))
    variables = jax.jit(model.init, static_argnums=2)(jax.random.key(1), images, True)
    params, moments = variables["params"], variables["batch_stats"]
    state = optimiser.init(params)

    def loss(params, moments, images, kind):
        variables = {"params": params, "batch_stats": moments}
        logits, changed = model.apply(variables, images, True, mutable=["batch_stats"])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, kind)
        return losses.mean(), changed["batch_stats"]

    @jax.jit
    def step(params, moments, state, key):
        found, slopes = jax.value_and_grad(loss, has_aux=True)(params, moments, *batch(key))
        value, moments = found
        updates, state = optimiser.update(slopes, state)
        return optax.apply_updates(params, updates), moments, state, value

    losses = []
    for key in jax.random.split(jax.random.key(2), steps):
        params, moments, state, value = step(params, moments, state, key)
        losses.append(float(value))
    return losses


if __name__ == "__main__":
    found = main()
    print(f"on {jax.devices()[0]}: loss {found[0]:.4f} -> {found[-1]:.4f}")
