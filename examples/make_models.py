"""Regenerate the example models from JAX: ``pip install jax && python examples/make_models.py``.

Weights are parameters, so the files stay small; ``tpuc run`` fills them with random numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp

HERE = Path(__file__).parent
EMBED, HEADS, HIDDEN, TOKENS, BATCH = 768, 12, 3072, 1024, 2


def layer_norm(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """Normalise rows of x [.., EMBED]."""
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + shift


def attention(x: jax.Array, qkv_w: jax.Array, out_w: jax.Array) -> jax.Array:
    """Causal multi-head attention over x [batch, tokens, EMBED]."""
    batch, tokens, _ = x.shape
    split = jnp.split(x @ qkv_w, 3, axis=-1)
    q, k, v = (p.reshape(batch, tokens, HEADS, -1).transpose(0, 2, 1, 3) for p in split)
    scores = q @ k.transpose(0, 1, 3, 2) / 8
    mask = jnp.tril(jnp.ones((tokens, tokens), bool))
    probabilities = jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1)
    mixed = (probabilities @ v).transpose(0, 2, 1, 3).reshape(batch, tokens, EMBED)
    return mixed @ out_w


def transformer_block(
    x: jax.Array,
    norm1: tuple[jax.Array, jax.Array],
    qkv_w: jax.Array,
    out_w: jax.Array,
    norm2: tuple[jax.Array, jax.Array],
    up: tuple[jax.Array, jax.Array],
    down: tuple[jax.Array, jax.Array],
) -> jax.Array:
    """One GPT-2 small block, pre-norm."""
    x = x + attention(layer_norm(x, *norm1), qkv_w, out_w)
    hidden = jax.nn.gelu(layer_norm(x, *norm2) @ up[0] + up[1])
    return x + hidden @ down[0] + down[1]


def mlp(x: jax.Array, w1: jax.Array, b1: jax.Array, w2: jax.Array, b2: jax.Array) -> jax.Array:
    """Two dense layers with relu."""
    return jax.nn.relu(x @ w1 + b1) @ w2 + b2


def dot_bias_relu(x: jax.Array, w: jax.Array, b: jax.Array) -> jax.Array:
    """The smallest interesting kernel."""
    return jnp.maximum(x @ w + b, 0)


def array(*dims: int) -> jax.ShapeDtypeStruct:
    """An f32 argument."""
    return jax.ShapeDtypeStruct(dims, jnp.float32)


def write(name: str, function: Callable[..., jax.Array], *args: object) -> None:
    """Lower `function` and write its HLO text, source locations left out."""
    text = jax.jit(function).lower(*args).compiler_ir("hlo").as_hlo_text()
    text = re.sub(r", metadata=\{[^}]*\}", "", text)
    (HERE / f"{name}.hlo").write_text(text)


def main() -> None:
    """Write all examples."""
    norm = (array(EMBED), array(EMBED))
    write(
        "transformer_block", transformer_block, array(BATCH, TOKENS, EMBED),
        norm, array(EMBED, 3 * EMBED), array(EMBED, EMBED), norm,
        (array(EMBED, HIDDEN), array(HIDDEN)), (array(HIDDEN, EMBED), array(EMBED)),
    )  # fmt: skip
    write(
        "mlp", mlp, array(1024, 784), array(784, 2048), array(2048), array(2048, 1024), array(1024)
    )
    write("dot_bias_relu", dot_bias_relu, array(256, 512), array(512, 384), array(384))


if __name__ == "__main__":
    main()
