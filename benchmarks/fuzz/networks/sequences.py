"""Layers of sequences: attention, recurrences, state spaces, experts."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fuzz.networks.draw import (
    Dims,
    Draw,
    Layer,
    NotApplicableError,
    Weights,
    activation,
)


def attention(draw: Draw, dims: Dims) -> Layer:
    """Self-attention over all positions: causal, rotated, biased, of one or many heads of keys."""
    features, length = dims[-1], math.prod(dims[1:-1])
    if length > draw.sized(4096, 300):
        raise NotApplicableError
    size = draw.sized(draw.pick(32, 64, 128), draw.pick(4, 8))
    heads = max(1, features // size)
    shared = draw.pick(heads, heads, 1)
    is_causal, is_rotated = draw.chance(0.5), draw.chance(0.3)
    style = draw.pick("einsum", "matmul")
    q, o = draw.parameter((features, heads * size)), draw.parameter((heads * size, features))
    k, v = (draw.parameter((features, shared * size)) for _ in range(2))
    has_bias = draw.chance(0.2) and length <= 1024
    bias = draw.parameter((heads, length, length), 0.1) if has_bias else None
    draw.label(f"attention {heads}/{shared} x {size} of {length} {style}{' causal' * is_causal}")

    def scores(queries: jax.Array, keys: jax.Array) -> jax.Array:
        if style == "einsum":
            return jnp.einsum("bqhd,bkhd->bhqk", queries, keys)
        return queries.transpose(0, 2, 1, 3) @ keys.transpose(0, 2, 3, 1)

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        rows = x.reshape(x.shape[0], length, features)

        def projected(name: str, count: int) -> jax.Array:
            y = rows @ draw.weight(weights, name, x)
            return y.reshape(*rows.shape[:2], count, size)

        queries, keys, values = projected(q, heads), projected(k, shared), projected(v, shared)
        if is_rotated:
            queries, keys = _rotated(queries), _rotated(keys)
        keys, values = (jnp.repeat(y, heads // shared, 2) for y in (keys, values))
        s = (scores(queries, keys) * size**-0.5).astype(jnp.float32)
        if bias is not None:
            s = s + weights[bias].astype(jnp.float32)
        if is_causal:
            s = jnp.where(jnp.tril(jnp.ones((length, length), bool)), s, -1e9)
        a = jax.nn.softmax(s, -1).astype(x.dtype)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", a, values).reshape(*rows.shape[:2], heads * size)
        return (rows + mixed @ draw.weight(weights, o, x)).reshape(x.shape)

    return layer


def _rotated(x: jax.Array) -> jax.Array:
    """Pairs of features turned by an angle of their position."""
    length, size = x.shape[1], x.shape[-1]
    angles = jnp.arange(length)[:, None] * 1e4 ** (-jnp.arange(0, size, 2) / size)
    sine, cosine = jnp.sin(angles)[None, :, None], jnp.cos(angles)[None, :, None]
    a, b = jnp.split(x.astype(jnp.float32), 2, -1)
    return jnp.concatenate([a * cosine - b * sine, a * sine + b * cosine], -1).astype(x.dtype)


def perceptron(draw: Draw, dims: Dims) -> Layer:
    """Two products with something between them, gated or not."""
    features = dims[-1]
    inner = draw.pick(1, 2, 4) * features
    is_gated = draw.chance(0.5)
    first, second = draw.parameter((features, inner)), draw.parameter((inner, features))
    gate = draw.parameter((features, inner)) if is_gated else None
    name, act = activation(draw)
    draw.label(f"mlp {inner} {name}{' gated' * is_gated}")

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        hidden = act(x @ draw.weight(weights, first, x))
        if gate is not None:
            hidden = hidden * (x @ draw.weight(weights, gate, x))
        return x + hidden @ draw.weight(weights, second, x)

    return layer


_GATES = {"lstm": 4, "gru": 3, "gated linear": 2, "independent": 1}


def recurrence(draw: Draw, dims: Dims) -> Layer:
    """A scan over time."""
    if len(dims) != 3:
        raise NotApplicableError
    features = dims[-1]
    kind = draw.pick(*_GATES)
    inputs = draw.parameter((features, _GATES[kind] * features))
    is_matrix = kind in ("lstm", "gru")
    count = _GATES[kind] * features
    states = draw.parameter((features, count)) if is_matrix else draw.parameter((features,), 0.5)
    is_reversed = draw.chance(0.3)
    draw.label(f"{kind} of {dims[1]}{' reversed' * is_reversed}")
    step = _STEPS[kind]

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        rows = (x @ draw.weight(weights, inputs, x)).swapaxes(0, 1)
        u = draw.weight(weights, states, x)
        zero = jnp.zeros((x.shape[0], features), x.dtype)
        begin = (zero, zero) if kind == "lstm" else (zero,)
        _, found = lax.scan(lambda s, z: step(s, z, u), begin, rows, reverse=is_reversed)
        return found.swapaxes(0, 1)

    return layer


State = tuple[jax.Array, ...]


def _lstm(state: State, z: jax.Array, u: jax.Array) -> tuple[State, jax.Array]:
    h, c = state
    i, f, g, o = jnp.split(z + h @ u, 4, -1)
    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def _gru(state: State, z: jax.Array, u: jax.Array) -> tuple[State, jax.Array]:
    (h,) = state
    (zr, zu, zn), (ur, uu, un) = jnp.split(z, 3, -1), jnp.split(h @ u, 3, -1)
    reset, update = jax.nn.sigmoid(zr + ur), jax.nn.sigmoid(zu + uu)
    h = (1 - update) * jnp.tanh(zn + reset * un) + update * h
    return (h,), h


def _gated_linear(state: State, z: jax.Array, u: jax.Array) -> tuple[State, jax.Array]:
    gate, value = jnp.split(z, 2, -1)
    a = jax.nn.sigmoid(gate + u)
    h = a * state[0] + (1 - a) * value
    return (h,), h


def _independent(state: State, z: jax.Array, u: jax.Array) -> tuple[State, jax.Array]:
    h = jax.nn.relu(z + u * state[0])
    return (h,), h


_STEPS = {"lstm": _lstm, "gru": _gru, "gated linear": _gated_linear, "independent": _independent}


def state_space(draw: Draw, dims: Dims) -> Layer:
    """A decaying sum over time, by an associative scan or by running totals."""
    if len(dims) != 3:
        raise NotApplicableError
    kernel = draw.parameter((dims[-1], dims[-1]))
    how = draw.pick("associative", "totals")
    draw.label(f"state space {how}")

    def combined(a: State, b: State) -> State:
        return a[0] * b[0], b[0] * a[1] + b[1]

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        wide = x.astype(jnp.float32)
        decay = jax.nn.sigmoid((x @ draw.weight(weights, kernel, x)).astype(jnp.float32))
        if how == "associative":
            return lax.associative_scan(combined, (decay, wide), axis=1)[1].astype(x.dtype)
        log = jnp.cumsum(jnp.log(decay + 0.5) * 0.1, 1)
        total = jnp.cumsum(wide * jnp.exp(-log), 1) * jnp.exp(log)
        return (total / x.shape[1]).astype(x.dtype)

    return layer


def experts(draw: Draw, dims: Dims) -> Layer:
    """A mixture of experts: all of them for all rows, or some rows each."""
    features, rows = dims[-1], math.prod(dims[:-1])
    count, taken = draw.pick(4, 8), draw.pick(1, 2)
    router = draw.parameter((features, count))
    first = draw.parameter((count, features, 2 * features), features**-0.5)
    second = draw.parameter((count, 2 * features, features), (2 * features) ** -0.5)
    name, act = activation(draw)
    is_dense = draw.chance(0.5)
    draw.label(f"{taken} of {count} experts {name}{' dense' * is_dense}")
    room = max(1, 2 * rows * taken // count)

    def dense(weights: Weights, x: jax.Array, chosen: jax.Array, share: jax.Array) -> jax.Array:
        w = (chosen * share[..., None]).sum(1).astype(x.dtype)
        hidden = act(jnp.einsum("tc,ech->teh", x, draw.weight(weights, first, x)))
        out = jnp.einsum("teh,ehc->tec", hidden, draw.weight(weights, second, x))
        return jnp.einsum("tec,te->tc", out, w)

    def routed(weights: Weights, x: jax.Array, chosen: jax.Array, share: jax.Array) -> jax.Array:
        flat = chosen.reshape(rows * taken, count)
        place = (jnp.cumsum(flat, 0) * flat - 1).max(-1).astype(jnp.int32)
        expert, is_held = flat.argmax(-1), place < room
        slots = jnp.zeros((count, room, features), x.dtype)
        repeated = jnp.repeat(x, taken, 0)
        slots = slots.at[expert, jnp.where(is_held, place, room)].add(repeated, mode="drop")
        hidden = act(jnp.einsum("ekc,ech->ekh", slots, draw.weight(weights, first, x)))
        out = jnp.einsum("ekh,ehc->ekc", hidden, draw.weight(weights, second, x))
        found = out[expert, jnp.clip(place, 0, room - 1)]
        weighted = found * (is_held * share.reshape(-1))[:, None].astype(x.dtype)
        return weighted.reshape(rows, taken, features).sum(1)

    def layer(weights: Weights, x: jax.Array) -> jax.Array:
        flat = x.reshape(rows, features)
        logits = (flat @ draw.weight(weights, router, x)).astype(jnp.float32)
        share, numbers = lax.top_k(jax.nn.softmax(logits, -1), taken)
        chosen = jax.nn.one_hot(numbers, count, dtype=jnp.float32)
        mixed = (dense if is_dense else routed)(weights, flat, chosen, share)
        return (flat + mixed).reshape(x.shape)

    return layer
