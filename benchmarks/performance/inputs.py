"""Seeded inputs, made in pieces so that making them does not count as the model's memory."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from compiler.hlo.shape import ArrayShape

_PIECE = 1 << 20
Array = npt.NDArray[np.generic]


def random_input(shape: ArrayShape, seed: int, number: int, integer_limit: int) -> Array:
    """Input `number`: floats 0.1 N(0, 1), integers uniform in [0, integer_limit), fair pred."""
    rng = np.random.default_rng((seed, number))
    result = np.empty(shape.dims, shape.dtype.numpy)
    flat = result.reshape(-1)
    for start in range(0, math.prod(shape.dims), _PIECE):
        piece = flat[start : start + _PIECE]
        piece[:] = _values(rng, piece, shape, integer_limit)
    return result


def _values(rng: np.random.Generator, piece: Array, shape: ArrayShape, integer_limit: int) -> Array:
    dtype = shape.dtype
    if dtype.kind == "pred":
        return rng.integers(0, 2, piece.shape).astype(np.bool_)
    if dtype.is_integer:
        limit = min(integer_limit, 1 << (dtype.bits - (1 if dtype.is_signed else 0)))
        return rng.integers(0, limit, piece.shape).astype(piece.dtype)
    values = rng.standard_normal(piece.shape, np.float32) * np.float32(0.1)
    if dtype.is_complex:
        imaginary = rng.standard_normal(piece.shape, np.float32) * np.float32(0.1)
        return (values + 1j * imaginary).astype(piece.dtype)
    return values.astype(piece.dtype)
