"""Training whose learning rate ends before the loop does, in JAX, as StableHLO with source lines.

python examples/diverging.py > examples/diverging.mlir      (needs jax)
tpuc debug examples/diverging.mlir
"""

from pathlib import Path

import jax
import jax.numpy as jnp

ROWS, WIDTH, CLASSES = 512, 256, 128
STEPS, PLANNED = 20, 12


def loss(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Squared error of one layer."""
    return ((jnp.tanh(x @ w) - y) ** 2).mean()


def train(w: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    """Gradient descent; the rate falls to zero at step `PLANNED`."""

    def step(number: int, w: jax.Array) -> jax.Array:
        rate = 0.1 * jnp.sqrt(1.0 - number / PLANNED)
        return w - rate * jax.grad(loss)(w, x, y)

    return jax.lax.fori_loop(0, STEPS, step, w)


def main() -> None:
    """Print the program."""
    shapes = ((WIDTH, CLASSES), (ROWS, WIDTH), (ROWS, CLASSES))
    arguments = [jax.ShapeDtypeStruct(dims, jnp.float32) for dims in shapes]
    text = jax.jit(train).lower(*arguments).as_text(debug_info=True)
    print(text.replace(str(Path(__file__).resolve()), "examples/diverging.py"), end="")


if __name__ == "__main__":
    main()
