"""A training step of a language model on a slice, exported from JAX without any device.

    python examples/jax/sharded_training_step.py gpt2 4x2 32 > gpt2.mlir       # mesh data x model, batch
    tpuc estimate gpt2.mlir --target v5e:2x2,v5e:4x2,v5e:4x4
    python examples/jax/sharded_training_step.py llama-70b 35x16x16 8960 > llama.mlir   # 35 copies of 16 x 16

Weights and the state of Adam are cut over `data` (FSDP) and over `model` (tensor parallel), the batch over
`data` and the copies of all that, activations between layers along the sequence over `model`. Layers are
a scan, computed again for their gradients. Weights are kept in f32 and used in bf16.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P


class Config(NamedTuple):
    """Sizes of a decoder; `kv_heads` are shared by as many queries each."""

    layers: int
    width: int
    hidden: int
    heads: int
    kv_heads: int
    vocabulary: int
    sequence: int


CONFIGS = {
    "gpt2": Config(12, 768, 3072, 12, 12, 50304, 1024),
    "llama-7b": Config(32, 4096, 11008, 32, 32, 32000, 2048),
    "llama-70b": Config(80, 8192, 28672, 64, 8, 32000, 2048),
    "tiny": Config(2, 64, 128, 4, 2, 256, 32),
}
State = dict[str, jax.Array]


def weights(c: Config) -> dict[str, tuple[tuple[int, ...], P]]:
    """Each weight's dimensions, layers first, and how it is cut."""
    head = c.width // c.heads
    rows, columns = P(None, "data", "model"), P(None, "model", "data")
    return {
        "embedding": ((c.vocabulary, c.width), P("model", "data")),
        "q": ((c.layers, c.width, c.width), rows),
        "k": ((c.layers, c.width, c.kv_heads * head), rows),
        "v": ((c.layers, c.width, c.kv_heads * head), rows),
        "out": ((c.layers, c.width, c.width), columns),
        "gate": ((c.layers, c.width, c.hidden), rows),
        "up": ((c.layers, c.width, c.hidden), rows),
        "down": ((c.layers, c.hidden, c.width), columns),
        "norm1": ((c.layers, c.width), P()),
        "norm2": ((c.layers, c.width), P()),
    }


def normalised(x: jax.Array, scale: jax.Array) -> jax.Array:
    """RMS norm in f32."""
    f = x.astype(jnp.float32)
    return (f * jax.lax.rsqrt((f * f).mean(-1, keepdims=True) + 1e-5) * scale).astype(x.dtype)


def layer(c: Config, cut: Any, x: jax.Array, w: State) -> tuple[jax.Array, None]:
    """One decoder layer on [batch, sequence, width]."""
    head, group = c.width // c.heads, c.heads // c.kv_heads
    w = {name: value.astype(jnp.bfloat16) for name, value in w.items()}
    h = cut(normalised(x, w["norm1"]), "data", None, None)
    b, s, _ = h.shape
    q = cut((h @ w["q"]).reshape(b, s, c.kv_heads, group, head), "data", None, "model")
    k = (h @ w["k"]).reshape(b, s, c.kv_heads, head)
    v = (h @ w["v"]).reshape(b, s, c.kv_heads, head)
    scores = jnp.einsum("bqkgd,bskd->bkgqs", q, k, preferred_element_type=jnp.float32)
    scores = jnp.where(jnp.tri(s, dtype=bool), scores / head**0.5, -1e9)
    mixed = jnp.einsum("bkgqs,bskd->bqkgd", jax.nn.softmax(scores).astype(v.dtype), v)
    mixed = cut(mixed.reshape(b, s, c.width), "data", None, "model")
    x = cut(x + mixed @ w["out"], "data", "model", None)
    h = cut(normalised(x, w["norm2"]), "data", None, None)
    h = cut(jax.nn.silu(h @ w["gate"]) * (h @ w["up"]), "data", None, "model")
    return cut(x + h @ w["down"], "data", "model", None), None


def loss(c: Config, cut: Any, w: State, tokens: jax.Array) -> jax.Array:
    """The mean cross entropy of each next token."""
    table = w["embedding"].astype(jnp.bfloat16)
    x = cut(table[tokens[:, :-1]], "data", "model", None)
    stacked = {name: value for name, value in w.items() if name != "embedding"}
    x, _ = jax.lax.scan(jax.checkpoint(partial(layer, c, cut)), x, stacked)
    logits = cut(jnp.einsum("bsd,vd->bsv", x, table), "data", None, "model").astype(jnp.float32)
    top = jax.nn.logsumexp(logits, -1)
    own = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return (top - own).mean()


def step(c: Config, cut: Any, w: State, m: State, v: State, tokens: jax.Array) -> Any:
    """One step of Adam; weights and its two moments are given back in place."""
    value, grads = jax.value_and_grad(partial(loss, c, cut))(w, tokens)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
    v = jax.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, v, grads)
    w = jax.tree.map(lambda w, m, v: w - 1e-3 * m / (jnp.sqrt(v) + 1e-8), w, m, v)
    return w, m, v, value


def exported(name: str, data: int, model: int, batch: int, copies: int = 1) -> str:
    """The step's StableHLO for a mesh of data x model devices, or of so many copies of it."""
    c = CONFIGS[name]
    names, sizes = ("copies", "data", "model"), (copies, data, model)
    mesh = AbstractMesh(sizes, names) if copies > 1 else AbstractMesh(sizes[1:], names[1:])
    batch_axes = ("copies", "data") if copies > 1 else "data"

    def cut(x: jax.Array, *axes: str | None) -> jax.Array:
        placed = (batch_axes if axis == "data" else axis for axis in axes)
        return jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P(*placed)))

    state = {
        key: jax.ShapeDtypeStruct(dims, jnp.float32, sharding=NamedSharding(mesh, spec))
        for key, (dims, spec) in weights(c).items()
    }
    rows = NamedSharding(mesh, P(batch_axes))
    tokens = jax.ShapeDtypeStruct((batch, c.sequence + 1), jnp.int32, sharding=rows)
    places = jax.tree.map(lambda leaf: leaf.sharding, state)
    whole = NamedSharding(mesh, P())
    run = jax.jit(
        partial(step, c, cut), donate_argnums=(0, 1, 2), out_shardings=(places,) * 3 + (whole,)
    )
    traced = run.trace(state, state, state, tokens)
    return str(traced.lower(lowering_platforms=("tpu",)).as_text())


if __name__ == "__main__":
    model_name, shape, examples = sys.argv[1:]
    *more, data_size, model_size = (int(size) for size in shape.split("x"))
    print(exported(model_name, data_size, model_size, int(examples), *more))
