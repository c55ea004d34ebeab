"""Networks that see: windows, wide convolutions, detection, clouds of points, generators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.layers import (
    adam,
    convolve,
    cross_entropy,
    descend,
    layer_norm,
    named,
    weights,
)
from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program(
    {"batch": 2, "side": 8, "window": 4, "heads": 2, "width": 16},
    {"batch": 32, "side": 56, "window": 7, "heads": 3, "width": 96},
    3e-2,
)
def swin_step(batch: int, side: int, window: int, heads: int, width: int) -> Made:
    """Attention in windows, then in shifted ones, with a table of relative places; patches merged."""
    tokens, each, count = window * window, width // heads, side // window
    shapes = {"merge": (4 * width, 2 * width)}
    for i in "ab":
        shapes |= {f"qkv{i}": (width, 3 * width), f"out{i}": (width, width)}
        shapes |= {f"up{i}": (width, 4 * width), f"down{i}": (4 * width, width)}
        shapes |= {f"bias{i}": ((2 * window - 1) ** 2, heads), f"s{i}": (width,), f"t{i}": (width,)}
    place = jnp.arange(window)
    apart = place[:, None] - place + window - 1
    index = apart[:, None, :, None] * (2 * window - 1) + apart[None, :, None, :]
    index = index.reshape(tokens, tokens)

    def windows(x: Array) -> Array:
        parts = x.reshape(batch, count, window, count, window, width).transpose(0, 1, 3, 2, 4, 5)
        return parts.reshape(-1, tokens, width)

    def region() -> Array:
        at = jnp.arange(side)
        part = (at >= side - window).astype(jnp.int32) + (at >= side - window // 2)
        both = (part[:, None] * 3 + part).reshape(count, window, count, window)
        both = both.transpose(0, 2, 1, 3).reshape(-1, tokens)
        return jnp.where(both[:, :, None] == both[:, None], 0.0, -100.0)

    def block(x: Array, w: dict[str, Array], i: str, shift: int) -> Array:
        y = jnp.roll(layer_norm(x, w[f"s{i}"], w[f"t{i}"]), (-shift, -shift), (1, 2))
        q, k, v = jnp.moveaxis(
            (windows(y) @ w[f"qkv{i}"].astype(y.dtype)).reshape(-1, tokens, 3, heads, each), 2, 0
        )
        scores = jnp.einsum("nqhd,nkhd->nhqk", q * each**-0.5, k).astype(jnp.float32)
        scores += w[f"bias{i}"][index].transpose(2, 0, 1)
        if shift:
            scores = scores.reshape(batch, count * count, heads, tokens, tokens)
            scores = (scores + region()[:, None]).reshape(-1, heads, tokens, tokens)
        y = jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores).astype(y.dtype), v)
        y = y.reshape(-1, tokens, width) @ w[f"out{i}"].astype(y.dtype)
        y = y.reshape(batch, count, count, window, window, width).transpose(0, 1, 3, 2, 4, 5)
        x = x + jnp.roll(y.reshape(batch, side, side, width), (shift, shift), (1, 2))
        y = jax.nn.gelu(layer_norm(x, w[f"s{i}"], w[f"t{i}"]) @ w[f"up{i}"].astype(x.dtype))
        return x + y @ w[f"down{i}"].astype(x.dtype)

    def step(x: Array, *flat: Array) -> tuple[Array, dict[str, Array]]:
        def loss(w: dict[str, Array]) -> Array:
            y = block(block(x, w, "a", 0), w, "b", window // 2)
            quarter = [y[:, a::2, b::2] for b in (0, 1) for a in (0, 1)]
            merged = jnp.concatenate(quarter, -1) @ w["merge"].astype(y.dtype)
            return (merged.astype(jnp.float32) ** 2).mean()

        return descend(loss, named(shapes, flat))

    return step, [Argument((batch, side, side, width), "bfloat16"), *weights(shapes)]


@program(
    {"batch": 2, "side": 8, "width": 8, "classes": 5},
    {"batch": 64, "side": 28, "width": 192, "classes": 1000},
)
def convnext_step(batch: int, side: int, width: int, classes: int) -> Made:
    """Depthwise 7 x 7 convolutions, layer norm over channels, scales of layers, Adam."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i, n in enumerate((width, 2 * width)):
        shapes |= {f"deep{i}": (7, 7, 1, n), f"s{i}": (n,), f"t{i}": (n,), f"g{i}": (n,)}
        shapes |= {f"up{i}": (n, 4 * n), f"b{i}": (4 * n,), f"down{i}": (4 * n, n)}
    shapes |= {"half": (2, 2, width, 2 * width), "head": (2 * width, classes)}
    count = len(shapes)

    def block(x: Array, w: dict[str, Array], i: int) -> Array:
        y = convolve(x, w[f"deep{i}"], 1, x.shape[-1])
        y = layer_norm(y, w[f"s{i}"], w[f"t{i}"])
        y = jax.nn.gelu(y @ w[f"up{i}"] + w[f"b{i}"], approximate=False) @ w[f"down{i}"]
        return x + w[f"g{i}"] * y

    def step(x: Array, labels: Array, *flat: Array) -> tuple[Array, ...]:
        def loss(w: dict[str, Array]) -> Array:
            y = block(convolve(block(x, w, 0), w["half"], 2), w, 1).mean((1, 2))
            return cross_entropy(y @ w["head"], labels).mean()

        parts = [named(shapes, flat[i * count : (i + 1) * count]) for i in range(3)]
        return adam(loss, *parts)

    squares = [Argument(a.dims, low=0.1) for a in weights(shapes)]
    data = [Argument((batch, side, side, width)), integers(batch, below=classes)]
    return step, [*data, *weights(shapes), *weights(shapes), *squares]


@program(
    {"batch": 2, "count": 60, "classes": 5, "kept": 12},
    {"batch": 8, "count": 8400, "classes": 80, "kept": 300},
)
def detected_boxes(batch: int, count: int, classes: int, kept: int) -> Made:
    """YOLO's head: boxes from distributions of distances, the best by score, overlaps struck out."""
    bins = 16

    def one(x: Array) -> tuple[Array, Array, Array]:
        share = jax.nn.softmax(x[: 4 * bins].reshape(4, bins, count), 1)
        sides = jnp.einsum("sbn,b->sn", share, jnp.arange(bins, dtype=jnp.float32))
        centre = jnp.stack([jnp.arange(count) % 80, jnp.arange(count) // 80]) + 0.5
        boxes = jnp.concatenate([centre - sides[:2], centre + sides[2:]]).T
        chance = jax.nn.sigmoid(x[4 * bins :])
        score, at = lax.top_k(chance.max(0), kept)
        boxes, label = boxes[at], chance.argmax(0)[at]
        moved = boxes + label[:, None] * 7680.0
        low = jnp.maximum(moved[:, None, :2], moved[None, :, :2])
        size = jnp.maximum(jnp.minimum(moved[:, None, 2:], moved[None, :, 2:]) - low, 0)
        common = size[..., 0] * size[..., 1]
        area = (moved[:, 2] - moved[:, 0]) * (moved[:, 3] - moved[:, 1])
        over = common / (area[:, None] + area - common + 1e-9) > 0.7

        def strike(i: Array, alive: Array) -> Array:
            return alive & ~(over[i] & alive[i] & (jnp.arange(kept) > i))

        alive = lax.fori_loop(0, kept, strike, score > 0.25)
        return jnp.where(alive[:, None], boxes, 0), jnp.where(alive, score, 0), label

    return jax.vmap(one), [Argument((batch, 4 * bins + classes, count), low=-4, high=4)]


@program(
    {"batch": 2, "queries": 12, "objects": 4, "classes": 6},
    {"batch": 64, "queries": 100, "objects": 30, "classes": 92},
)
def matched_sets(batch: int, queries: int, objects: int, classes: int) -> Made:
    """DETR's loss: costs of pairs, an auction that assigns objects, its loss and gradients."""

    def corners(b: Array) -> tuple[Array, Array]:
        return b[..., :2] - b[..., 2:] / 2, b[..., :2] + b[..., 2:] / 2

    def union(a: Array, b: Array) -> Array:
        (low, high), (under, upper) = corners(a), corners(b)
        size = jnp.maximum(jnp.minimum(high, upper) - jnp.maximum(low, under), 0).prod(-1)
        total = a[..., 2:].prod(-1) + b[..., 2:].prod(-1) - size
        hull = (jnp.maximum(high, upper) - jnp.minimum(low, under)).prod(-1)
        return size / total - (hull - total) / hull

    def assign(cost: Array) -> Array:
        def bid(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            owner, price, turn = state
            mine = (owner[None] == jnp.arange(objects)[:, None]).any(1)
            who = jnp.argmin(mine)
            gain = -cost[who] - price
            two, at = lax.top_k(gain, 2)
            step = price.at[at[0]].add(two[0] - two[1] + 0.01)
            new = owner.at[at[0]].set(who)
            done = mine.all()
            return jnp.where(done, owner, new), jnp.where(done, price, step), turn + 1

        def goes_on(state: tuple[Array, Array, Array]) -> Array:
            return state[2] < 4 * objects

        start = jnp.full(queries, -1), jnp.zeros(queries), 0
        return lax.while_loop(goes_on, bid, start)[0]

    def step(logits: Array, boxes: Array, labels: Array, truth: Array) -> tuple[Array, Array]:
        def loss(given: tuple[Array, Array]) -> Array:
            logits, boxes = given
            share = jax.nn.log_softmax(logits)
            cost = -jax.vmap(lambda p, c: jnp.exp(p[:, c]).T)(share, labels)
            near = jnp.abs(boxes[:, None] - truth[:, :, None]).sum(-1)
            cost += 5 * near - 2 * union(truth[:, :, None], boxes[:, None])
            owner = jax.vmap(assign)(lax.stop_gradient(cost))
            is_real = owner >= 0
            safe = jnp.maximum(owner, 0)
            wanted = jnp.where(is_real, jnp.take_along_axis(labels, safe, 1), classes - 1)
            own = jnp.take_along_axis(truth, safe[..., None], 1)
            parts = jnp.abs(boxes - own).sum(-1) * 5 + 2 * (1 - union(boxes, own))
            entropy = -jnp.take_along_axis(share, wanted[..., None], -1)[..., 0]
            weight = jnp.where(is_real, 1, 0.1)
            return (entropy * weight).mean() + (parts * is_real).sum() / is_real.sum()

        return jax.value_and_grad(loss)((logits, boxes))

    real = Argument((batch, objects, 4), low=0.1, high=0.9)
    found = Argument((batch, queries, 4), low=0.1, high=0.9)
    given = [Argument((batch, queries, classes)), found]
    return step, [*given, integers(batch, objects, below=classes - 1), real]


@program(
    {"batch": 2, "count": 64, "centres": 8, "near": 4, "width": 8},
    {"batch": 16, "count": 4096, "centres": 512, "near": 32, "width": 64},
)
def cloud_layer(batch: int, count: int, centres: int, near: int, width: int) -> Made:
    """PointNet++: the farthest points, their neighbours within a ball, a network of each, the greatest."""

    def farthest(points: Array) -> Array:
        def pick(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            chosen, least = state
            last = lax.dynamic_index_in_dim(points, chosen[i - 1], keepdims=False)
            least = jnp.minimum(least, ((points - last) ** 2).sum(-1))
            return chosen.at[i].set(jnp.argmax(least).astype(jnp.int32)), least

        start = jnp.zeros(centres, jnp.int32), jnp.full(count, 1e10)
        return lax.fori_loop(1, centres, pick, start)[0]

    def layer(points: Array, features: Array, first: Array, second: Array) -> Array:
        chosen = jax.vmap(farthest)(points)
        middle = jnp.take_along_axis(points, chosen[..., None], 1)
        square = (middle**2).sum(-1)[:, :, None] + (points**2).sum(-1)[:, None]
        apart = square - 2 * jnp.einsum("bmc,bnc->bmn", middle, points)
        worst, at = lax.top_k(-apart, near)
        at = jnp.where(-worst < 0.5, at, at[..., :1])
        own = jax.vmap(lambda x, i: x[i])(points, at) - middle[:, :, None]
        other = jax.vmap(lambda x, i: x[i])(features, at)
        x = jnp.concatenate([own, other], -1)
        return jax.nn.relu(jax.nn.relu(x @ first) @ second).max(2)

    shapes = {"first": (width + 3, width), "second": (width, 2 * width)}
    clouds = [Argument((batch, count, 3)), Argument((batch, count, width))]
    return layer, [*clouds, *weights(shapes)]


@program(
    {"batch": 2, "noise": 8, "width": 4},
    {"batch": 128, "noise": 100, "width": 64},
)
def adversaries(batch: int, noise: int, width: int) -> Made:
    """DCGAN: transposed convolutions make images of 64 x 64, strided ones judge them; both learn."""
    made, judged = {"first": (4, 4, noise, 8 * width)}, {"last": (4, 4, 8 * width, 1)}
    sizes = [8, 4, 2, 1]
    for i in range(3):
        made[f"up{i}"] = (4, 4, sizes[i] * width, sizes[i + 1] * width)
        made[f"s{i}"] = (sizes[i] * width,)
        judged[f"down{i}"] = (4, 4, sizes[3 - i] * width, sizes[2 - i] * width)
        judged[f"s{i}"] = (sizes[2 - i] * width,)
    made["image"], judged["image"] = (4, 4, width, 3), (4, 4, 3, width)

    def spread(x: Array, scale: Array) -> Array:
        return (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5) * scale

    def up(x: Array, kernel: Array, stride: int, padding: str) -> Array:
        return lax.conv_transpose(x, kernel, (stride, stride), padding)

    def make(w: dict[str, Array], z: Array) -> Array:
        x = up(z[:, None, None], w["first"], 1, "VALID")
        for i in range(3):
            x = up(jax.nn.relu(spread(x, w[f"s{i}"])), w[f"up{i}"], 2, "SAME")
        return jnp.tanh(up(jax.nn.relu(x), w["image"], 2, "SAME"))

    def judge(w: dict[str, Array], x: Array) -> Array:
        x = jax.nn.leaky_relu(convolve(x, w["image"], 2), 0.2)
        for i in range(3):
            x = jax.nn.leaky_relu(spread(convolve(x, w[f"down{i}"], 2), w[f"s{i}"]), 0.2)
        return (x * w["last"][..., 0]).sum((1, 2, 3))

    def step(x: Array, z: Array, *flat: Array) -> tuple[Array, ...]:
        maker, judge_of = named(made, flat[: len(made)]), named(judged, flat[len(made) :])

        def judges(w: dict[str, Array]) -> Array:
            fake = lax.stop_gradient(make(maker, z))
            return (jax.nn.softplus(-judge(w, x)) + jax.nn.softplus(judge(w, fake))).mean()

        value, judge_new = descend(judges, judge_of)
        return (
            value,
            judge_new,
            *descend(lambda w: jax.nn.softplus(-judge(judge_new, make(w, z))).mean(), maker),
        )

    data = [Argument((batch, 64, 64, 3)), Argument((batch, noise))]
    return step, [*data, *weights(made), *weights(judged)]
