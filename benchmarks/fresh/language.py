"""Models of language: their training steps and what serves them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.layers import (
    adam,
    attend,
    cross_entropy,
    descend,
    layer_norm,
    named,
    rms_norm,
    split_heads,
    weights,
)
from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program(
    {"batch": 2, "tokens": 12, "masked": 3, "words": 37, "width": 16, "heads": 2},
    {"batch": 16, "tokens": 512, "masked": 76, "words": 30522, "width": 768, "heads": 12},
)
def masked_words(batch: int, tokens: int, masked: int, words: int, width: int, heads: int) -> Made:
    """BERT: two layers, masked words predicted by the table that embeds them, Adam."""
    shapes: dict[str, tuple[int, ...]] = {"table": (words, width), "place": (tokens, width)}
    for i in range(2):
        shapes |= {f"qkv{i}": (width, 3 * width), f"qb{i}": (3 * width,), f"out{i}": (width, width)}
        shapes |= {f"up{i}": (width, 4 * width), f"down{i}": (4 * width, width)}
        shapes |= {f"s{i}": (width,), f"t{i}": (width,)}
    count = len(shapes)

    def layer(x: Array, w: dict[str, Array], i: int, bias: Array) -> Array:
        parts = jnp.split(x @ w[f"qkv{i}"] + w[f"qb{i}"], 3, -1)
        y = attend(*(split_heads(part, heads) for part in parts), bias)
        x = layer_norm(x + y.reshape(x.shape) @ w[f"out{i}"], w[f"s{i}"], w[f"t{i}"])
        y = jax.nn.gelu(x @ w[f"up{i}"], approximate=False) @ w[f"down{i}"]
        return layer_norm(x + y, w[f"s{i}"], w[f"t{i}"])

    def step(
        ids: Array, length: Array, at: Array, labels: Array, *flat: Array
    ) -> tuple[Array, ...]:
        bias = jnp.where(jnp.arange(tokens) < length[:, None], 0, -1e9)[:, None, None]

        def loss(w: dict[str, Array]) -> Array:
            x = w["table"][ids] + w["place"]
            for i in range(2):
                x = layer(x, w, i, bias)
            chosen = jnp.take_along_axis(x, at[..., None], 1)
            return cross_entropy(chosen @ w["table"].T, labels).mean()

        return adam(loss, *(named(shapes, flat[i * count : (i + 1) * count]) for i in range(3)))

    squares = [Argument(a.dims, low=0.1) for a in weights(shapes)]
    data = [integers(batch, tokens, below=words), integers(batch, below=tokens)]
    data += [integers(batch, masked, below=tokens), integers(batch, masked, below=words)]
    return step, [*data, *weights(shapes), *weights(shapes), *squares]


@program(
    {"batch": 2, "long": 14, "short": 6, "words": 40, "width": 16, "heads": 2},
    {"batch": 16, "long": 512, "short": 114, "words": 32128, "width": 768, "heads": 12},
    3e-2,
)
def text_to_text(batch: int, long: int, short: int, words: int, width: int, heads: int) -> Made:
    """T5: biases by buckets of distances, an encoder and a decoder layer, gated networks."""
    shapes: dict[str, tuple[int, ...]] = {"table": (words, width), "head": (width, words)}
    shapes |= {"near": (32, heads), "past": (32, heads), "s": (width,)}
    for i in "edx":
        shapes |= {f"{n}{i}": (width, width) for n in "qkvo"}
    for i in "ed":
        shapes |= {f"a{i}": (width, 2048), f"b{i}": (width, 2048), f"c{i}": (2048, width)}

    def bucket(count: int, *, both: bool) -> Array:
        apart = jnp.arange(count) - jnp.arange(count)[:, None]
        sides = 16 if both else 32
        start = (apart > 0).astype(jnp.int32) * 16 if both else 0
        n = jnp.abs(apart) if both else jnp.maximum(-apart, 0)
        most = sides // 2
        far = most + (jnp.log(n / most + 1e-6) / jnp.log(128 / most) * (sides - most)).astype(int)
        return start + jnp.where(n < most, n, jnp.minimum(far, sides - 1))

    def heads_of(x: Array, w: Array) -> Array:
        return split_heads(x @ w.astype(x.dtype), heads)

    def mix(x: Array, y: Array, w: dict[str, Array], i: str, bias: Array | None) -> Array:
        z = rms_norm(x, w["s"])
        found = attend(
            heads_of(z, w[f"q{i}"]), heads_of(y, w[f"k{i}"]), heads_of(y, w[f"v{i}"]), bias
        )
        return x + found.reshape(x.shape) @ w[f"o{i}"].astype(x.dtype)

    def feed(x: Array, w: dict[str, Array], i: str) -> Array:
        z = rms_norm(x, w["s"])
        gate = jax.nn.gelu(z @ w[f"a{i}"].astype(z.dtype)) * (z @ w[f"b{i}"].astype(z.dtype))
        return x + gate @ w[f"c{i}"].astype(z.dtype)

    def step(source: Array, target: Array, *flat: Array) -> tuple[Array, dict[str, Array]]:
        def loss(w: dict[str, Array]) -> Array:
            table = w["table"].astype(jnp.bfloat16)
            x, y = table[source], table[jnp.pad(target[:, :-1], ((0, 0), (1, 0)))]
            near = w["near"][bucket(long, both=True)].transpose(2, 0, 1)
            x = feed(mix(x, rms_norm(x, w["s"]), w, "e", near), w, "e")
            past = w["past"][bucket(short, both=False)].transpose(2, 0, 1)
            causal = jnp.tril(jnp.ones((short, short), bool))
            y = mix(y, rms_norm(y, w["s"]), w, "d", jnp.where(causal, past, -1e9))
            y = feed(mix(y, rms_norm(x, w["s"]), w, "x", None), w, "d")
            logits = (rms_norm(y, w["s"]) @ w["head"].astype(y.dtype)).astype(jnp.float32)
            total = jax.nn.logsumexp(logits, -1)
            return (cross_entropy(logits, target) + 1e-4 * total**2).mean()

        return descend(loss, named(shapes, flat))

    data = [integers(batch, long, below=words), integers(batch, short, below=words)]
    return step, [*data, *weights(shapes)]


@program(
    {"tokens": 24, "experts": 4, "room": 16, "width": 16, "hidden": 32},
    {"tokens": 8192, "experts": 8, "room": 2560, "width": 1024, "hidden": 3584},
    3e-2,
)
def sorted_experts(tokens: int, experts: int, room: int, width: int, hidden: int) -> Made:
    """A mixture of experts, two of each token, tokens sorted to their expert's places; gradients."""

    def step(x: Array, gate: Array, up: Array, down: Array) -> tuple[Array, ...]:
        def loss(given: tuple[Array, ...]) -> Array:
            x, gate, up, down = given
            share = jax.nn.softmax(x.astype(jnp.float32) @ gate)
            best, which = lax.top_k(share, 2)
            best = best / best.sum(-1, keepdims=True)
            flat = which.reshape(-1)
            order = jnp.argsort(flat, stable=True)
            sizes = jnp.bincount(flat, length=experts)
            start = jnp.cumsum(sizes) - sizes
            rank = jnp.arange(2 * tokens) - start[flat[order]]
            place = jnp.where(rank < room, flat[order] * room + rank, experts * room)
            slots = (
                jnp.zeros((experts * room, width), x.dtype)
                .at[place]
                .set(x[order // 2], mode="drop")
            )
            y = jnp.einsum("erw,ewh->erh", slots.reshape(experts, room, width), up)
            y = jnp.einsum("erh,ehw->erw", jax.nn.silu(y), down).reshape(-1, width)
            back = jnp.where((rank < room)[:, None], y.at[place].get(mode="fill", fill_value=0), 0)
            scaled = back * best.reshape(-1)[order][:, None].astype(x.dtype)
            out = jnp.zeros_like(x).at[order // 2].add(scaled)
            balance = (share.mean(0) * sizes / tokens).sum() * experts
            return (out.astype(jnp.float32) ** 2).mean() + 0.01 * balance

        return jax.value_and_grad(loss)((x, gate, up, down))

    small = 0.02
    weight = [Argument((experts, width, hidden), "bfloat16", -small, small)]
    weight += [Argument((experts, hidden, width), "bfloat16", -small, small)]
    return step, [Argument((tokens, width), "bfloat16"), Argument((width, experts)), *weight]


@program(
    {"batch": 2, "drafted": 3, "words": 41},
    {"batch": 64, "drafted": 5, "words": 50257},
)
def drafts_checked(batch: int, drafted: int, words: int) -> Made:
    """Speculative decoding: drafts accepted by ratio of chances, one more drawn from what is left."""

    def check(
        mine: Array, theirs: Array, drafts: Array, luck: Array, dice: Array
    ) -> tuple[Array, Array]:
        p = jax.nn.softmax(mine.astype(jnp.float32) / 0.8)
        q = jax.nn.softmax(theirs.astype(jnp.float32) / 0.8)
        at = drafts[..., None]
        ratio = jnp.take_along_axis(p[:, :-1], at, -1) / jnp.take_along_axis(q, at, -1)
        accepted = jnp.cumprod((luck < ratio[..., 0]).astype(jnp.int32), 1).sum(1)
        rest = jnp.maximum(p - jnp.pad(q, ((0, 0), (0, 1), (0, 0))), 0)
        left = jnp.take_along_axis(rest, accepted[:, None, None], 1)[:, 0]
        total = jnp.cumsum(left, -1)
        drawn = (total < dice[:, None] * total[:, -1:]).sum(-1)
        known = jnp.pad(drafts, ((0, 0), (0, 1)))
        spot = jnp.arange(drafted + 1) == accepted[:, None]
        return jnp.where(spot, drawn[:, None], known), accepted

    logits = [Argument((batch, drafted + 1, words), "bfloat16", -4, 4)]
    logits += [Argument((batch, drafted, words), "bfloat16", -4, 4)]
    luck = [Argument((batch, drafted), low=0.0), Argument((batch,), low=0.0)]
    return check, [*logits, integers(batch, drafted, below=words), *luck]


@program(
    {"batch": 2, "pages": 10, "page": 4, "table": 3, "heads": 4, "groups": 2, "each": 8},
    {"batch": 32, "pages": 2200, "page": 16, "table": 64, "heads": 32, "groups": 8, "each": 128},
    3e-2,
)
def paged_keys(
    batch: int, pages: int, page: int, table: int, heads: int, groups: int, each: int
) -> Made:
    """Decoding of one token a row: keys and values lie in pages that a table names."""

    def decode(
        q: Array, k: Array, v: Array, keys: Array, values: Array, where: Array, length: Array
    ) -> tuple[Array, Array, Array]:
        block = jnp.take_along_axis(where, (length // page)[:, None], 1)[:, 0]
        keys = keys.at[block, length % page].set(k)
        values = values.at[block, length % page].set(v)
        own = keys[where].reshape(batch, table * page, groups, each)
        held = values[where].reshape(batch, table * page, groups, each)
        query = q.reshape(batch, groups, heads // groups, each)
        scores = jnp.einsum("bgrd,btgd->bgrt", query, own).astype(jnp.float32) / each**0.5
        is_seen = jnp.arange(table * page) <= length[:, None]
        share = jax.nn.softmax(jnp.where(is_seen[:, None, None], scores, -1e30))
        out = jnp.einsum("bgrt,btgd->bgrd", share.astype(q.dtype), held)
        return out.reshape(batch, heads * each), keys, values

    def real(*dims: int) -> Argument:
        return Argument(dims, "bfloat16")

    new = [real(batch, heads, each), real(batch, groups, each), real(batch, groups, each)]
    stores = [real(pages, page, groups, each)] * 2
    at = [integers(batch, table, below=pages), integers(batch, below=table * page)]
    return decode, [*new, *stores, *at]


@program(
    {"tokens": 12, "words": 37, "width": 16},
    {"tokens": 4096, "words": 128256, "width": 2048},
    3e-2,
)
def smoothed_labels(tokens: int, words: int, width: int) -> Made:
    """The loss of 128,256 words with smoothed labels, and its gradients."""

    def step(x: Array, head: Array, labels: Array) -> tuple[Array, tuple[Array, Array]]:
        def loss(given: tuple[Array, Array]) -> Array:
            logits = (given[0] @ given[1]).astype(jnp.float32)
            share = jax.nn.log_softmax(logits)
            wanted = jax.nn.one_hot(labels, words) * 0.9 + 0.1 / words
            return -(wanted * share).sum(-1).mean()

        return jax.value_and_grad(loss)((x, head))

    small = 0.03
    head = Argument((width, words), "bfloat16", -small, small)
    return step, [Argument((tokens, width), "bfloat16"), head, integers(tokens, below=words)]


@program(
    {"batch": 1, "tokens": 24, "reach": 6, "heads": 4, "groups": 2, "each": 8},
    {"batch": 1, "tokens": 4096, "reach": 1024, "heads": 16, "groups": 4, "each": 64},
    4e-2,
)
def reaching_back(batch: int, tokens: int, reach: int, heads: int, groups: int, each: int) -> Made:
    """Attention to the last so many tokens, keys turned by their places, a cap on scores; gradients."""

    def turn(x: Array) -> Array:
        speed = 10000.0 ** (-jnp.arange(0, each, 2) / each)
        angle = jnp.arange(tokens)[:, None] * speed
        cos, sin = jnp.cos(angle)[:, None], jnp.sin(angle)[:, None]
        even, odd = x[..., ::2].astype(jnp.float32), x[..., 1::2].astype(jnp.float32)
        both = jnp.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return both.reshape(x.shape).astype(x.dtype)

    def step(q: Array, k: Array, v: Array) -> tuple[Array, ...]:
        def loss(given: tuple[Array, Array, Array]) -> Array:
            query, key, value = turn(given[0]), turn(given[1]), given[2]
            key, value = (jnp.repeat(a, heads // groups, 2) for a in (key, value))
            scores = jnp.einsum("bqhd,bkhd->bhqk", query, key).astype(jnp.float32)
            scores = 50 * jnp.tanh(scores / each**0.5 / 50)
            apart = jnp.arange(tokens)[:, None] - jnp.arange(tokens)
            scores = jnp.where((apart >= 0) & (apart < reach), scores, -1e30)
            share = jax.nn.softmax(scores).astype(value.dtype)
            out = jnp.einsum("bhqk,bkhd->bqhd", share, value)
            return (out.astype(jnp.float32) ** 2).sum()

        return jax.value_and_grad(loss)((q, k, v))

    sizes = [(batch, tokens, n, each) for n in (heads, groups, groups)]
    return step, [Argument(dims, "bfloat16") for dims in sizes]
