"""Pictures: filters, geometry, statistics, a dense network."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program({"batch": 2, "rows": 12, "columns": 40}, {"batch": 16, "rows": 512, "columns": 512})
def affine_warp(batch: int, rows: int, columns: int) -> Made:
    def warp(image: Array, matrix: Array) -> Array:
        y, x = jnp.meshgrid(jnp.arange(rows), jnp.arange(columns), indexing="ij")
        places = matrix @ jnp.stack([x.ravel(), y.ravel(), jnp.ones(rows * columns)])
        shape = (rows, columns)
        at = [places[1].reshape(shape), places[0].reshape(shape)]
        return jax.scipy.ndimage.map_coordinates(image, at, order=1, mode="nearest")

    return jax.vmap(warp), [Argument((batch, rows, columns)), Argument((batch, 2, 3))]


@program({"batch": 2, "size": 40}, {"batch": 16, "size": 1024})
def edges(batch: int, size: int) -> Made:
    """Gaussian blur, Sobel gradients, thin and linked edges."""

    def slide(x: Array, kernel: Array) -> Array:
        return lax.conv_general_dilated(x[:, None], kernel[None, None], (1, 1), "SAME")[:, 0]

    def find(x: Array) -> tuple[Array, Array]:
        blur = jnp.array([1.0, 4.0, 6.0, 4.0, 1.0]) / 16
        sobel = jnp.array([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]])
        smooth = slide(slide(x, blur[:, None]), blur[None])
        across, down = slide(smooth, sobel), slide(smooth, sobel.T)
        strength = jnp.sqrt(across * across + down * down)
        window = (1, 3, 3), (1, 1, 1), "SAME"
        is_peak = strength >= lax.reduce_window(strength, -jnp.inf, lax.max, *window)
        weak = strength > 0.1

        def link(_: int, found: Array) -> Array:
            near = lax.reduce_window(found.astype(jnp.int32), 0, lax.max, *window)
            return found | ((near > 0) & weak)

        return lax.fori_loop(0, 4, link, is_peak & (strength > 0.2)), strength

    return find, [Argument((batch, size, size))]


@program({"batch": 2, "size": 24}, {"batch": 16, "size": 1024})
def local_threshold(batch: int, size: int) -> Made:
    """Means of boxes by integral images."""

    def find(x: Array) -> tuple[Array, Array]:
        side = 5
        total = jnp.pad(jnp.cumsum(jnp.cumsum(x, 1), 2), ((0, 0), (1, 0), (1, 0)))
        upper = total[:, side:, side:] - total[:, :-side, side:]
        mean = (upper - total[:, side:, :-side] + total[:, :-side, :-side]) / side**2
        centre = x[:, side // 2 : size - side // 2, side // 2 : size - side // 2]
        return mean, (centre > mean).astype(jnp.uint8)

    return find, [Argument((batch, size, size), low=0.0)]


@program({"rows": 12, "columns": 40, "steps": 3}, {"rows": 480, "columns": 640, "steps": 50})
def optical_flow(rows: int, columns: int, steps: int) -> Made:
    """Horn and Schunck's iteration."""

    def flow(first: Array, second: Array) -> tuple[Array, Array]:
        across = (jnp.roll(first, -1, 1) - jnp.roll(first, 1, 1)) / 2
        down = (jnp.roll(first, -1, 0) - jnp.roll(first, 1, 0)) / 2
        kernel = jnp.array([[1, 2, 1], [2, 0, 2], [1, 2, 1]], jnp.float32)[None, None] / 12

        def mean(u: Array) -> Array:
            return lax.conv_general_dilated(u[None, None], kernel, (1, 1), "SAME")[0, 0]

        def step(_: int, state: tuple[Array, Array]) -> tuple[Array, Array]:
            u, v = mean(state[0]), mean(state[1])
            change = across * u + down * v + second - first
            change = change / (1 + across**2 + down**2)
            return u - across * change, v - down * change

        still = jnp.zeros_like(first)
        return lax.fori_loop(0, steps, step, (still, still))

    frame = Argument((rows, columns), low=0.0)
    return flow, [frame, frame]


@program({"size": 40, "steps": 3}, {"size": 4096, "steps": 20})
def game_of_life(size: int, steps: int) -> Made:
    def play(board: Array) -> Array:
        def step(_: int, now: Array) -> Array:
            around = jnp.pad(now.astype(jnp.bfloat16), 1, mode="wrap")[None, None]
            kernel = jnp.ones((1, 1, 3, 3), jnp.bfloat16).at[0, 0, 1, 1].set(0)
            count = lax.conv_general_dilated(around, kernel, (1, 1), "VALID")[0, 0]
            return ((count == 3) | ((now == 1) & (count == 2))).astype(jnp.uint8)

        return lax.fori_loop(0, steps, step, board)

    return play, [integers(size, size, below=2, dtype="uint8")]


@program(
    {"batch": 2, "size": 8, "width": 4, "growth": 3, "layers": 3},
    {"batch": 32, "size": 56, "width": 64, "growth": 32, "layers": 6},
)
def dense_block(batch: int, size: int, width: int, growth: int, layers: int) -> Made:
    """Every layer reads all layers before it; loss and gradients."""

    def loss(kernels: tuple[Array, ...], x: Array) -> Array:
        for kernel in kernels:
            spread = lax.rsqrt(x.var((0, 1, 2)) + 1e-5)
            active = jax.nn.relu((x - x.mean((0, 1, 2))) * spread)
            names = ("NHWC", "HWIO", "NHWC")
            new = lax.conv_general_dilated(active, kernel, (1, 1), "SAME", dimension_numbers=names)
            x = jnp.concatenate([x, new], -1)
        return (x.mean((1, 2)) ** 2).mean()

    def train(x: Array, *kernels: Array) -> Array:
        return jax.value_and_grad(loss)(kernels, x)

    inputs = [width + growth * layer for layer in range(layers)]
    kernels = [Argument((3, 3, n, growth), low=-0.1, high=0.1) for n in inputs]
    return train, [Argument((batch, size, size, width)), *kernels]
