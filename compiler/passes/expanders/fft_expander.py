"""FFT expander: discrete Fourier transforms as products with matrices.

    n <= 128 or prime    [batch, 2n] x [2n, 2n]: real and imaginary parts side by side
    n = n1 * n2          n2 transforms of n1, twiddle factors, n1 transforms of n2 (Cooley, Tukey)
    large prime factor   a convolution of a power-of-two length (Bluestein)

Values are pairs of f32 arrays ``[batch, n]``. Matrices and factors are computed in f64; the sums
of a product with a matrix are exact (`sliced_dot`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import F32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.passes.expanders.emitter import Emitter
from compiler.passes.expanders.sliced_dot import sliced_dot
from compiler.rewrite.dims import inverse

Instr = HloInstruction
Complex = npt.NDArray[np.complex128]
MAX_FACTOR = 128  # a composite length is split into factors up to this
MAX_DIRECT = 512  # a prime up to this has a matrix


@dataclass(frozen=True)
class Pair:
    """Real and imaginary parts, of equal shape; without `im` the value is real."""

    re: Instr
    im: Instr | None


def expand_ffts(module: HloModule, context: PassContext) -> bool:
    """Expand every `fft`."""
    return expand(module, context, {"fft": expand_fft})


def expand_fft(instr: Instr) -> Instr | None:
    """The transform over the last dimensions, the real-valued one always the last."""
    e = Emitter.at(instr)
    operand, kind = instr.operands[0], str(instr.attrs["fft_type"])
    if operand.array.dtype.name not in ("f32", "c64"):
        raise UnsupportedError(
            f"%{instr.name}: fft of {operand.array.dtype}; convert to f32 or c64", instr.span
        )
    lengths = instr.attrs["fft_length"]
    assert isinstance(lengths, tuple)
    if 0 in instr.array.dims:
        return e.full(instr.array.dtype, instr.array.dims, 0)
    is_inverse = kind in ("IFFT", "IRFFT")
    value = _split(e, operand)
    rank = operand.array.rank
    others = range(rank - len(lengths), rank - 1)
    if kind in ("RFFT", "IRFFT"):
        last = _half if kind == "RFFT" else _from_half
        if kind == "RFFT":
            value = _over(e, value, rank - 1, lambda v: last(e, v, lengths[-1]))
        for dim in others:
            value = _over(e, value, dim, lambda v: transform(e, v, is_inverse=is_inverse))
        if kind == "IRFFT":
            value = _over(e, value, rank - 1, lambda v: last(e, v, lengths[-1]))
            return value.re
    else:
        for dim in (*others, rank - 1):
            value = _over(e, value, dim, lambda v: transform(e, v, is_inverse=is_inverse))
    return e.instruction("complex", (value.re, _imag(e, value)))


def _split(e: Emitter, operand: Instr) -> Pair:
    if not operand.array.dtype.is_complex:
        return Pair(operand, None)
    return Pair(e.unary("real", operand), e.unary("imag", operand))


def _imag(e: Emitter, value: Pair) -> Instr:
    return e.like(value.re, 0) if value.im is None else value.im


def _map(value: Pair, function: Callable[[Instr], Instr]) -> Pair:
    return Pair(function(value.re), None if value.im is None else function(value.im))


def _over(e: Emitter, value: Pair, dim: int, function: Callable[[Pair], Pair]) -> Pair:
    """Apply a function of ``[batch, n]`` along one dimension."""
    dims = value.re.array.dims
    order = (*(d for d in range(len(dims)) if d != dim), dim)
    lead = tuple(dims[d] for d in order[:-1])

    def forth(x: Instr) -> Instr:
        turned = x if order == tuple(range(len(dims))) else e.transpose(x, order)
        return e.shaped(turned, (math.prod(lead), dims[dim]))

    def back(x: Instr) -> Instr:
        whole = e.shaped(x, (*lead, x.array.dims[1]))
        return whole if order == tuple(range(len(dims))) else e.transpose(whole, inverse(order))

    return _map(function(_map(value, forth)), back)


def transform(e: Emitter, value: Pair, *, is_inverse: bool) -> Pair:
    """The transform of the rows of ``[batch, n]``; the inverse is scaled by 1/n."""
    n = value.re.array.dims[1]
    raw = _transform(e, value, 1 if is_inverse else -1)
    return _scaled(e, raw, 1 / n) if is_inverse and n > 1 else raw


def _scaled(e: Emitter, value: Pair, factor: float) -> Pair:
    return _map(value, lambda x: e.multiply(x, e.like(x, factor)))


def _transform(e: Emitter, value: Pair, sign: int) -> Pair:
    """Sums of ``x[j] exp(sign 2 pi i j k / n)``."""
    n = value.re.array.dims[1]
    if n == 1:
        return value
    if n <= MAX_FACTOR:
        return _product(e, value, _roots(n, sign))
    first = _best_factor(n)
    if first == n:
        return _product(e, value, _roots(n, sign)) if n <= MAX_DIRECT else _chirp(e, value, sign)
    return _split_transform(e, value, first, sign)


def _roots(n: int, sign: int) -> Complex:
    """The matrix of a transform, ``[n, n]``; products of positions are reduced exactly."""
    place = np.arange(n, dtype=np.int64)
    return np.asarray(np.exp(sign * 2j * np.pi * (np.outer(place, place) % n) / n))


def _best_factor(n: int) -> int:
    """The largest factor up to `MAX_FACTOR`, or else the smallest prime factor above it."""
    small = [f for f in range(2, min(MAX_FACTOR, n) + 1) if n % f == 0]
    if small:
        return small[-1]
    return next((f for f in range(MAX_FACTOR + 1, math.isqrt(n) + 1) if n % f == 0), n)


def _product(e: Emitter, value: Pair, matrix: Complex) -> Pair:
    """``value x matrix``: one real product with the parts side by side."""
    blocks = [[matrix.real, matrix.imag], [-matrix.imag, matrix.real]]
    if value.im is None:
        left, right = value.re, np.block(blocks[:1])
    else:
        left, right = e.join((value.re, value.im), 1), np.block(blocks)
    both = sliced_dot(e, left, right)
    width = matrix.shape[1]
    return Pair(e.part(both, 1, 0, width), e.part(both, 1, width, 2 * width))


def _times(e: Emitter, value: Pair, factors: Complex) -> Pair:
    """Multiply by constants ``[.., n]``, the trailing dimensions of the value."""
    dims = value.re.array.dims
    places = tuple(range(len(dims) - factors.ndim, len(dims)))
    c, s = (e.broadcast(e.table(F32, t), dims, places) for t in (factors.real, factors.imag))
    if value.im is None:
        return Pair(e.multiply(value.re, c), e.multiply(value.re, s))
    lost, gained = e.negate(e.multiply(value.im, s)), e.multiply(value.im, c)
    return Pair(
        e.instruction("multiply-add", (value.re, c, lost)),
        e.instruction("multiply-add", (value.re, s, gained)),
    )


def _split_transform(e: Emitter, value: Pair, n1: int, sign: int) -> Pair:
    """``x[j1 n2 + j2]`` to ``X[k1 + n1 k2]``."""
    batch, n = value.re.array.dims
    n2 = n // n1

    def turned(x: Instr, rows: int, columns: int) -> Instr:
        return e.transpose(e.reshape(x, (batch, rows, columns)), (0, 2, 1))

    lines = _map(value, lambda x: e.reshape(turned(x, n1, n2), (batch * n2, n1)))
    inner = _map(_transform(e, lines, sign), lambda x: e.reshape(x, (batch, n2, n1)))
    places = np.outer(np.arange(n2, dtype=np.int64), np.arange(n1, dtype=np.int64))
    twiddled = _times(e, inner, np.asarray(np.exp(sign * 2j * np.pi * places / n)))
    columns = _map(twiddled, lambda x: e.reshape(turned(x, n2, n1), (batch * n1, n2)))
    outer = _transform(e, columns, sign)
    return _map(outer, lambda x: e.reshape(turned(x, n1, n2), (batch, n)))


def _chirp(e: Emitter, value: Pair, sign: int) -> Pair:
    """Bluestein: ``jk = (j^2 + k^2 - (k - j)^2) / 2`` makes the sum a convolution."""
    n = value.re.array.dims[1]
    size = 1 << (2 * n - 2).bit_length()
    squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
    chirp = np.exp(sign * 1j * np.pi * squares / n)
    kernel = np.zeros(size, np.complex128)
    kernel[:n] = np.conj(chirp)
    kernel[size - n + 1 :] = np.conj(chirp[:0:-1])
    padded = _map(_times(e, value, chirp), lambda x: e.pad_dim(x, 1, 0, size - n))
    spectrum = _times(e, _transform(e, padded, -1), np.fft.fft(kernel) / size)
    convolved = _map(_transform(e, spectrum, 1), lambda x: e.part(x, 1, 0, n))
    return _times(e, convolved, chirp)


def _half(e: Emitter, value: Pair, n: int) -> Pair:
    """The first half of the transform of real rows; the rest mirrors it."""
    width = n // 2 + 1
    if n <= MAX_FACTOR:
        return _product(e, value, _roots(n, -1)[:, :width])
    return _map(_transform(e, value, -1), lambda x: e.part(x, 1, 0, width))


def _from_half(e: Emitter, value: Pair, n: int) -> Pair:
    """Real rows from the first half of their transform."""
    width = n // 2 + 1
    im = _imag(e, value)
    # the mirror image of n/2 (even n) and of 0 is itself
    mirrored = 1 + (n - width)

    def tail(x: Instr) -> Instr:
        return e.reverse(e.part(x, 1, 1, mirrored), (1,))

    # What is no transform of real numbers has imaginary parts there that do not count.
    if width > 0:
        im = _without_self_mirrored(e, im, n)
    if mirrored > 1:
        re = e.join((value.re, tail(value.re)), 1)
        im = e.join((im, e.negate(tail(im))), 1)
    else:
        re = value.re
    whole = transform(e, Pair(re, im), is_inverse=True)
    return Pair(whole.re, None)


def _without_self_mirrored(e: Emitter, im: Instr, n: int) -> Instr:
    place = e.positions(im.array.dims, 1)
    own = e.compare_to(place, 0, "EQ")
    if n % 2 == 0:
        own = e.or_(own, e.compare_to(place, n // 2, "EQ"))
    return e.select(own, e.like(im, 0), im)
