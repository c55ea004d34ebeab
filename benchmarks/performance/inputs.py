"""Seeded inputs, made in pieces so that making them does not count as the model's memory."""

from __future__ import annotations

import math
import re

import numpy as np
import numpy.typing as npt

from compiler.hlo.shape import ArrayShape

_PIECE = 1 << 20
_PARAMETER = re.compile(r"%?([\w.\-]+) = [^=]* parameter\((\d+)\)")
Array = npt.NDArray[np.generic]


def named_parameters(text: str, word: str) -> list[int]:
    """Numbers of the entry's parameters whose name has `word` in it; none for an empty word."""
    entry = text[text.index("ENTRY") :]
    found = _PARAMETER.findall(entry)
    return [int(number) for name, number in found if word and word in name]


def random_input(
    shape: ArrayShape, seed: int, number: int, integer_limit: int, *, positive: bool = False
) -> Array:
    """Input `number`: floats 0.1 N(0, 1), integers uniform in [0, integer_limit), fair pred.

    With `positive` the absolute values.
    """
    rng = np.random.default_rng((seed, number))
    result = np.empty(shape.dims, shape.dtype.numpy)
    flat = result.reshape(-1)
    for start in range(0, math.prod(shape.dims), _PIECE):
        piece = flat[start : start + _PIECE]
        piece[:] = _values(rng, piece, shape, integer_limit)
        if positive:
            piece[:] = np.abs(piece)
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
