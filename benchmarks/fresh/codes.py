"""Bits: hashes, codes, genomes, and numbers of few bits."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program({"count": 6, "blocks": 2}, {"count": 131072, "blocks": 4})
def message_digests(count: int, blocks: int) -> Made:
    """SHA-256's compression, many messages side by side."""
    primes = [p for p in range(2, 312) if all(p % q for q in range(2, p))][:64]
    fraction = np.array([int((p ** (1 / 3) % 1) * 2**32) for p in primes], np.uint32)
    first = np.array([int((p**0.5 % 1) * 2**32) for p in primes[:8]], np.uint32)

    def turn(x: Array, by: int) -> Array:
        return (x >> by) | (x << (32 - by))

    def run(words: Array) -> Array:
        def block(state: Array, w: Array) -> tuple[Array, None]:
            def round_(carry: tuple[Array, Array], k: Array) -> tuple[tuple[Array, Array], None]:
                (a, b, c, d, e, f, g, h), w = carry
                high = turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)
                t = h + high + ((e & f) ^ (~e & g)) + k + w[0]
                low = turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)
                s = low + ((a & b) ^ (a & c) ^ (b & c))
                x, y = w[1], w[14]
                new = w[0] + (turn(x, 7) ^ turn(x, 18) ^ (x >> 3)) + w[9]
                new = new + (turn(y, 17) ^ turn(y, 19) ^ (y >> 10))
                w = jnp.concatenate([w[1:], new[None]])
                return (jnp.stack([t + s, a, b, c, d + t, e, f, g]), w), None

            (end, _), _ = lax.scan(round_, (state, w), jnp.asarray(fraction))
            return state + end, None

        start = jnp.broadcast_to(jnp.asarray(first)[:, None], (8, count))
        return lax.scan(block, start, words)[0]

    return run, [integers(blocks, 16, count, below=1 << 32, dtype="uint32")]


@program(
    {"batch": 2, "checks": 12, "degree": 6, "steps": 3},
    {"batch": 256, "checks": 4096, "degree": 8, "steps": 20},
)
def parity_checks(batch: int, checks: int, degree: int, steps: int) -> Made:
    """Least-sum decoding of a low-density code: messages between bits and checks."""
    bits = checks * 2

    def run(seen: Array, ends: Array) -> tuple[Array, Array]:
        def step(told: Array, _: None) -> tuple[Array, Array]:
            total = seen + jax.vmap(lambda m: jax.ops.segment_sum(m, ends.ravel(), bits))(
                told.reshape(batch, -1)
            )
            asked = total[:, ends] - told
            size = jnp.abs(asked)
            least = size.min(-1, keepdims=True)
            at = size.argmin(-1)[..., None] == jnp.arange(degree)
            second = jnp.where(at, jnp.inf, size).min(-1, keepdims=True)
            sign = jnp.where(asked < 0, -1.0, 1.0)
            told = 0.8 * jnp.where(at, second, least) * sign * sign.prod(-1, keepdims=True)
            return told, (total < 0).sum()

        told, wrong = lax.scan(step, jnp.zeros((batch, checks, degree)), None, steps)
        return told, wrong

    return run, [Argument((batch, bits)), integers(checks, degree, below=bits)]


@program(
    {"reads": 5, "length": 40, "k": 7, "window": 5},
    {"reads": 32768, "length": 250, "k": 21, "window": 11},
)
def minimizers(reads: int, length: int, k: int, window: int) -> Made:
    """The least hash of each window of a genome's words, either strand, with its place."""
    count = length - k + 1

    def mixed(x: Array) -> Array:
        x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
        x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
        return x ^ (x >> 16)

    def run(bases: Array) -> tuple[Array, Array, Array]:
        base = bases.astype(jnp.uint32)
        forward = jnp.zeros((reads, count), jnp.uint32)
        backward = jnp.zeros((reads, count), jnp.uint32)
        for i in range(k):
            forward = forward * 5 + base[:, i : i + count] + 1
            backward = backward * 5 + (3 - base[:, k - 1 - i : k - 1 - i + count]) + 1
        value = mixed(jnp.minimum(forward, backward))
        place = jnp.broadcast_to(jnp.arange(count, dtype=jnp.int32), value.shape)

        def less(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
            first = (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
            return jnp.where(first, a[0], b[0]), jnp.where(first, a[1], b[1])

        top = (jnp.uint32(0xFFFFFFFF), jnp.int32(1 << 30))
        least, at = lax.reduce_window((value, place), top, less, (1, window), (1, 1), "VALID")
        new = jnp.pad(at[:, 1:] != at[:, :-1], ((0, 0), (1, 0)), constant_values=True)
        return jnp.where(new, least, 0), at, new.sum(1)

    return run, [integers(reads, length, below=4, dtype="uint8")]


@program(
    {"layers": 2, "batch": 2, "width": 64, "heads": 2, "slots": 16, "inner": 96, "group": 32},
    {
        "layers": 8,
        "batch": 16,
        "width": 2048,
        "heads": 16,
        "slots": 1500,
        "inner": 5632,
        "group": 128,
    },
    tolerance=1e-2,  # a number between two codes of eight bits may be rounded to either
)
def quantised_decoding(
    layers: int, batch: int, width: int, heads: int, slots: int, inner: int, group: int
) -> Made:
    """A step of a language model: weights of 4 bits with scales by group, keys in a ring of bytes."""
    head = width // heads

    def times(x: Array, packed: Array, scale: Array) -> Array:
        low = (packed & 15).astype(jnp.int8) - 8
        high = (packed >> 4).astype(jnp.int8) - 8
        whole = jnp.stack([low, high], 1).reshape(-1, packed.shape[1]).astype(jnp.bfloat16)
        whole = whole.reshape(-1, group, packed.shape[1]) * scale[:, None]
        return x @ whole.reshape(-1, packed.shape[1])

    def norm(x: Array) -> Array:
        y = x.astype(jnp.float32)
        return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-5)).astype(jnp.bfloat16)

    def run(
        x: Array, at: Array, weights: Array, scales: Array, cache: Array, sizes: Array
    ) -> Array:
        slot = at % slots
        seen = jnp.arange(slots) <= at

        def layer(x: Array, one: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
            qkv, out, up, down, s_qkv, s_out, s_up, s_down, keys, size = one
            q, k, v = jnp.split(times(norm(x), qkv, s_qkv), 3, -1)
            new = jnp.stack([k, v]).reshape(2, batch, 1, heads, head).astype(jnp.float32)
            most = jnp.abs(new).max(-1, keepdims=True) / 127 + 1e-6
            code = jnp.round(new / most).astype(jnp.int8)
            keys = lax.dynamic_update_slice(keys, code, (0, 0, slot, 0, 0))
            size = lax.dynamic_update_slice(size, most[..., 0], (0, 0, slot, 0))
            q = q.reshape(batch, heads, head)
            known = keys.astype(jnp.bfloat16)
            score = jnp.einsum("bhd,bshd->bhs", q, known[0]).astype(jnp.float32)
            score = score * size[0].swapaxes(1, 2) * head**-0.5
            share = jax.nn.softmax(jnp.where(seen, score, -1e9)) * size[1].swapaxes(1, 2)
            found = jnp.einsum("bhs,bshd->bhd", share.astype(jnp.bfloat16), known[1])
            x = x + times(found.reshape(batch, width), out, s_out)
            a, b = jnp.split(times(norm(x), up, s_up), 2, -1)
            return x + times(jax.nn.silu(a) * b, down, s_down), (keys, size)

        return lax.scan(layer, x, (*weights, *scales, cache, sizes))

    shapes = [(width, 3 * width), (width, width), (width, 2 * inner), (inner, width)]
    packed = [integers(layers, a // 2, b, below=256, dtype="uint8") for a, b in shapes]
    scale = [Argument((layers, a // group, b), "bfloat16", 0.0, 0.01) for a, b in shapes]

    def flat(x: Array, at: Array, *rest: Array) -> Array:
        return run(x, at, rest[:4], rest[4:8], rest[8], rest[9])

    arguments = [
        Argument((batch, width), "bfloat16"),
        Argument((), "int32", slots + 3, slots + 4),
        *packed,
        *scale,
        Argument((layers, 2, batch, slots, heads, head), "int8", -127, 127),
        Argument((layers, 2, batch, slots, heads), low=0.0, high=0.01),
    ]
    return flat, arguments


@program(
    {"batch": 2, "length": 64, "width": 8, "codes": 12, "stages": 3},
    {"batch": 16, "length": 48000, "width": 128, "codes": 1024, "stages": 8},
)
def voice_codec(batch: int, length: int, width: int, codes: int, stages: int) -> Made:
    """Strided convolutions, nearest words of one codebook after another, and transposed ones back."""
    strides = (2, 4, 5)
    shrunk = [width // 8, width // 4, width]

    def run(x: Array, books: Array, *kernels: Array) -> tuple[Array, Array, Array]:
        names = ("NWC", "WIO", "NWC")
        down, up = kernels[:3], kernels[3:]
        h = x[..., None]
        for stride, kernel in zip(strides, down, strict=True):
            h = jax.nn.elu(
                lax.conv_general_dilated(h, kernel, (stride,), "SAME", dimension_numbers=names)
            )
        rest, found, used = h, jnp.zeros_like(h), []
        for book in books:
            far = (book**2).sum(-1) - 2 * rest @ book.T
            code = far.argmin(-1)
            word = book[code]
            rest, found = rest - word, found + word
            used.append(jnp.zeros(codes).at[code.ravel()].add(1.0))
        y = found
        for stride, kernel in zip(reversed(strides), up, strict=True):
            y = jax.nn.elu(
                lax.conv_transpose(y, kernel, (stride,), "SAME", dimension_numbers=names)
            )
        return y[..., 0], (rest**2).mean(), jnp.stack(used)

    ins = [1, *shrunk[:-1]]
    kernels = [
        *(
            Argument((2 * s, i, o), low=-0.3, high=0.3)
            for s, i, o in zip(strides, ins, shrunk, strict=True)
        ),
        *(
            Argument((2 * s, o, i), low=-0.3, high=0.3)
            for s, i, o in reversed(list(zip(strides, ins, shrunk, strict=True)))
        ),
    ]
    return run, [Argument((batch, length)), Argument((stages, codes, width)), *kernels]
