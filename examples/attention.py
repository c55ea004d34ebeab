"""A transformer layer in JAX, as StableHLO that says which line each operation comes from.

python examples/attention.py > examples/attention.mlir      (needs jax)
tpuc view examples/attention.mlir
"""

from pathlib import Path

import jax
import jax.numpy as jnp

BATCH, LENGTH, WIDTH, HEADS = 2, 512, 768, 12
Params = dict[str, jax.Array]


def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    """Layer norm."""
    with jax.named_scope("norm"):
        centred = x - x.mean(-1, keepdims=True)
        return scale * centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def attention(x: jax.Array, p: Params) -> jax.Array:
    """Causal self-attention of several heads."""
    with jax.named_scope("attention"):
        q, k, v = jnp.split(x @ p["qkv"], 3, -1)
        heads = (BATCH, LENGTH, HEADS, WIDTH // HEADS)
        q, k, v = (t.reshape(heads).transpose(0, 2, 1, 3) for t in (q, k, v))
        scores = q @ k.transpose(0, 1, 3, 2) / 8.0
        causal = jnp.tril(jnp.ones((LENGTH, LENGTH), bool))
        weights = jax.nn.softmax(jnp.where(causal, scores, -1e9))
        mixed = (weights @ v).transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH)
        return mixed @ p["out"]


def mlp(x: jax.Array, p: Params) -> jax.Array:
    """Two products around a GELU."""
    with jax.named_scope("mlp"):
        return jax.nn.gelu(x @ p["up"]) @ p["down"]


def layer(x: jax.Array, p: Params) -> jax.Array:
    """A layer of a transformer."""
    x = x + attention(norm(x, p["norm1"]), p)
    return x + mlp(norm(x, p["norm2"]), p)


def main() -> None:
    """Print the layer."""
    shapes = {
        "qkv": (WIDTH, 3 * WIDTH),
        "out": (WIDTH, WIDTH),
        "up": (WIDTH, 4 * WIDTH),
        "down": (4 * WIDTH, WIDTH),
        "norm1": (WIDTH,),
        "norm2": (WIDTH,),
    }
    params = {name: jax.ShapeDtypeStruct(dims, jnp.float32) for name, dims in shapes.items()}
    x = jax.ShapeDtypeStruct((BATCH, LENGTH, WIDTH), jnp.float32)
    text = jax.jit(layer).lower(x, params).as_text(debug_info=True)
    print(text.replace(str(Path(__file__).resolve()), "examples/attention.py"), end="")


if __name__ == "__main__":
    main()
