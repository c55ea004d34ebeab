"""Sequences: recurrences, alignments, signals."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program({"batch": 2, "length": 64, "window": 16}, {"batch": 16, "length": 160000, "window": 400})
def spectrogram(batch: int, length: int, window: int) -> Made:
    hop = window * 2 // 5
    count = (length - window) // hop + 1

    def run(signal: Array) -> Array:
        at = jnp.arange(count)[:, None] * hop + jnp.arange(window)
        spectrum = jnp.fft.rfft(signal[:, at] * jnp.hanning(window), n=512)
        return jnp.log10(jnp.maximum(jnp.abs(spectrum) ** 2, 1e-6))

    return run, [Argument((batch, length))]


@program(
    {"batch": 2, "length": 19, "width": 16, "states": 8},
    {"batch": 8, "length": 4096, "width": 256, "states": 256},
)
def state_space(batch: int, length: int, width: int, states: int) -> Made:
    """A diagonal complex recurrence as an associative scan."""

    def run(x: Array, decay: Array, turn: Array, enter: Array, leave: Array) -> Array:
        step = jnp.exp(lax.complex(decay, turn))
        driven = lax.complex(x @ enter, jnp.zeros((batch, length, states)))

        def join(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
            return a[0] * b[0], b[0] * a[1] + b[1]

        _, state = lax.associative_scan(
            join, (jnp.broadcast_to(step, driven.shape), driven), axis=1
        )
        return jax.nn.gelu(state.real @ leave)

    rates = Argument((states,), low=-1.0, high=-0.1)
    weights = [Argument((width, states), low=-0.1, high=0.1), Argument((states, width))]
    return run, [Argument((batch, length, width)), rates, Argument((states,)), *weights]


@program({"batch": 3, "length": 9, "symbols": 4}, {"batch": 256, "length": 256, "symbols": 4})
def edit_distance(batch: int, length: int, symbols: int) -> Made:
    def run(first: Array, second: Array) -> Array:
        places = jnp.arange(length + 1)

        def row(above: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
            number, symbol = given
            other = above[:, :-1] + (second != symbol[:, None])
            best = jnp.minimum(other, above[:, 1:] + 1)
            start = jnp.full((batch, 1), number + 1)
            best = jnp.concatenate([start, best], 1)
            return lax.cummin(best - places, 1) + places, None

        start = jnp.broadcast_to(places, (batch, length + 1))
        return lax.scan(row, start, (jnp.arange(length), first.T))[0][:, -1]

    word = integers(batch, length, below=symbols)
    return run, [word, word]


@program({"batch": 2, "length": 8, "states": 4}, {"batch": 256, "length": 256, "states": 64})
def most_likely_path(batch: int, length: int, states: int) -> Made:
    """Viterbi: the best score and the way back."""

    def run(scores: Array, change: Array) -> tuple[Array, Array]:
        def step(best: Array, now: Array) -> tuple[Array, Array]:
            ways = best[:, :, None] + change
            return ways.max(1) + now, ways.argmax(1)

        moments = scores.swapaxes(0, 1)
        last, back = lax.scan(step, moments[0], moments[1:])

        def follow(state: Array, came: Array) -> tuple[Array, Array]:
            return jnp.take_along_axis(came, state[:, None], 1)[:, 0], state

        start, path = lax.scan(follow, last.argmax(-1), back, reverse=True)
        return last.max(-1), jnp.concatenate([start[None], path])

    return run, [Argument((batch, length, states)), Argument((states, states))]


@program({"batch": 3, "length": 16}, {"batch": 512, "length": 4096})
def bitonic_sort(batch: int, length: int) -> Made:
    def run(x: Array) -> Array:
        block = 2
        while block <= length:
            step = block // 2
            while step:
                pairs = x.reshape(batch, length // (2 * step), 2, step)
                low = jnp.minimum(pairs[:, :, 0], pairs[:, :, 1])
                high = jnp.maximum(pairs[:, :, 0], pairs[:, :, 1])
                up = (jnp.arange(length // (2 * step)) * 2 * step & block == 0)[:, None]
                parts = [jnp.where(up, low, high), jnp.where(up, high, low)]
                x = jnp.stack(parts, 2).reshape(batch, length)
                step //= 2
            block *= 2
        return x

    return run, [Argument((batch, length))]
