"""Sequences that carry a state, and speech."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.layers import (
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
    {"batch": 1, "tokens": 16, "chunk": 4, "heads": 2, "each": 8, "states": 8},
    {"batch": 4, "tokens": 2048, "chunk": 256, "heads": 24, "each": 64, "states": 128},
)
def dual_states(batch: int, tokens: int, chunk: int, heads: int, each: int, states: int) -> Made:
    """Mamba-2: products within chunks, states between them, a convolution before; gradients."""
    count, inner = tokens // chunk, heads * each
    wide = inner + 2 * states
    shapes = {"enter": (inner // 2, 2 * inner + 2 * states + heads), "filter": (4, wide)}
    shapes |= {"rate": (heads,), "skip": (heads,), "s": (inner,), "leave": (inner, inner // 2)}

    def sums(x: Array) -> Array:
        total = jnp.cumsum(x, -1)
        apart = total[..., :, None] - total[..., None, :]
        return jnp.where(jnp.tril(jnp.ones((x.shape[-1],) * 2, bool)), apart, -jnp.inf)

    def scan(x: Array, a: Array, b: Array, c: Array) -> Array:
        x = x.reshape(batch, count, chunk, heads, each)
        b, c = (y.reshape(batch, count, chunk, states) for y in (b, c))
        a = a.reshape(batch, count, chunk, heads).transpose(0, 3, 1, 2)
        total = jnp.cumsum(a, -1)
        near = jnp.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, jnp.exp(sums(a)), x)
        fade = jnp.exp(total[..., -1:] - total)
        own = jnp.einsum("bcln,bhcl,bclhp->bchpn", b, fade, x)
        own = jnp.concatenate([jnp.zeros_like(own[:, :1]), own], 1)
        between = jnp.exp(sums(jnp.pad(total[..., -1], ((0, 0), (0, 0), (1, 0)))))
        held = jnp.einsum("bhzc,bchpn->bzhpn", between, own)[:, :-1]
        far = jnp.einsum("bcln,bchpn,bhcl->bclhp", c, held, jnp.exp(total))
        return (near + far).reshape(batch, tokens, heads, each)

    def step(x: Array, *flat: Array) -> tuple[Array, dict[str, Array]]:
        def loss(w: dict[str, Array]) -> Array:
            ends = (inner, inner + wide)
            z, mixed, dt = jnp.split(x @ w["enter"], ends, -1)
            padded = jnp.pad(mixed, ((0, 0), (3, 0), (0, 0)))
            mixed = jax.nn.silu(sum(padded[:, i : i + tokens] * w["filter"][i] for i in range(4)))
            y, b, c = jnp.split(mixed, (inner, inner + states), -1)
            dt = jax.nn.softplus(dt)
            y = split_heads(y, heads)
            out = scan(y * dt[..., None], -jnp.exp(w["rate"]) * dt, b, c) + w["skip"][:, None] * y
            out = rms_norm(out.reshape(batch, tokens, inner) * jax.nn.silu(z), w["s"])
            return ((out @ w["leave"] - x) ** 2).mean()

        return descend(loss, named(shapes, flat))

    return step, [Argument((batch, tokens, inner // 2)), *weights(shapes)]


@program(
    {"batch": 2, "tokens": 10, "heads": 2, "each": 8},
    {"batch": 8, "tokens": 1024, "heads": 12, "each": 64},
    3e-2,
)
def receptance(batch: int, tokens: int, heads: int, each: int) -> Made:
    """RWKV: tokens mixed with those before, a matrix of a state for each head, group norm."""
    width = heads * each
    shapes = dict.fromkeys(("r", "k", "v", "g", "o"), (width, width))
    shapes |= {f"m{n}": (width,) for n in "rkvgw"}
    shapes |= {"first": (width, 64), "second": (64, width), "base": (width,)}
    shapes |= {"bonus": (heads, each), "s": (width,), "t": (width,)}

    def run(x: Array, *flat: Array) -> tuple[Array, Array]:
        w = named(shapes, flat)
        before = jnp.pad(x, ((0, 0), (1, 0), (0, 0)))[:, :-1] - x

        def mixed(n: str) -> Array:
            return x + before * w[f"m{n}"].astype(x.dtype)

        r, k, v, g = (mixed(n) @ w[n].astype(x.dtype) for n in "rkvg")
        low = jnp.tanh(mixed("w") @ w["first"].astype(x.dtype)) @ w["second"].astype(x.dtype)
        fade = jnp.exp(-jnp.exp(w["base"] + low.astype(jnp.float32)))
        parts = [split_heads(a.astype(jnp.float32), heads).swapaxes(0, 1) for a in (r, k, v, fade)]

        def turn(state: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
            r, k, v, fade = now
            both = k[..., :, None] * v[..., None, :]
            out = jnp.einsum("bhk,bhkv->bhv", r, state + w["bonus"][..., None] * both)
            return fade[..., None] * state + both, out

        state, out = lax.scan(turn, jnp.zeros((batch, heads, each, each)), tuple(parts))
        out = out.swapaxes(0, 1)
        mean = out.mean(-1, keepdims=True)
        out = (out - mean) * lax.rsqrt(out.var(-1, keepdims=True) + 1e-5)
        out = out.reshape(x.shape) * w["s"] + w["t"]
        return (out.astype(x.dtype) * jax.nn.silu(g)) @ w["o"].astype(x.dtype), state

    return run, [Argument((batch, tokens, width), "bfloat16"), *weights(shapes)]


@program(
    {"batch": 1, "frames": 20, "bands": 8, "width": 16, "heads": 2, "held": 6, "words": 39},
    {
        "batch": 4,
        "frames": 3000,
        "bands": 80,
        "width": 512,
        "heads": 8,
        "held": 448,
        "words": 51865,
    },
    3e-2,
)
def speech_to_text(
    batch: int, frames: int, bands: int, width: int, heads: int, held: int, words: int
) -> Made:
    """Whisper: two convolutions, a layer of 1,500 tokens, one decoded word with kept keys."""
    shapes = {"c1": (3, bands, width), "c2": (3, width, width), "table": (words, width)}
    shapes |= {f"{n}{i}": (width, width) for i in "esx" for n in "qkvo"}
    shapes |= {f"up{i}": (width, 4 * width) for i in "es"}
    shapes |= {f"down{i}": (4 * width, width) for i in "es"}
    shapes |= {"s": (width,), "t": (width,)}
    half = frames // 2
    rate = jnp.exp(-jnp.log(10000.0) / (width // 2 - 1) * jnp.arange(width // 2))
    angle = jnp.arange(half)[:, None] * rate
    waves = jnp.concatenate([jnp.sin(angle), jnp.cos(angle)], 1)

    def slide(x: Array, kernel: Array, stride: int) -> Array:
        names = ("NWC", "WIO", "NWC")
        return jax.nn.gelu(
            lax.conv_general_dilated(x, kernel, (stride,), [(1, 1)], dimension_numbers=names)
        )

    def run(
        x: Array, last: Array, at: Array, keys: Array, values: Array, *flat: Array
    ) -> tuple[Array, ...]:
        w = {n: a.astype(jnp.bfloat16) for n, a in named(shapes, flat).items()}

        def norm(y: Array) -> Array:
            return layer_norm(y, w["s"], w["t"])

        def feed(y: Array, i: str) -> Array:
            return y + jax.nn.gelu(norm(y) @ w[f"up{i}"]) @ w[f"down{i}"]

        def mix(y: Array, q: Array, k: Array, v: Array, i: str, bias: Array | None) -> Array:
            out = attend(split_heads(q @ w[f"q{i}"], heads), k, v, bias)
            return y + out.reshape(y.shape) @ w[f"o{i}"]

        x = slide(slide(x, w["c1"], 1), w["c2"], 2) + waves.astype(x.dtype)
        z = norm(x)
        k, v = (split_heads(z @ w[n], heads) for n in ("ke", "ve"))
        x = norm(feed(mix(x, z, k, v, "e", None), "e"))
        y = w["table"][last][:, None]
        z = norm(y)
        start = (0, at, 0, 0)
        keys = lax.dynamic_update_slice(keys, split_heads(z @ w["ks"], heads), start)
        values = lax.dynamic_update_slice(values, split_heads(z @ w["vs"], heads), start)
        y = mix(y, z, keys, values, "s", jnp.where(jnp.arange(held) <= at, 0, -1e9))
        k, v = (split_heads(x @ w[n], heads) for n in ("kx", "vx"))
        y = feed(mix(y, norm(y), k, v, "x", None), "s")
        logits = (norm(y)[:, 0] @ w["table"].T).astype(jnp.float32)
        return logits, logits.argmax(-1), keys, values

    store = Argument((batch, held, heads, width // heads), "bfloat16")
    data = [Argument((batch, frames, bands), "bfloat16"), integers(batch, below=words)]
    return run, [*data, integers(below=held), store, store, *weights(shapes)]


@program(
    {"batch": 2, "frames": 12, "width": 16, "heads": 2, "reach": 3},
    {"batch": 16, "frames": 500, "width": 256, "heads": 4, "reach": 31},
)
def conformer_step(batch: int, frames: int, width: int, heads: int, reach: int) -> Made:
    """A Conformer block: relative places by shifting rows, a gated depthwise convolution; gradients."""
    each = width // heads
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(
        ("q", "k", "v", "o", "p", "c2"), (width, width)
    )
    shapes |= {f"up{i}": (width, 4 * width) for i in "ab"}
    shapes |= {f"down{i}": (4 * width, width) for i in "ab"}
    shapes |= {"u": (heads, each), "w": (heads, each), "c1": (width, 2 * width)}
    shapes |= {"deep": (reach, 1, width), "s": (width,), "t": (width,), "bs": (width,)}

    def feed(x: Array, w: dict[str, Array], i: str) -> Array:
        y = jax.nn.silu(layer_norm(x, w["s"], w["t"]) @ w[f"up{i}"])
        return x + 0.5 * (y @ w[f"down{i}"])

    def shifted(x: Array) -> Array:
        rows = jnp.pad(x, ((0, 0), (0, 0), (0, 0), (1, 0)))
        rows = rows.reshape(batch, heads, 2 * frames, frames)[:, :, 1:]
        return rows.reshape(batch, heads, frames, 2 * frames - 1)[..., :frames]

    def mix(x: Array, place: Array, w: dict[str, Array]) -> Array:
        z = layer_norm(x, w["s"], w["t"])
        q, k, v = (split_heads(z @ w[n], heads) for n in "qkv")
        p = split_heads(place @ w["p"], heads)
        near = jnp.einsum("bqhd,bkhd->bhqk", q + w["u"], k)
        far = shifted(jnp.einsum("bqhd,khd->bhqk", q + w["w"], p))
        share = jax.nn.softmax((near + far) / each**0.5)
        return x + jnp.einsum("bhqk,bkhd->bqhd", share, v).reshape(x.shape) @ w["o"]

    def slide(x: Array, w: dict[str, Array]) -> Array:
        y = jax.nn.glu(layer_norm(x, w["s"], w["t"]) @ w["c1"])
        names = ("NWC", "WIO", "NWC")
        y = lax.conv_general_dilated(
            y, w["deep"], (1,), "SAME", dimension_numbers=names, feature_group_count=width
        )
        y = (y - y.mean((0, 1))) * lax.rsqrt(y.var((0, 1)) + 1e-5) * w["bs"]
        return x + jax.nn.silu(y) @ w["c2"]

    def step(x: Array, place: Array, *flat: Array) -> tuple[Array, dict[str, Array]]:
        def loss(w: dict[str, Array]) -> Array:
            y = feed(slide(mix(feed(x, w, "a"), place, w), w), w, "b")
            return (layer_norm(y, w["s"], w["t"]) ** 3).mean()

        return descend(loss, named(shapes, flat))

    return step, [
        Argument((batch, frames, width)),
        Argument((2 * frames - 1, width)),
        *weights(shapes),
    ]


@program(
    {"batch": 3, "tokens": 9, "tags": 5, "width": 8},
    {"batch": 128, "tokens": 200, "tags": 45, "width": 400},
)
def tagged_words(batch: int, tokens: int, tags: int, width: int) -> Made:
    """A conditional random field of chains: the loss with lengths, and its gradients."""

    def step(
        x: Array, truth: Array, length: Array, *given: Array
    ) -> tuple[Array, tuple[Array, ...]]:
        seen = jnp.arange(tokens) < length[:, None]

        def loss(given: tuple[Array, ...]) -> Array:
            head, pairs, start = given
            score = x @ head
            own = jnp.take_along_axis(score, truth[..., None], -1)[..., 0]
            steps = pairs[truth[:, :-1], truth[:, 1:]]
            path = (own * seen).sum(1) + (steps * seen[:, 1:]).sum(1) + start[truth[:, 0]]

            def turn(total: Array, now: tuple[Array, Array]) -> tuple[Array, None]:
                new = jax.nn.logsumexp(total[:, :, None] + pairs, 1) + now[0]
                return jnp.where(now[1][:, None], new, total), None

            rows = score.swapaxes(0, 1)[1:], seen.T[1:]
            total, _ = lax.scan(turn, start + score[:, 0], rows)
            return (jax.nn.logsumexp(total, -1) - path).mean()

        return jax.value_and_grad(loss)(given)

    data = [Argument((batch, tokens, width)), integers(batch, tokens, below=tags)]
    data += [Argument((batch,), "int32", 1, tokens + 1)]
    return step, [*data, *weights({"head": (width, tags), "pairs": (tags, tags), "start": (tags,)})]


@program(
    {"batch": 2, "long": 7, "short": 5, "words": 23, "width": 8},
    {"batch": 64, "long": 50, "short": 40, "words": 10000, "width": 512},
)
def translated(batch: int, long: int, short: int, words: int, width: int) -> Made:
    """Two LSTMs, of which the second attends to the first's states by a sum of both; gradients."""
    shapes = {"table": (words, width), "head": (2 * width, words), "q": (width, width)}
    shapes |= {"k": (width, width), "z": (width,), "ib": (4 * width,), "ob": (4 * width,)}
    shapes |= {"in": (2 * width, 4 * width), "on": (3 * width, 4 * width)}

    def cell(
        x: Array, state: tuple[Array, Array], weight: Array, bias: Array
    ) -> tuple[Array, Array]:
        enter, forget, new, out = jnp.split(
            jnp.concatenate([x, state[0]], -1) @ weight + bias, 4, -1
        )
        held = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(enter) * jnp.tanh(new)
        return jax.nn.sigmoid(out) * jnp.tanh(held), held

    def step(source: Array, target: Array, *flat: Array) -> tuple[Array, dict[str, Array]]:
        def loss(w: dict[str, Array]) -> Array:
            start = (jnp.zeros((batch, width)),) * 2

            def read(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
                state = cell(x, state, w["in"], w["ib"])
                return state, state[0]

            state, seen = lax.scan(read, start, w["table"][source.T])
            keys = seen @ w["k"]

            def write(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
                score = jnp.tanh(keys + state[0] @ w["q"]) @ w["z"]
                found = jnp.einsum("tb,tbw->bw", jax.nn.softmax(score, 0), seen)
                state = cell(jnp.concatenate([x, found], -1), state, w["on"], w["ob"])
                return state, jnp.concatenate([state[0], found], -1)

            _, made = lax.scan(write, state, w["table"][target.T[:-1]])
            return cross_entropy(made @ w["head"], target.T[1:]).mean()

        return descend(loss, named(shapes, flat))

    data = [integers(batch, long, below=words), integers(batch, short, below=words)]
    return step, [*data, *weights(shapes)]
