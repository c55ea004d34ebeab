"""Records: tables that are joined, trees that are asked, words, counts, points."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import digamma, gammaln

from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program({"count": 60, "keys": 12}, {"count": 2_000_000, "keys": 50_000})
def grouped_table(count: int, keys: int) -> Made:
    """Rows sorted by two keys, joined with another table, and counts and sums of each group."""

    def run(shop: Array, day: Array, price: Array, known: Array, rate: Array) -> tuple[Array, ...]:
        shop, day, price = lax.sort((shop, day, price), num_keys=2)
        known, rate = lax.sort((known, rate), num_keys=1)
        at = jnp.searchsorted(known, shop).clip(0, keys - 1)
        value = jnp.where(known[at] == shop, price * rate[at], 0.0)
        new = jnp.pad((shop[1:] != shop[:-1]) | (day[1:] != day[:-1]), (1, 0))
        group = jnp.cumsum(new)
        total = jax.ops.segment_sum(value, group, count, indices_are_sorted=True)
        most = jax.ops.segment_max(price, group, count, indices_are_sorted=True)
        size = jax.ops.segment_sum(jnp.ones_like(group), group, count, indices_are_sorted=True)
        return total, jnp.where(size > 0, most, 0.0), size

    arguments = [
        integers(count, below=2 * keys),
        integers(count, below=30),
        Argument((count,), low=0.0, high=10.0),
        integers(keys, below=2 * keys),
        Argument((keys,)),
    ]
    return run, arguments


@program(
    {"rows": 40, "features": 5, "trees": 3, "depth": 3},
    {"rows": 262144, "features": 100, "trees": 200, "depth": 6},
)
def boosted_trees(rows: int, features: int, trees: int, depth: int) -> Made:
    """Forests of decisions: each row goes down each tree, one after the other."""
    inner = 2**depth - 1

    def run(x: Array, feature: Array, limit: Array, leaf: Array) -> Array:
        def tree(total: Array, one: tuple[Array, Array, Array]) -> tuple[Array, None]:
            feature, limit, leaf = one
            node = jnp.zeros(rows, jnp.int32)
            for _ in range(depth):
                value = jnp.take_along_axis(x, feature[node].astype(jnp.int32)[:, None], 1)[:, 0]
                node = 2 * node + 1 + (value > limit[node])
            return total + leaf[node - inner], None

        return lax.scan(tree, jnp.zeros(rows), (feature, limit, leaf))[0]

    arguments = [
        Argument((rows, features)),
        integers(trees, inner, below=features, dtype="uint8"),
        Argument((trees, inner)),
        Argument((trees, inner + 1)),
    ]
    return run, arguments


@program(
    {"papers": 4, "words": 9, "topics": 3, "vocabulary": 20, "steps": 3},
    {"papers": 4096, "words": 150, "topics": 100, "vocabulary": 20000, "steps": 10},
)
def topics_of_texts(papers: int, words: int, topics: int, vocabulary: int, steps: int) -> Made:
    """Topics of papers by variational steps (LDA), the bound, and the topics' new words."""

    def run(word: Array, times: Array, weight: Array) -> tuple[Array, Array]:
        table = jnp.exp(digamma(weight) - digamma(weight.sum(0)))
        beta = table[word]

        def step(gamma: Array, _: None) -> tuple[Array, None]:
            theta = jnp.exp(digamma(gamma) - digamma(gamma.sum(-1, keepdims=True)))
            norm = jnp.einsum("pwt,pt->pw", beta, theta) + 1e-9
            return 0.1 + theta * jnp.einsum("pw,pwt->pt", times / norm, beta), None

        gamma = lax.scan(step, jnp.ones((papers, topics)), None, steps)[0]
        theta = jnp.exp(digamma(gamma) - digamma(gamma.sum(-1, keepdims=True)))
        norm = jnp.einsum("pwt,pt->pw", beta, theta) + 1e-9
        bound = (times * jnp.log(norm)).sum() + (gammaln(gamma) - gammaln(0.1)).sum()
        share = (times / norm)[..., None] * theta[:, None]
        new = jnp.zeros((vocabulary, topics)).at[word.ravel()].add(share.reshape(-1, topics))
        return new * table + 0.01, bound

    arguments = [
        integers(papers, words, below=vocabulary),
        Argument((papers, words), low=0.0, high=3.0),
        Argument((vocabulary, topics), low=0.2, high=5.0),
    ]
    return run, arguments


@program({"rows": 30, "features": 4, "steps": 3}, {"rows": 500_000, "features": 40, "steps": 10})
def counts_of_claims(rows: int, features: int, steps: int) -> Made:
    """Hamilton's steps for a negative binomial regression with a random effect of each region."""
    regions = 50

    def density(q: Array, x: Array, y: Array, region: Array) -> Array:
        slope, effect, size = q[:features], q[features:-1], jnp.exp(q[-1])
        mean = jnp.exp(x @ slope * 0.1 + effect[region])
        fit = gammaln(y + size) - gammaln(size) - gammaln(y + 1)
        fit = fit + size * jnp.log(size / (size + mean)) + y * jnp.log(mean / (size + mean))
        return fit.mean() - 0.5 * (q**2).mean()

    def run(q: Array, p: Array, x: Array, y: Array, region: Array) -> tuple[Array, Array]:
        slope = jax.grad(density)

        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], None]:
            q, p = state
            p = p + 0.05 * slope(q, x, y, region)
            q = q + 0.1 * p
            return (q, p + 0.05 * slope(q, x, y, region)), None

        (q, p), _ = lax.scan(step, (q, p), None, steps)
        return q, density(q, x, y, region) - 0.5 * (p**2).sum()

    size = features + regions + 1
    arguments = [
        Argument((size,)),
        Argument((size,)),
        Argument((rows, features)),
        Argument((rows,), low=0.0, high=9.0),
        integers(rows, below=regions),
    ]
    return run, arguments


@program(
    {"batch": 2, "points": 30, "centres": 5, "near": 4, "width": 8},
    {"batch": 16, "points": 8192, "centres": 512, "near": 32, "width": 64},
)
def point_sets(batch: int, points: int, centres: int, near: int, width: int) -> Made:
    """Farthest points one by one, their neighbours within reach, and a network of each group."""

    def run(place: Array, feature: Array, one: Array, two: Array) -> tuple[Array, Array]:
        def step(state: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
            far, at = state
            centre = jnp.take_along_axis(place, at[:, None, None], 1)
            far = jnp.minimum(far, ((place - centre) ** 2).sum(-1))
            return (far, far.argmax(-1)), at

        start = (jnp.full((batch, points), 1e9), jnp.zeros(batch, jnp.int32))
        chosen = lax.scan(step, start, None, centres)[1].T
        middle = jnp.take_along_axis(place, chosen[..., None], 1)
        square = ((middle[:, :, None] - place[:, None]) ** 2).sum(-1)
        order = jnp.where(square < 0.1, jnp.arange(points), points)
        at = lax.top_k(-order, near)[1]
        pick = jax.vmap(lambda a, i: a[i])
        group = jnp.concatenate([pick(place, at) - middle[:, :, None], pick(feature, at)], -1)
        h = jax.nn.relu(jax.nn.relu(group @ one) @ two)
        return chosen, h.max(2)

    arguments = [
        Argument((batch, points, 3)),
        Argument((batch, points, width)),
        Argument((width + 3, width)),
        Argument((width, 2 * width)),
    ]
    return run, arguments


@program(
    {"count": 40, "states": 3},
    {"count": 65536, "states": 16},
)
def hidden_states(count: int, states: int) -> Made:
    """A hidden Markov model forwards and backwards at once, by scans of matrices in logarithms."""

    def run(seen: Array, moves: Array) -> tuple[Array, Array]:
        steps = jax.nn.log_softmax(moves) + seen[:, None]

        def join(a: Array, b: Array) -> Array:
            most = a.max((-2, -1), keepdims=True)
            other = b.max((-2, -1), keepdims=True)
            product = jnp.exp(a - most) @ jnp.exp(b - other)
            return jnp.log(product + 1e-30) + most + other

        forward = lax.associative_scan(join, steps)[:, 0]
        backward = lax.associative_scan(lambda a, b: join(b, a), steps, reverse=True)[:, :, 0]
        return forward[-1], jax.nn.softmax(forward[:-1] + backward[1:])

    return run, [Argument((count, states)), Argument((states, states))]
