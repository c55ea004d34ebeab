"""Learning beside networks: rewards, contrasts, optimisers, flows, equations that learn."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.layers import cross_entropy, descend, named, weights
from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program(
    {"agents": 4, "steps": 6, "seen": 11, "actions": 3, "width": 16},
    {"agents": 1024, "steps": 128, "seen": 67, "actions": 21, "width": 256},
)
def clipped_policy(agents: int, steps: int, seen: int, actions: int, width: int) -> Made:
    """PPO: advantages by a scan backwards, normal actions, a clipped loss of actor and critic."""
    shapes = {"a1": (seen, width), "a2": (width, width), "a3": (width, actions), "log": (actions,)}
    shapes |= {"c1": (seen, width), "c2": (width, width), "c3": (width, 1)}

    def net(x: Array, w: dict[str, Array], i: str) -> Array:
        return jnp.tanh(jnp.tanh(x @ w[f"{i}1"]) @ w[f"{i}2"]) @ w[f"{i}3"]

    def step(
        x: Array, acts: Array, old: Array, gain: Array, ends: Array, *flat: Array
    ) -> tuple[Array, ...]:
        weight = named(shapes, flat)
        value = net(x, weight, "c")[..., 0]

        def back(later: Array, now: tuple[Array, ...]) -> tuple[Array, Array]:
            gain, end, value, after = now
            later = gain + 0.99 * after * (1 - end) - value + 0.9405 * (1 - end) * later
            return later, later

        rows = (gain[:-1], ends[:-1], value[:-1], value[1:])
        _, better = lax.scan(back, jnp.zeros(agents), rows, reverse=True)
        wanted = better + value[:-1]
        better = (better - better.mean()) / (better.std() + 1e-8)

        def loss(w: dict[str, Array]) -> Array:
            mean, log = net(x[:-1], w, "a"), w["log"]
            chance = (-0.5 * ((acts[:-1] - mean) / jnp.exp(log)) ** 2 - log - 0.919).sum(-1)
            ratio = jnp.exp(jnp.clip(chance - old[:-1], -2, 2))
            held = jnp.clip(ratio, 0.8, 1.2)
            critic = (net(x[:-1], w, "c")[..., 0] - wanted) ** 2
            return (
                -jnp.minimum(ratio * better, held * better) + 0.5 * critic
            ).mean() - log.sum() / 99

        return descend(loss, weight)

    data = [Argument((steps, agents, seen)), Argument((steps, agents, actions))]
    data += [Argument((steps, agents), low=-30, high=-20), Argument((steps, agents))]
    return step, [*data, Argument((steps, agents), low=0.0), *weights(shapes)]


@program(
    {"batch": 12, "image": 16, "text": 8, "width": 8},
    {"batch": 8192, "image": 1024, "text": 768, "width": 512},
)
def paired_views(batch: int, image: int, text: int, width: int) -> Made:
    """CLIP: a loss of all pairs of a large batch, both ways, a learned temperature; gradients."""
    shapes = {"image": (image, width), "text": (text, width), "heat": ()}

    def step(first: Array, second: Array, *flat: Array) -> tuple[Array, dict[str, Array]]:
        def loss(w: dict[str, Array]) -> Array:
            a, b = first @ w["image"], second @ w["text"]
            a = a / jnp.linalg.norm(a, axis=-1, keepdims=True)
            b = b / jnp.linalg.norm(b, axis=-1, keepdims=True)
            logits = jnp.exp(w["heat"]) * (a @ b.T)
            labels = jnp.arange(batch)
            return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)).mean() / 2

        return descend(loss, named(shapes, flat))

    return step, [Argument((batch, image)), Argument((batch, text)), *weights(shapes)]


@program(
    {"count": 2, "rows": 16, "columns": 24, "words": 40},
    {"count": 6, "rows": 1024, "columns": 2816, "words": 32000},
)
def orthogonal_steps(count: int, rows: int, columns: int, words: int) -> Made:
    """Muon for a stack of matrices (five turns of Newton and Schulz in bf16), Adafactor for a table."""

    def muon(weight: Array, mean: Array, slope: Array) -> tuple[Array, Array]:
        mean = 0.95 * mean + slope
        x = (slope + 0.95 * mean).astype(jnp.bfloat16)
        x = x / (
            jnp.linalg.norm(x.astype(jnp.float32), axis=(-2, -1), keepdims=True) + 1e-7
        ).astype(x.dtype)
        for _ in range(5):
            square = x @ x.swapaxes(-1, -2)
            x = 3.4445 * x + (-4.775 * square + 2.0315 * (square @ square)) @ x
        return weight * 0.99 - 0.02 * x.astype(jnp.float32), mean

    def factored(
        weight: Array, row: Array, column: Array, slope: Array
    ) -> tuple[Array, Array, Array]:
        square = slope**2 + 1e-30
        row = 0.99 * row + 0.01 * square.mean(1)
        column = 0.99 * column + 0.01 * square.mean(0)
        by_row = lax.rsqrt(row / row.mean())[:, None]
        change = slope * by_row * lax.rsqrt(column)
        change = change / jnp.maximum(1.0, jnp.sqrt((change**2).mean()))
        scale = jnp.maximum(1e-3, jnp.sqrt((weight**2).mean()))
        return weight - 0.01 * scale * change, row, column

    def step(*given: Array) -> tuple[Array, ...]:
        return *muon(*given[:3]), *factored(*given[3:])

    stack, table = Argument((count, rows, columns)), Argument((words, rows))
    held = [Argument((words,), low=0.1), Argument((rows,), low=0.1)]
    return step, [stack, stack, stack, table, *held, table]


@program({"count": 2, "size": 12}, {"count": 8, "size": 512})
def inverse_roots(count: int, size: int) -> Made:
    """Shampoo: statistics of both sides, their inverse fourth roots by coupled Newton turns."""

    def root(matrix: Array) -> Array:
        one = jnp.eye(size)
        matrix = matrix + 1e-3 * jnp.trace(matrix) / size * one
        scale = 2.5 / jnp.linalg.norm(matrix)

        def turn(state: tuple[Array, ...]) -> tuple[Array, ...]:
            m, h, _, n = state
            step = 1.25 * one - 0.25 * m
            square = step @ step
            m = square @ square @ m
            return m, h @ step, jnp.abs(m - one).max(), n + 1

        def goes_on(state: tuple[Array, ...]) -> Array:
            return (state[2] > 1e-4) & (state[3] < 40)

        start = matrix * scale, one * scale**0.25, jnp.float32(9), jnp.int32(0)
        return lax.while_loop(goes_on, turn, start)[1]

    def step(left: Array, right: Array, slope: Array) -> tuple[Array, Array, Array]:
        left = 0.9 * left + jnp.einsum("nab,ncb->nac", slope, slope)
        right = 0.9 * right + jnp.einsum("nba,nbc->nac", slope, slope)
        change = jax.vmap(root)(left) @ slope @ jax.vmap(root)(right)
        return left, right, change * jnp.linalg.norm(slope) / jnp.linalg.norm(change)

    square = Argument((count, size, size), low=0.0, high=0.0)
    return step, [square, square, Argument((count, size, size))]


@program(
    {"batch": 4, "state": 6, "width": 12, "steps": 3},
    {"batch": 4096, "state": 64, "width": 256, "steps": 20},
)
def adjoint_flow(batch: int, state: int, width: int, steps: int) -> Made:
    """A neural ODE by Runge and Kutta, its gradient by the equation that runs backwards."""
    shapes = {"a": (state + 1, width), "b": (width, width), "c": (width, state)}
    size = 1.0 / steps

    def field(w: dict[str, Array], t: Array, y: Array) -> Array:
        x = jnp.concatenate([y, jnp.full((batch, 1), t)], -1)
        return jnp.tanh(jnp.tanh(x @ w["a"]) @ w["b"]) @ w["c"]

    def step(x: Array, wanted: Array, *flat: Array) -> tuple[Array, Array, dict[str, Array]]:
        w = named(shapes, flat)

        def onward(i: int, y: Array) -> Array:
            t = i * size
            a = field(w, t, y)
            b = field(w, t + size / 2, y + size / 2 * a)
            c = field(w, t + size / 2, y + size / 2 * b)
            return y + size / 6 * (a + 2 * b + 2 * c + field(w, t + size, y + size * c))

        end = lax.fori_loop(0, steps, onward, x)

        def back(
            i: int, held: tuple[Array, Array, dict[str, Array]]
        ) -> tuple[Array, Array, dict[str, Array]]:
            y, slope, total = held
            t = 1 - i * size
            speed, pull = jax.vjp(lambda w, y: field(w, t, y), w, y)
            middle = y - size / 2 * speed
            of_w, of_y = pull(slope)
            half = slope + size / 2 * of_y
            speed, pull = jax.vjp(lambda w, y: field(w, t - size / 2, y), w, middle)
            of_w, of_y = pull(half)
            return (
                y - size * speed,
                slope + size * of_y,
                jax.tree.map(lambda a, b: a + size * b, total, of_w),
            )

        start = end, 2 * (end - wanted) / batch, jax.tree.map(jnp.zeros_like, w)
        _, slope, total = lax.fori_loop(0, steps, back, start)
        return end, slope, total

    return step, [Argument((batch, state)), Argument((batch, state)), *weights(shapes)]


@program(
    {"batch": 2, "side": 8, "width": 8, "levels": 1},
    {"batch": 64, "side": 32, "width": 128, "levels": 2},
)
def invertible(batch: int, side: int, width: int, levels: int) -> Made:
    """Glow: squeezes, norms of channels, invertible mixtures, coupling; the likelihood's gradients."""
    shapes: dict[str, tuple[int, ...]] = {}
    for i in range(levels):
        n = 12 * 2**i
        shapes |= {f"s{i}": (n,), f"t{i}": (n,), f"mix{i}": (n, n), f"c1{i}": (3, 3, n // 2, width)}
        shapes |= {f"c2{i}": (1, 1, width, width), f"c3{i}": (3, 3, width, n)}

    def slide(x: Array, kernel: Array) -> Array:
        names = ("NHWC", "HWIO", "NHWC")
        return lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=names)

    def squeeze(x: Array) -> Array:
        n, h, w, c = x.shape
        x = x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 5, 2, 4)
        return x.reshape(n, h // 2, w // 2, 4 * c)

    def step(x: Array, noise: Array, *flat: Array) -> tuple[Array, dict[str, Array]]:
        def loss(w: dict[str, Array]) -> Array:
            y, total = x.astype(jnp.float32) / 256 + noise / 256, jnp.zeros(batch)
            for i in range(levels):
                y = (squeeze(y) + w[f"t{i}"]) * jnp.exp(w[f"s{i}"])
                area = y.shape[1] * y.shape[2]
                n = y.shape[-1]
                mixed = jnp.tril(w[f"mix{i}"], -1) + jnp.eye(n)
                y = y @ mixed
                a, b = jnp.split(y, 2, -1)
                hidden = jax.nn.relu(slide(jax.nn.relu(slide(a, w[f"c1{i}"])), w[f"c2{i}"]))
                shift, raw = jnp.split(slide(hidden, w[f"c3{i}"]), 2, -1)
                log = jax.nn.log_sigmoid(raw + 2)
                b = (b + shift) * jnp.exp(log)
                total += area * w[f"s{i}"].sum() + log.sum((1, 2, 3))
                if i + 1 < levels:
                    y, b = a, b
                    total -= 0.5 * (b**2).sum((1, 2, 3))
                else:
                    y = jnp.concatenate([a, b], -1)
            total -= 0.5 * (y**2).sum((1, 2, 3))
            return -total.mean() / (3 * side * side)

        return descend(loss, named(shapes, flat))

    pixels = integers(batch, side, side, 3, below=256, dtype="uint8")
    return step, [pixels, Argument((batch, side, side, 3), low=0.0), *weights(shapes)]
