"""The identity element of a binary operation in a type: what every reduction pads and starts with.

This is the only place that knows them. A type need not have one: f8e8m0fnu has no zero, types
without infinities have finite extremes, and complex numbers have no order.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from compiler.hlo.dtypes import DType

MONOIDS = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
"""Opcodes that are associative and commutative with an identity in most types."""


Number = float | int


@lru_cache(maxsize=256)
def identity(kind: str, dtype: DType) -> Number | None:
    """The e with ``kind(e, x) == x`` for every x of the type, or None if there is none.

    A sum of floats has -0.0, where the type has it: 0.0 would make -0.0 positive. A complex product
    has 1 for finite numbers: infinity times 0 makes a NaN part.
    """
    if kind in ("maximum", "minimum"):
        return None if dtype.is_complex else _extreme(dtype, lowest=kind == "maximum")
    if kind in ("and", "or", "xor") and not (dtype.is_integer or dtype.kind == "pred"):
        return None
    match kind:
        case "add":
            return _zero(dtype)
        case "multiply":
            return 1
        case "or" | "xor":
            return 0
        case "and":
            return -1 if dtype.is_signed else _extreme(dtype, lowest=False)
    return None


def is_identity(kind: str, dtype: DType, value: object) -> bool:
    """Whether ``kind(value, x) == x`` for every x; either zero counts for a sum."""
    found = identity(kind, dtype)
    return found is not None and bool(np.asarray(value) == np.asarray(found).astype(dtype.numpy))


def _zero(dtype: DType) -> float | int | None:
    if not dtype.is_float and not dtype.is_complex:
        return 0
    if float(np.asarray(0.0).astype(dtype.numpy).real) != 0:
        return None
    return -0.0 if dtype.is_float else 0


def _extreme(dtype: DType, *, lowest: bool) -> float | int:
    """The least or greatest value of the type, NaN aside."""
    if dtype.is_float:
        return _float_extreme(dtype, lowest=lowest)
    if dtype.kind == "pred":
        return 0 if lowest else 1
    if lowest:
        return -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
    return (1 << (dtype.bits - dtype.is_signed)) - 1


def _float_extreme(dtype: DType, *, lowest: bool) -> float:
    wanted = -np.inf if lowest else np.inf
    if dtype.bits > 8:
        return wanted
    values = all_values(dtype)
    return float(np.nanmin(values) if lowest else np.nanmax(values))


def all_values(dtype: DType) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """What each code of a float type of at most 8 bits means, as f32."""
    codes = np.arange(1 << dtype.bits, dtype=np.uint8)
    return codes.view(dtype.numpy).astype(np.float32)
