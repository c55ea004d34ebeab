"""Training in plain JAX: a small network learns a function of two variables.

    JAX_PLATFORMS=tpuc python examples/jax/mlp_train.py           # on an emulated v5e
    python -m tpuc.profile examples/jax/mlp_train.py              # and what its functions cost there

Nothing in it knows of tpuc: without the variable it runs wherever JAX does.
"""

from functools import partial

import jax
import jax.numpy as jnp

RATE = 0.1


def loss(params, x, y):
    """The mean square error of two layers."""
    hidden = jnp.tanh(x @ params["w"] + params["b"])
    return jnp.mean((hidden @ params["v"] - y) ** 2)


@partial(jax.jit, donate_argnums=0)
def step(params, x, y):
    """One step of gradient descent; the parameters are updated in place."""
    value, slopes = jax.value_and_grad(loss)(params, x, y)
    return jax.tree.map(lambda p, g: p - RATE * g, params, slopes), value


def main(steps=60):
    """Train; return the losses."""
    key = jax.random.key(0)
    w, v, points = jax.random.split(key, 3)
    params = {
        "w": jax.random.normal(w, (2, 64)),
        "b": jnp.zeros(64),
        "v": jax.random.normal(v, (64, 1)) / 8,
    }
    x = jax.random.uniform(points, (256, 2), minval=-1, maxval=1)
    y = jnp.sin(3 * x[:, :1]) * x[:, 1:]
    losses = []
    for _ in range(steps):
        params, value = step(params, x, y)
        losses.append(float(value))
    return losses


if __name__ == "__main__":
    found = main()
    print(f"on {jax.devices()[0]}: loss {found[0]:.4f} -> {found[-1]:.4f}")
