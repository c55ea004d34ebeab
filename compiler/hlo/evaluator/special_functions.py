"""Functions NumPy lacks or computes less exactly than XLA: erf, logistic, sign, float rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Unary: TypeAlias = Callable[[Array], Array]

_GRID_STEP = 1.0 / 64.0
_ERF_IS_ONE = 6.0  # erf(6) rounds to 1 in f64
_MATH_ERF = np.vectorize(math.erf, otypes=[np.float64])
_GRID = np.arange(round(_ERF_IS_ONE / _GRID_STEP) + 2) * _GRID_STEP
_ERF_AT_GRID = _MATH_ERF(_GRID)


def in_double(function: Unary) -> Unary:
    """Compute a function in f64 (complex128), so that the rounding to f32 is the only error."""

    def wrapped(x: Array) -> Array:
        wide = np.complex128 if x.dtype.kind == "c" else np.float64
        return function(x.astype(wide)).astype(x.dtype)

    return wrapped


def complex_in_double(function: Unary) -> Unary:
    """Compute complex64 in complex128; real types as they are."""
    precise = in_double(function)
    return lambda x: precise(x) if x.dtype.kind == "c" else function(x)


def exponential(x: Array) -> Array:
    """e to the power of x; a complex x without an angle has NaN, as in XLA, whatever its size."""
    found = np.exp(x)
    if x.dtype.kind == "c":
        found = np.where(np.isfinite(x.imag), found, complex(np.nan, np.nan)).astype(x.dtype)
    return found


def erf(x: Array) -> Array:
    """The error function: the C library's in f64; for f32 a Taylor expansion at a 1/64 grid."""
    if x.dtype == np.float64:
        return np.asarray(_MATH_ERF(x)) if x.size else x
    magnitude = np.minimum(np.abs(x.astype(np.float64)), _ERF_IS_ONE)
    known = np.where(np.isnan(magnitude), 0.0, magnitude)
    index = np.rint(known / _GRID_STEP).astype(np.int64)
    z = _GRID[index]
    d = magnitude - z
    slope = (2.0 / math.sqrt(math.pi)) * np.exp(-z * z)
    # Successive derivatives of exp(-z*z) are Hermite polynomials times it.
    fifth = (16 * z**4 - 48 * z**2 + 12) / 120
    series = 1 + d * (-z + d * ((2 * z * z - 1) / 3 + d * (z * (3 - 2 * z * z) / 6 + d * fifth)))
    result: Array = np.copysign(_ERF_AT_GRID[index] + slope * d * series, x).astype(x.dtype)
    return result


def logistic(x: Array) -> Array:
    """``1 / (1 + exp(-x))``."""
    return quotient(np.ones_like(x), 1 + exponential(-x)).astype(x.dtype)


def rsqrt(x: Array) -> Array:
    """``1 / sqrt(x)``, rounded once from f64."""
    return quotient(np.ones_like(x), np.sqrt(x))


def quotient(x: Array, y: Array) -> Array:
    """``x / y`` of floats; of complex numbers as C has it (annex G), where NumPy has NaN."""
    found = np.asarray(np.divide(x, y))
    if found.dtype.kind != "c":
        return found
    is_lost = np.isnan(found.real) & np.isnan(found.imag)
    for factor, is_special in (
        (np.inf, np.isinf(x) & np.isfinite(y)),
        (0.0, np.isfinite(x) & np.isinf(y)),
    ):
        special = _times(factor, _unit(x) * np.conj(_unit(y)))
        found = np.where(is_lost & is_special, special, found)
    known = ~(np.isnan(x.real) & np.isnan(x.imag))
    return np.where(is_lost & known & (y == 0), _times(np.copysign(np.inf, y.real), x), found)


def _unit(x: Array) -> Array:
    """A number with infinite parts stands for its direction: 1 for infinity, 0 for the rest."""
    unit = np.copysign(np.isinf(x.real), x.real) + 1j * np.copysign(np.isinf(x.imag), x.imag)
    return np.where(np.isinf(x), unit, x)


def _times(factor: Array | float, x: Array) -> Array:
    """A real factor times a complex number, part by part."""
    parts = np.empty(x.shape, x.dtype)
    parts.real, parts.imag = factor * x.real, factor * x.imag
    return parts


def cbrt(x: Array) -> Array:
    """The real cube root; for complex values the principal power."""
    return np.power(x, 1.0 / 3.0) if x.dtype.kind == "c" else np.cbrt(x)


def sign(x: Array) -> Array:
    """-1, 0 or 1; zeros keep their sign, NaN stays NaN; complex values go to the unit circle."""
    if x.dtype.kind == "f":
        return np.where((x == 0) | np.isnan(x), x, np.copysign(np.ones((), x.dtype), x))
    if x.dtype.kind == "c":
        size = np.abs(x)
        unit = np.where(size == 0, x, x / np.where(size == 0, 1, size))
        return np.where(np.isnan(x), np.asarray(complex(math.nan, math.nan), x.dtype), unit)
    return np.asarray(np.sign(x))


def round_half_away(x: Array) -> Array:
    """Round to the nearest integer, ties away from zero."""
    whole = np.trunc(x)
    step = np.copysign((np.abs(x - whole) >= 0.5).astype(x.dtype), x)
    return np.asarray(np.copysign(whole + step, x))


def negate(x: Array) -> Array:
    """``-x``; unsigned integers wrap."""
    return np.negative(x)


def absolute(x: Array) -> Array:
    """``|x|``; the modulus of a complex value; the most negative integer stays itself."""
    return np.asarray(np.abs(x))


def log1p(x: Array) -> Array:
    """``log(1 + x)``, exact near 0, also for complex values."""
    if x.dtype.kind != "c":
        return np.log1p(x)
    # |1 + z|^2 = 1 + (2 re + re^2 + im^2), which keeps the low bits of a small z.
    re, im = np.real(x), np.imag(x)
    modulus = np.where(
        np.abs(x) < 0.5, 0.5 * np.log1p(re * (2 + re) + im * im), np.log(np.abs(1 + x))
    )
    return np.asarray(modulus + 1j * np.arctan2(im, 1 + re))


def expm1(x: Array) -> Array:
    """``exp(x) - 1``, exact near 0, also for complex values."""
    return np.asarray(np.expm1(x))


def round_significand(bits: Array, exponent_bits: int, mantissa_bits: int, source: Format) -> Array:
    """XLA's reduce-precision on raw float bits: round to nearest even, overflow to inf, flush."""
    word = bits.dtype.type
    sign_mask = word(1 << (source.exponent_bits + source.mantissa_bits))
    infinity = word(((1 << source.exponent_bits) - 1) << source.mantissa_bits)
    is_nan = (bits & ~sign_mask) > infinity
    result = bits
    drop = source.mantissa_bits - mantissa_bits
    if drop > 0:
        odd = (result >> word(drop)) & word(1)
        result = result + odd + word((1 << (drop - 1)) - 1)
        result = result & ~word((1 << drop) - 1)
    if exponent_bits < source.exponent_bits:
        bias = (1 << (source.exponent_bits - 1)) - 1
        reduced_bias = (1 << (exponent_bits - 1)) - 1
        exponent = result & infinity
        too_large = exponent > word((bias + reduced_bias) << source.mantissa_bits)
        too_small = exponent <= word((bias - reduced_bias) << source.mantissa_bits)
        signed_zero = result & sign_mask
        result = np.where(too_large, signed_zero | infinity, result)
        result = np.where(too_small, signed_zero, result)
    # NaN stays NaN, also without mantissa bits: XLA's CPU code has it so, its folding makes infinity.
    return np.where(is_nan, bits, result).astype(bits.dtype)


class Format:
    """Field widths of a binary float format."""

    def __init__(self, exponent_bits: int, mantissa_bits: int) -> None:
        self.exponent_bits = exponent_bits
        self.mantissa_bits = mantissa_bits


FORMATS = {
    "f16": Format(5, 10),
    "bf16": Format(8, 7),
    "f32": Format(8, 23),
    "f64": Format(11, 52),
}
