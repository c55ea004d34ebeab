"""Arguments of a module, made up from its text alone.

A parameter's name ends in the kind of its values, so that a module in a file needs no arrays:

_any        numbers of every size, with the type's special values among them
_tame       normal numbers and halves: sums and products of a few are finite and round
_whole      small integers (also as floats): sums and products do not round
_small      integers from -4 to 10
_index      indices: mostly inside of small arrays, some outside
_positive   from 0.5 up
_definite   Hermitian, positive definite, well-conditioned matrices
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloModule
from compiler.hlo.shape import ArrayShape, leaves

Array = npt.NDArray[Any]
KINDS = ("any", "tame", "whole", "small", "index", "positive", "definite")


def inputs_for(module: HloModule, seed: int = 0) -> list[Array]:
    """The leaves of the parameters in order."""
    made = []
    for parameter in module.entry.parameters:
        stem, _, kind = parameter.name.rpartition("_")
        kind = kind if stem and kind in KINDS else "tame"
        for number, shape in enumerate(leaves(parameter.shape)):
            rng = np.random.default_rng([seed, zlib.crc32(f"{parameter.name} {number}".encode())])
            made.append(values(rng, shape, kind))
    return made


def values(rng: np.random.Generator, shape: ArrayShape, kind: str) -> Array:
    """An array of one kind."""
    dtype, dims = shape.dtype, shape.dims
    if dtype.kind == "pred":
        return np.asarray(rng.random(dims) < rng.choice([0.5, 0.5, 0.1, 0.9]))
    if dtype.is_integer:
        return _integers(rng, dtype, dims, kind)
    with np.errstate(all="ignore"):
        if dtype.is_complex and kind == "definite":
            return _hermitian(rng, dims).astype(dtype.numpy)
        if dtype.is_complex:
            re, im = (_floats(rng, dims, kind, dtype) for _ in range(2))
            both = re + 1j * im if kind != "any" else _joined(re, im)
            return np.asarray(both).astype(dtype.numpy)
        drawn = np.asarray(_floats(rng, dims, kind, dtype))
        if dtype.name == "f8e8m0fnu" and kind != "any":  # powers of two are all it has
            drawn = np.exp2(np.rint(drawn))
        return drawn.astype(np.float32).astype(dtype.numpy)


def _hermitian(rng: np.random.Generator, dims: tuple[int, ...]) -> Array:
    x = (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)) * 0.3
    turned = np.conj(np.swapaxes(x, -1, -2))
    return np.asarray(x @ turned / dims[-1] + 2 * np.eye(dims[-1]))


def _joined(re: Array, im: Array) -> Array:
    result = np.empty(re.shape, np.complex128)
    result.real, result.imag = re, im
    return result


def _integers(rng: np.random.Generator, dtype: DType, dims: tuple[int, ...], kind: str) -> Array:
    low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    high = (1 << (dtype.bits - (1 if dtype.is_signed else 0))) - 1
    holder = np.int64 if dtype.is_signed else np.uint64
    if kind == "any":
        drawn = rng.integers(low, high, dims, dtype=holder, endpoint=True)
        edges = np.array([low, high, 0, 1, high // 2, low + 1], holder)
        at_edge = rng.random(dims) < 0.3
        return np.asarray(np.where(at_edge, rng.choice(edges, dims), drawn)).astype(dtype.numpy)
    reach = int(rng.choice([4, 10, 140])) if kind == "index" else 10
    bottom = max(low, -4)
    drawn = rng.integers(bottom, min(high, reach), dims, dtype=holder, endpoint=True)
    return np.asarray(drawn).astype(dtype.numpy)


def _floats(rng: np.random.Generator, dims: tuple[int, ...], kind: str, dtype: DType) -> Array:
    if kind == "any":
        return _anything(rng, dims, dtype)
    if kind == "whole":
        return rng.integers(-4, 4, dims, endpoint=True).astype(np.float64)
    if kind == "positive":
        return np.abs(rng.standard_normal(dims)) + 0.5
    if kind == "definite" and len(dims) >= 2 and dims[-1] == dims[-2]:
        x = rng.standard_normal(dims) * 0.3
        n = dims[-1]
        return np.asarray(x @ np.swapaxes(x, -1, -2) / n + 2 * np.eye(n))
    drawn = rng.standard_normal(dims)
    return np.clip(np.where(rng.random(dims) < 0.3, np.rint(2 * drawn) / 2, drawn), -7, 7)


def _anything(rng: np.random.Generator, dims: tuple[int, ...], dtype: DType) -> Array:
    exponents = rng.uniform(-3, 3, dims) if dtype.bits <= 16 else rng.uniform(-30, 30, dims)
    drawn = rng.standard_normal(dims) * 10.0 ** np.where(rng.random(dims) < 0.2, exponents, 0)
    largest = 3.4028234e38 if dtype.bits >= 32 or dtype.name == "bf16" else 65504.0
    special = np.array(
        [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, largest, -largest, 1e-40, 1e-38, 6e-8]
    )
    return np.asarray(np.where(rng.random(dims) < 0.15, rng.choice(special, dims), drawn))
