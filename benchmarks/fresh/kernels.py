"""Single kernels, each as one would write it: shapes at a small and at a real size beside the function."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.fresh.registry import PROGRAMS, Argument, Array, Made, Program, integers

Shapes = Sequence[Argument]


def _note(
    name: str, function: Callable[..., Array], small: Shapes, real: Shapes, tolerance: float = 2e-3
) -> None:
    def make(is_real: int) -> Made:
        return function, real if is_real else small

    PROGRAMS[name] = Program(name, make, {"is_real": 0}, {"is_real": 1}, tolerance)


def _f(*dims: int) -> Argument:
    return Argument(dims)


def _b(*dims: int) -> Argument:
    return Argument(dims, "bfloat16")


def _group_norm(x: Array, scale: Array, shift: Array) -> Array:
    n, h, w, c = x.shape
    parts = x.reshape(n, h, w, c // 8, 8)
    mean = parts.mean((1, 2, 4), keepdims=True)
    spread = lax.rsqrt(parts.var((1, 2, 4), keepdims=True) + 1e-5)
    return ((parts - mean) * spread).reshape(x.shape) * scale + shift


def _group_norm_slopes(x: Array, scale: Array, shift: Array) -> Array:
    return jax.grad(lambda *a: (_group_norm(*a) ** 3).sum(), (0, 1, 2))(x, scale, shift)


def _instance_norm(x: Array) -> Array:
    mean, var = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    return jax.nn.relu((x - mean) * lax.rsqrt(var + 1e-5))


def _columns(x: Array, weight: Array) -> Array:
    h, w = x.shape[1] - 2, x.shape[2] - 2
    parts = [x[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
    return jnp.stack(parts, -2).reshape(*x.shape[:1], h, w, -1) @ weight


def _slide(x: Array, kernel: Array, stride: int, dilation: int, groups: int) -> Array:
    names = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(
        x, kernel, (stride,), "SAME", rhs_dilation=(dilation,), dimension_numbers=names,
        feature_group_count=groups,
    )  # fmt: skip


def _slopes(function: Callable[..., Array]) -> Callable[..., Array]:
    return lambda *a: jax.grad(lambda *b: (function(*b) ** 2).sum(), tuple(range(len(a))))(*a)


def _image(x: Array, kernel: Array) -> Array:
    names = ("NCHW", "OIHW", "NCHW")
    return lax.conv_general_dilated(x, kernel, (2, 2), ((3, 3), (3, 3)), dimension_numbers=names)


def _holes(x: Array, kernel: Array) -> Array:
    names = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", rhs_dilation=(6, 6), dimension_numbers=names
    )


def _halves(x: Array, cos: Array, sin: Array) -> Array:
    a, b = jnp.split(x, 2, -1)
    return (x * cos + jnp.concatenate([-b, a], -1) * sin).astype(x.dtype)


def _complex_turn(x: Array, cos: Array, sin: Array) -> Array:
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    turned = lax.complex(pairs[..., 0], pairs[..., 1]) * lax.complex(cos, sin)[:, None]
    return jnp.stack([turned.real, turned.imag], -1).reshape(x.shape)


def _segments(x: Array, owner: Array) -> Array:
    count = 1000
    most = jax.ops.segment_max(x, owner, count)
    raised = jnp.exp(x - most[owner])
    return raised / jax.ops.segment_sum(raised, owner, count)[owner]


def _masked_moments(x: Array, mask: Array) -> tuple[Array, Array]:
    keep = (mask > 0)[..., None]
    count = keep.sum(1)
    mean = jnp.where(keep, x, 0).sum(1) / count
    return mean, jnp.where(keep, (x - mean[:, None]) ** 2, 0).sum(1) / count


def _nucleus(logits: Array, dice: Array) -> Array:
    best, at = lax.top_k(logits, 50)
    share = jax.nn.softmax(best / 0.7)
    total = jnp.cumsum(share, -1)
    share = jnp.where(total - share > 0.9, 0, share)
    chosen = (jnp.cumsum(share, -1) < dice[:, None] * share.sum(-1, keepdims=True)).sum(-1)
    return jnp.take_along_axis(at, chosen[:, None], 1)[:, 0]


def _int8(x: Array, weight: Array, scale: Array) -> Array:
    most = jnp.abs(x).max(-1, keepdims=True) / 127
    codes = jnp.round(x / most).astype(jnp.int8)
    total = lax.dot_general(
        codes, weight, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32
    )
    return total.astype(jnp.float32) * most * scale


def _histogram(x: Array) -> Array:
    return jax.vmap(lambda row: jnp.bincount(row, length=64))(x)


def _resized(x: Array) -> Array:
    n, h, w, c = x.shape
    return jax.image.resize(x, (n, 2 * h, 2 * w, c), "bilinear")


def _pooled(x: Array) -> Array:
    window = (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
    most = lax.reduce_window(x, -jnp.inf, lax.max, *window)
    return most + lax.reduce_window(x, 0.0, lax.add, *window) / 9


def _cross_product(a: Array, b: Array) -> Array:
    return jnp.cross(a, b) / (jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1))[..., None]


def _pixel_shuffle(x: Array) -> Array:
    n, h, w, c = x.shape
    parts = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(n, 2 * h, 2 * w, c // 4)


def _edges(x: Array) -> Array:
    return jnp.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0)), mode="reflect")


def _counted(ids: Array, table: Array) -> Array:
    return (jax.nn.one_hot(ids, table.shape[0], dtype=table.dtype) @ table).sum(1)


def _neighbours(x: Array) -> tuple[Array, Array]:
    square = (x * x).sum(-1)
    apart = square[:, None] + square - 2 * x @ x.T
    return lax.top_k(-apart, 10)


def _bilinear(a: Array, w: Array, b: Array) -> Array:
    return jnp.einsum("bi,oij,bj->bo", a, w, b)


_note("running_sum_odd", lambda x: jnp.cumsum(x, 1), [_f(2, 19, 7)], [_f(32, 1500, 197)])
_note("running_log_sum", lambda x: lax.cumlogsumexp(x, 1), [_f(3, 21)], [_f(512, 3001)])
_note("running_most_rows", lambda x: lax.cummax(x, 0), [_f(21, 3)], [_f(5000, 300)])
_note("sorted_rows", lambda x, y: jnp.take_along_axis(y, jnp.argsort(x, 1), 1),
      [_f(3, 21), _f(3, 21)], [_f(256, 1000), _f(256, 1000)])  # fmt: skip
_note("nucleus", _nucleus, [_f(2, 60), Argument((2,), low=0.0)],
      [_f(64, 50257), Argument((64,), low=0.0)])  # fmt: skip
_note("segment_softmax", _segments, [_f(300), integers(300, below=1000)],
      [_f(100000), integers(100000, below=1000)])  # fmt: skip
_note("counted_words", _counted, [integers(2, 5, below=37), _f(37, 8)],
      [integers(64, 197, below=5000), _f(5000, 256)])  # fmt: skip
_note("masked_moments", _masked_moments, [_f(2, 9, 5), _f(2, 9)], [_f(64, 197, 768), _f(64, 197)])
_note("columns_by_hand", _columns, [_f(2, 6, 6, 4), _f(36, 8)], [_f(16, 58, 58, 64), _f(576, 128)])
_note("slide_dilated", lambda x, k: _slide(x, k, 1, 4, 1),
      [_f(2, 19, 4), _f(3, 4, 6)], [_f(16, 4001, 64), _f(3, 64, 96)])  # fmt: skip
_note("slide_strided_slopes", _slopes(lambda x, k: _slide(x, k, 4, 1, 1)),
      [_f(2, 19, 3), _f(9, 3, 6)], [_f(32, 16001, 1), _f(81, 1, 64)])  # fmt: skip
_note("slide_depthwise_slopes", _slopes(lambda x, k: _slide(x, k, 1, 1, x.shape[2])),
      [_f(2, 12, 4), _f(5, 1, 4)], [_f(16, 1000, 384), _f(31, 1, 384)])  # fmt: skip
_note("first_layer_slopes", _slopes(_image),
      [_f(2, 3, 12, 12), _f(4, 3, 7, 7)], [_f(64, 3, 224, 224), _f(64, 3, 7, 7)])  # fmt: skip
_note("holes", _holes, [_f(1, 14, 14, 4), _f(3, 3, 4, 4)],
      [_b(8, 65, 65, 256), _b(3, 3, 256, 256)], 2e-2)  # fmt: skip
_note("group_norm", _group_norm, [_f(2, 4, 4, 16), _f(16), _f(16)],
      [_f(32, 32, 32, 256), _f(256), _f(256)])  # fmt: skip
_note("group_norm_slopes", _group_norm_slopes, [_f(2, 4, 4, 16), _f(16), _f(16)],
      [_f(32, 32, 32, 256), _f(256), _f(256)])  # fmt: skip
_note("instance_norm", _instance_norm, [_f(2, 3, 5, 5)], [_f(16, 64, 128, 128)])
_note("small_products", lambda a, b: a @ b, [_f(9, 5, 7), _f(9, 7, 3)],
      [_f(20000, 12, 12), _f(20000, 12, 12)])  # fmt: skip
_note("permuted_products", lambda a, b: jnp.einsum("ibhd,jbhd->hbij", a, b),
      [_b(7, 2, 3, 8), _b(5, 2, 3, 8)], [_b(197, 64, 12, 64), _b(197, 64, 12, 64)], 2e-2)  # fmt: skip
_note("bilinear", _bilinear, [_f(3, 5), _f(4, 5, 6), _f(3, 6)],
      [_f(256, 300), _f(100, 300, 300), _f(256, 300)])  # fmt: skip
_note("transposed_3", lambda x: x.transpose(2, 1, 0), [_f(3, 5, 7)], [_f(197, 96, 768)])
_note("transposed_4", lambda x: x.transpose(0, 3, 1, 2), [_f(2, 5, 6, 3)], [_f(64, 224, 224, 3)])
_note("transposed_5", lambda x: x.transpose(3, 1, 4, 0, 2),
      [_b(2, 3, 4, 5, 6)], [_b(8, 12, 64, 32, 64)])  # fmt: skip
_note("pixel_shuffle", _pixel_shuffle, [_f(2, 3, 3, 16)], [_f(16, 64, 64, 256)])
_note("reflected", _edges, [_f(2, 6, 6, 3)], [_f(32, 128, 128, 64)])
_note("rolled", lambda x: jnp.roll(x, (5, -3, 1), (1, 2, 0)), [_f(3, 9, 8)], [_f(16, 1000, 1000)])
_note("joined", lambda a, b, c: jnp.concatenate([a, b, c], -1),
      [_f(4, 3), _f(4, 5), _f(4, 2)], [_f(50000, 37), _f(50000, 64), _f(50000, 13)])  # fmt: skip
_note("rotary_halves", _halves, [_b(2, 5, 3, 8), _f(5, 1, 8), _f(5, 1, 8)],
      [_b(4, 2048, 16, 128), _f(2048, 1, 128), _f(2048, 1, 128)], 2e-2)  # fmt: skip
_note("rotary_pairs", _complex_turn, [_f(2, 5, 3, 8), _f(5, 4), _f(5, 4)],
      [_f(4, 2048, 16, 64), _f(2048, 32), _f(2048, 32)])  # fmt: skip
_note("codes_of_eight_bits", _int8, [_f(5, 16), integers(16, 8, below=100, dtype="int8"), _f(8)],
      [_f(4096, 1024), integers(1024, 4096, below=100, dtype="int8"), _f(4096)])  # fmt: skip
_note("histograms", _histogram, [integers(3, 40, below=64)], [integers(256, 4096, below=64)])
_note("resized", _resized, [_f(2, 4, 4, 3)], [_f(16, 64, 64, 128)])
_note("pooled", _pooled, [_f(2, 7, 7, 3)], [_f(32, 112, 112, 64)])
_note("cross_products", _cross_product, [_f(9, 3), _f(9, 3)], [_f(200000, 3), _f(200000, 3)])
_note("nearest_ten", _neighbours, [_f(30, 5)], [_f(4096, 128)])
