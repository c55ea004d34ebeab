"""FFT expander: discrete Fourier transforms as `pair-fft`, whose kernel has a whole line in VMEM.

    few, or of small primes one `pair-fft`
    n1 * n2, long lines     transforms of n1, twiddle factors, transforms of n2 (Cooley, Tukey)
    a large prime factor    a convolution of a length of small primes (Bluestein)

Values are pairs of f32 arrays. Constants are computed in f64. docs/fft.md says what comes of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.analysis import vmem_shares
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import F32
from compiler.hlo.fourier import has_kernel, is_smooth, root_rows, roots
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.pattern import splat_value
from tpu_sim.isa.geometry import LANES, ROW_BYTES

Instr = HloInstruction
Complex = npt.NDArray[np.complex128]
MOST_POINTS = 4096
"""Of a transform in one kernel."""
_STREAM_ROWS = 8
_SPARE_ROWS = 4
"""A point's rows in VMEM: both parts of operand and result in two buffers; two blocks between stages."""
_FEW_COLUMNS = 3
"""How many times fewer than the lanes make two transposes pay."""


@dataclass(frozen=True)
class ComplexParts:
    """Real and imaginary parts, of equal shape; without `im` the value is real."""

    re: Instr
    im: Instr | None


def expand_ffts(module: HloModule, context: PassContext) -> bool:
    """Expand every `fft`."""
    rows = int(context.chip.vmem_bytes * vmem_shares.LARGE_BLOCKS) // ROW_BYTES
    return expand(module, context, {"fft": lambda instr: expand_fft(instr, rows)})


def expand_fft(instr: Instr, vmem_rows: int) -> Instr | None:
    """The transform over the last dimensions, the real-valued one always the last."""
    e = Emitter.at(instr)
    lines = TransformLines(e, vmem_rows)
    operand, kind = instr.operands[0], instr.fft_type
    if operand.array.dtype.name not in ("f32", "c64"):
        raise UnsupportedError(
            f"%{instr.name}: fft of {operand.array.dtype}; convert to f32 or c64", instr.span
        )
    lengths = instr.fft_length
    if 0 in instr.array.dims:
        return e.full(instr.array.dtype, instr.array.dims, 0)
    is_inverse = kind in ("IFFT", "IRFFT")
    value = _split(e, operand)
    rank = operand.array.rank
    others = range(rank - len(lengths), rank - 1)
    dims = [*others, rank - 1]
    if kind == "RFFT":
        dims.reverse()
    for dim in dims:
        is_half = dim == dims[-1] and (kind == "IRFFT" or _is_only_real_read(instr))
        if kind == "IRFFT" and dim == rank - 1:
            value = _mirrored(e, value, lengths[-1])
        value = lines.transform(value, dim, is_inverse=is_inverse, is_half=is_half)
        if kind == "RFFT" and dim == rank - 1:
            value = _map(value, lambda x: e.part(x, rank - 1, 0, lengths[-1] // 2 + 1))
    return value.re if kind == "IRFFT" else e.instruction("complex", (value.re, _imag(e, value)))


def _is_only_real_read(instr: Instr) -> bool:
    """Whether nothing reads imaginary parts: they need not be made, zeros stand for them."""
    is_root = instr.computation is not None and instr.computation.root is instr
    return not is_root and all(user.opcode == "real" for user in instr.users)


def _split(e: Emitter, operand: Instr) -> ComplexParts:
    if not operand.array.dtype.is_complex:
        return ComplexParts(operand, None)
    if operand.opcode == "convert" and not operand.operands[0].array.dtype.is_complex:
        return ComplexParts(e.cast(operand.operands[0], F32), None)
    if operand.opcode == "complex" and splat_value(operand.operands[1]) == 0:
        return ComplexParts(operand.operands[0], None)
    return ComplexParts(e.unary("real", operand), e.unary("imag", operand))


def _imag(e: Emitter, value: ComplexParts) -> Instr:
    return e.like(value.re, 0) if value.im is None else value.im


def _map(value: ComplexParts, function: Callable[[Instr], Instr]) -> ComplexParts:
    return ComplexParts(function(value.re), None if value.im is None else function(value.im))


class TransformLines:
    """Transforms of values along a dimension; a kernel takes `vmem_rows` rows of VMEM at most."""

    def __init__(self, e: Emitter, vmem_rows: int) -> None:
        self.e = e
        self.vmem_rows = vmem_rows

    def transform(
        self, value: ComplexParts, dim: int, *, is_inverse: bool, is_half: bool = False
    ) -> ComplexParts:
        """Along one dimension; the inverse is scaled by 1/n. With `is_half` real parts will do."""
        n = value.re.array.dims[dim]
        if n == 1:
            return value
        if self._fits(n):
            return self._kernel(value, dim, is_inverse=is_inverse, is_half=is_half)
        if not is_smooth(n):
            return self._chirp(value, dim, is_inverse=is_inverse)
        return self._cut(value, dim, is_inverse=is_inverse, is_half=is_half)

    def _fits(self, n: int) -> bool:
        """Whether one kernel takes lines of n points: blocks of them, and a row for each root."""
        if n > MOST_POINTS or not has_kernel(n):
            return False
        blocks = _STREAM_ROWS * (-(-n // LANES) * LANES) + _SPARE_ROWS * n
        return blocks + LANES * root_rows(n) < self.vmem_rows

    def _kernel(
        self, value: ComplexParts, dim: int, *, is_inverse: bool, is_half: bool
    ) -> ComplexParts:
        """One `pair-fft`; of few columns a row for each."""
        e, dims = self.e, value.re.array.dims
        before, n, after = math.prod(dims[:dim]), dims[dim], math.prod(dims[dim + 1 :])
        shape, along = ((1, before, n), 2) if after == 1 else ((before, n, after), 1)
        flat = _map(value, lambda x: e.shaped(x, shape))
        if along == 1 and after * _FEW_COLUMNS < LANES and before * after >= LANES:
            turned = _map(flat, e.swap_last)
            done = self._kernel(turned, 2, is_inverse=is_inverse, is_half=is_half)
            done = _map(done, e.swap_last)
        else:
            parts = (flat.re,) if flat.im is None else (flat.re, flat.im)
            kind = "IFFT" if is_inverse else "FFT"
            made = e.instruction(
                "pair-fft",
                (e.table(F32, roots(n)), *parts),
                {"fft_type": kind, "fft_length": (n,), "dimensions": (along,)},
                flat.re.shape if is_half else None,
            )
            if is_half:
                done = ComplexParts(made, None)
            else:
                done = ComplexParts(e.get_tuple_element(made, 0), e.get_tuple_element(made, 1))
        return _map(done, lambda x: e.shaped(x, dims))

    def _cut(
        self, value: ComplexParts, dim: int, *, is_inverse: bool, is_half: bool
    ) -> ComplexParts:
        """``x[j1 n2 + j2]`` to ``X[k1 + n1 k2]``."""
        e, dims = self.e, value.re.array.dims
        n = dims[dim]
        factors = (f for f in range(math.isqrt(n), 1, -1) if n % f == 0 and self._fits(f))
        n1 = next(factors, 0)
        if not n1:
            raise UnsupportedError(
                f"%{e.near.name}: fft of {n} points: VMEM has no room for one of their factors; "
                "take a chip with more"
            )
        n2 = n // n1
        cut = (*dims[:dim], n1, n2, *dims[dim + 1 :])
        inner = _map(value, lambda x: e.reshape(x, cut))
        inner = self.transform(inner, dim, is_inverse=is_inverse)
        places = np.outer(np.arange(n1, dtype=np.int64), np.arange(n2, dtype=np.int64))
        sign = 1 if is_inverse else -1
        twiddled = _times(e, inner, np.exp(sign * 2j * np.pi * places / n), dim)
        outer = self.transform(twiddled, dim + 1, is_inverse=is_inverse, is_half=is_half)
        order = (*range(dim), dim + 1, dim, *range(dim + 2, len(cut)))
        return _map(outer, lambda x: e.reshape(e.transpose(x, order), dims))

    def _chirp(self, value: ComplexParts, dim: int, *, is_inverse: bool) -> ComplexParts:
        """Bluestein: ``jk = (j^2 + k^2 - (k - j)^2) / 2`` makes the sum a convolution."""
        e, n = self.e, value.re.array.dims[dim]
        size = convolution_length(n)
        squares = np.arange(n, dtype=np.int64) ** 2 % (2 * n)
        chirp = np.exp((1j if is_inverse else -1j) * np.pi * squares / n)
        kernel = np.zeros(size, np.complex128)
        kernel[:n] = np.conj(chirp)
        kernel[size - n + 1 :] = np.conj(chirp[:0:-1])
        start = _times(e, value, chirp, dim)
        padded = _map(start, lambda x: e.pad_dim(x, dim, 0, size - n))
        spectrum = _times(e, self.transform(padded, dim, is_inverse=False), np.fft.fft(kernel), dim)
        convolved = self.transform(spectrum, dim, is_inverse=True)
        kept = _map(convolved, lambda x: e.part(x, dim, 0, n))
        return _times(e, kept, chirp / n if is_inverse else chirp, dim)


def convolution_length(n: int) -> int:
    """The least multiple of 8 of primes up to 7 that holds a convolution of n and 2 n - 1 values.

    >>> convolution_length(17), convolution_length(521)
    (40, 1080)
    """
    size = -(-(2 * n - 1) // 8) * 8
    while not _is_of_small_primes(size):
        size += 8
    return size


def _is_of_small_primes(n: int) -> bool:
    for prime in (2, 3, 5, 7):
        while n % prime == 0:
            n //= prime
    return n == 1


def _times(e: Emitter, value: ComplexParts, factors: Complex, dim: int) -> ComplexParts:
    """Multiply by constants that lie along the dimensions from `dim` on."""
    dims = value.re.array.dims
    places = tuple(range(dim, dim + factors.ndim))
    c, s = (e.broadcast(e.table(F32, t), dims, places) for t in (factors.real, factors.imag))
    if value.im is None:
        return ComplexParts(e.multiply(value.re, c), e.multiply(value.re, s))
    lost, gained = e.negate(e.multiply(value.im, s)), e.multiply(value.im, c)
    return ComplexParts(
        e.instruction("multiply-add", (value.re, c, lost)),
        e.instruction("multiply-add", (value.re, s, gained)),
    )


def _mirrored(e: Emitter, value: ComplexParts, n: int) -> ComplexParts:
    """All n points of the transform of real lines from the first half, the last dimension's.

    What is no transform of real numbers has imaginary parts at 0 and n/2, which are their own
    mirror images; these do not count.
    """
    dim = value.re.array.rank - 1
    width = n // 2 + 1
    last = 1 + (n - width)

    def tail(x: Instr) -> Instr:
        return e.reverse(e.part(x, dim, 1, last), (dim,))

    im = _without_self_mirrored(e, _imag(e, value), n)
    if last == 1:
        return ComplexParts(value.re, im)
    return ComplexParts(
        e.join((value.re, tail(value.re)), dim), e.join((im, e.negate(tail(im))), dim)
    )


def _without_self_mirrored(e: Emitter, im: Instr, n: int) -> Instr:
    place = e.positions(im.array.dims, im.array.rank - 1)
    own = e.compare_to(place, 0, "EQ")
    if n % 2 == 0:
        own = e.or_(own, e.compare_to(place, n // 2, "EQ"))
    return e.select(own, e.like(im, 0), im)
