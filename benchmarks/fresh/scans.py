"""Measured signals: what scanners, telescopes, radars and cameras hand to a computer."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.registry import Argument, Array, Made, integers, program


@program(
    {"coils": 2, "size": 12, "steps": 3},
    {"coils": 8, "size": 320, "steps": 10},
)
def coil_images(coils: int, size: int, steps: int) -> Made:
    """An image from several coils' undersampled frequencies, by conjugate gradients (SENSE)."""

    def run(kept: Array, real: Array, imag: Array, seen: Array) -> Array:
        maps = lax.complex(real, imag)

        def normal(x: Array) -> Array:
            k = jnp.fft.fft2(maps * x, norm="ortho") * kept
            return (jnp.conj(maps) * jnp.fft.ifft2(k, norm="ortho")).sum(0) + 0.05 * x

        start = (jnp.conj(maps) * jnp.fft.ifft2(seen * kept, norm="ortho")).sum(0)

        def step(state: tuple[Array, ...], _: None) -> tuple[tuple[Array, ...], None]:
            x, r, p, square = state
            q = normal(p)
            alpha = square / jnp.vdot(p, q).real
            x, r = x + alpha * p, r - alpha * q
            new = jnp.vdot(r, r).real
            return (x, r, r + new / square * p, new), None

        zero = jnp.zeros_like(start)
        first = (zero, start, start, jnp.vdot(start, start).real)
        return jnp.abs(lax.scan(step, first, None, steps)[0][0])

    image = Argument((coils, size, size))
    return run, [Argument((size, size), low=0.0, high=1.0), image, image, image]


@program({"size": 16, "angles": 6}, {"size": 256, "angles": 180})
def tomography(size: int, angles: int) -> Made:
    """Sums along turned lines of an image, by bilinear samples, and the gradient of their misfit."""
    middle = (size - 1) / 2

    def project(image: Array, angle: Array) -> Array:
        along = jnp.arange(size) - middle
        x = jnp.cos(angle) * along[:, None] - jnp.sin(angle) * along + middle
        y = jnp.sin(angle) * along[:, None] + jnp.cos(angle) * along + middle
        return jax.scipy.ndimage.map_coordinates(image, [y, x], order=1, cval=0.0).sum(0)

    def loss(image: Array, turned: Array, seen: Array) -> Array:
        found = lax.map(lambda angle: project(image, angle), turned, batch_size=angles // 6)
        return ((found - seen) ** 2).mean()

    arguments = [
        Argument((size, size)),
        Argument((angles,), low=0.0, high=3.14),
        Argument((angles, size)),
    ]
    return jax.value_and_grad(loss), arguments


@program(
    {"pulses": 8, "samples": 60, "guard": 1, "train": 3},
    {"pulses": 256, "samples": 5000, "guard": 2, "train": 12},
)
def radar(pulses: int, samples: int, guard: int, train: int) -> Made:
    """Matched filter, Doppler spectrum, and a threshold from the ring around each cell (CFAR)."""

    def run(real: Array, imag: Array, chirp: Array) -> tuple[Array, Array]:
        echo = jnp.fft.fft(lax.complex(real, imag), axis=1)
        filtered = jnp.fft.ifft(
            echo * jnp.conj(jnp.fft.fft(lax.complex(chirp, chirp[::-1]))), axis=1
        )
        power = jnp.abs(jnp.fft.fftshift(jnp.fft.fft(filtered, axis=0), axes=0)) ** 2

        def box(reach: int) -> Array:
            side = 2 * reach + 1
            sums = jnp.pad(power, reach + 1).cumsum(0).cumsum(1)
            sums = sums[side:] - sums[:-side]
            return (sums[:, side:] - sums[:, :-side])[:pulses, :samples]

        outer, inner = (2 * train + 1) ** 2, (2 * guard + 1) ** 2
        noise = (box(train) - box(guard)) / (outer - inner)
        return power, power > 4 * noise

    echo = Argument((pulses, samples))
    return run, [echo, echo, Argument((samples,))]


@program({"rows": 12, "columns": 20, "range_": 4}, {"rows": 375, "columns": 1242, "range_": 64})
def stereo(rows: int, columns: int, range_: int) -> Made:
    """Depths from two images: census bits, differing bits by shift, paths over rows and columns."""

    def census(image: Array) -> Array:
        padded = jnp.pad(image, 2, mode="edge")
        bits = jnp.zeros(image.shape, jnp.uint32)
        for y in range(5):
            for x in range(5):
                other = padded[y : y + rows, x : x + columns]
                bits = (bits << 1) | (other < image).astype(jnp.uint32)
        return bits

    def along(cost: Array, *, reverse: bool) -> Array:
        def step(last: Array, now: Array) -> tuple[Array, Array]:
            least = last.min(-1, keepdims=True)
            up = jnp.pad(last[:, 1:], ((0, 0), (0, 1)), constant_values=1e6) + 1
            down = jnp.pad(last[:, :-1], ((0, 0), (1, 0)), constant_values=1e6) + 1
            best = jnp.minimum(jnp.minimum(last, least + 8), jnp.minimum(up, down))
            line = now + best - least
            return line, line

        return lax.scan(step, jnp.zeros(cost.shape[1:]), cost, reverse=reverse)[1]

    def run(left: Array, right: Array) -> Array:
        a, b = census(left), census(right)
        shifted = jnp.pad(b, ((0, 0), (range_, 0)))
        views = [shifted[:, range_ - d : range_ - d + columns] for d in range(range_)]
        cost = lax.population_count(a[..., None] ^ jnp.stack(views, -1)).astype(jnp.float32)
        sums = along(cost, reverse=False) + along(cost, reverse=True)
        turned = cost.swapaxes(0, 1)
        across = along(turned, reverse=False) + along(turned, reverse=True)
        return (sums + across.swapaxes(0, 1)).argmin(-1)

    return run, [integers(rows, columns, below=256, dtype="uint8")] * 2


@program({"batch": 2, "rows": 16, "columns": 24}, {"batch": 16, "rows": 720, "columns": 1280})
def photographs(batch: int, rows: int, columns: int) -> Made:
    """JPEG's way back: coefficients in zigzag order to pixels, with colours at half of the size."""
    places = sorted(
        ((y, x) for y in range(8) for x in range(8)),
        key=lambda p: (p[0] + p[1], p[0] if (p[0] + p[1]) % 2 else p[1]),
    )
    back = [0] * 64
    for at, (y, x) in enumerate(places):
        back[8 * y + x] = at

    def run(light: Array, colours: Array, table: Array) -> Array:
        angle = jnp.pi / 16 * jnp.outer(2 * jnp.arange(8) + 1, jnp.arange(8))
        basis = jnp.cos(angle) * jnp.where(jnp.arange(8) == 0, 8**-0.5, 0.5)

        def plane(zigzag: Array) -> Array:
            blocks = (zigzag * table)[..., jnp.array(back)].astype(jnp.float32)
            blocks = blocks.reshape(*blocks.shape[:-1], 8, 8)
            pixels = jnp.einsum("yu,...uv,xv->...yx", basis, blocks, basis)
            *lead, down, across, _, _ = pixels.shape
            return pixels.swapaxes(-3, -2).reshape(*lead, down * 8, across * 8)

        y = plane(light) + 128
        chroma = plane(colours)
        chroma = jax.image.resize(chroma, (2, batch, rows, columns), "linear")
        cb, cr = chroma
        rgb = jnp.stack([y + 1.402 * cr, y - 0.344 * cb - 0.714 * cr, y + 1.772 * cb], -1)
        return jnp.clip(jnp.round(rgb), 0, 255).astype(jnp.uint8)

    half = ((rows // 2 + 7) // 8, (columns // 2 + 7) // 8)
    arguments = [
        Argument((batch, rows // 8, columns // 8, 64), "int16", -20, 20),
        Argument((2, batch, *half, 64), "int16", -20, 20),
        Argument((64,), "int16", 1, 20),
    ]
    return run, arguments
