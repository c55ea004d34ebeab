"""A diffusion model: a small U-Net in equinox learns to tell noise from images of discs.

    JAX_PLATFORMS=tpuc python examples/jax/equinox_diffusion.py    # needs equinox and optax

Images are mixed with noise to a random degree; the network is given the mixture and the degree, and
says what the noise was.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

SIZE, FEATURES = 16, 8


class Stage(eqx.Module):
    """A convolution with a group norm, shifted by what the time says."""

    convolution: eqx.nn.Conv2d
    norm: eqx.nn.GroupNorm
    time: eqx.nn.Linear

    def __init__(self, inputs, outputs, key):
        keys = jax.random.split(key)
        self.convolution = eqx.nn.Conv2d(inputs, outputs, 3, padding=1, key=keys[0])
        self.norm = eqx.nn.GroupNorm(4, outputs)
        self.time = eqx.nn.Linear(FEATURES, outputs, key=keys[1])

    def __call__(self, x, time):
        """Return [outputs, height, width] for [inputs, height, width]."""
        return jax.nn.silu(self.norm(self.convolution(x)) + self.time(time)[:, None, None])


class UNet(eqx.Module):
    """Down to half the size and up again, with a way across."""

    down: Stage
    middle: Stage
    smaller: eqx.nn.Conv2d
    larger: eqx.nn.ConvTranspose2d
    up: Stage
    out: eqx.nn.Conv2d

    def __init__(self, key):
        keys = jax.random.split(key, 6)
        self.down = Stage(1, FEATURES, keys[0])
        self.smaller = eqx.nn.Conv2d(FEATURES, 2 * FEATURES, 2, 2, key=keys[1])
        self.middle = Stage(2 * FEATURES, 2 * FEATURES, keys[2])
        self.larger = eqx.nn.ConvTranspose2d(2 * FEATURES, FEATURES, 2, 2, key=keys[3])
        self.up = Stage(2 * FEATURES, FEATURES, keys[4])
        self.out = eqx.nn.Conv2d(FEATURES, 1, 1, key=keys[5])

    def __call__(self, image, degree):
        """Return the noise in an image [1, SIZE, SIZE]."""
        waves = degree * 2.0 ** jnp.arange(FEATURES // 2)
        time = jnp.concatenate([jnp.sin(waves), jnp.cos(waves)])
        here = self.down(image, time)
        there = self.larger(self.middle(self.smaller(here), time))
        return self.out(self.up(jnp.concatenate([here, there]), time))


def discs(key, size):
    """Images [size, 1, SIZE, SIZE] of a disc each, -1 and 1."""
    places, radii = jax.random.split(key)
    row, column = jax.random.uniform(places, (2, size, 1, 1), minval=4, maxval=SIZE - 4)
    radius = jax.random.uniform(radii, (size, 1, 1), minval=2, maxval=4)
    rows, columns = jnp.meshgrid(jnp.arange(SIZE), jnp.arange(SIZE), indexing="ij")
    inside = (rows - row) ** 2 + (columns - column) ** 2 < radius**2
    return jnp.where(inside, 1.0, -1.0)[:, None]


def loss(model, key, size=16):
    """The mean square error of what the model takes for the noise."""
    images, noises, degrees = jax.random.split(key, 3)
    noise = jax.random.normal(noises, (size, 1, SIZE, SIZE))
    degree = jax.random.uniform(degrees, (size,), maxval=jnp.pi / 2)
    share = degree[:, None, None, None]
    mixed = jnp.cos(share) * discs(images, size) + jnp.sin(share) * noise
    return jnp.mean((jax.vmap(model)(mixed, degree) - noise) ** 2)


def main(steps=20):
    """Train; return the losses."""
    model, optimiser = UNet(jax.random.key(0)), optax.adam(1e-2)
    state = optimiser.init(eqx.filter(model, eqx.is_array))

    @eqx.filter_jit
    def step(model, state, key):
        value, slopes = eqx.filter_value_and_grad(loss)(model, key)
        updates, state = optimiser.update(slopes, state)
        return eqx.apply_updates(model, updates), state, value

    losses = []
    for key in jax.random.split(jax.random.key(1), steps):
        model, state, value = step(model, state, key)
        losses.append(float(value))
    return losses


if __name__ == "__main__":
    found = main()
    print(f"on {jax.devices()[0]}: loss {found[0]:.4f} -> {found[-1]:.4f}")
