"""Identities of reductions, over every type and value."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME, DType
from compiler.hlo.evaluator.monoid import Monoid
from compiler.hlo.evaluator.numerics import widen
from compiler.hlo.identities import MONOIDS, identity, is_identity


def some_values(dtype: DType) -> np.ndarray:
    if dtype.kind == "pred":
        return np.array([False, True])
    if dtype.bits <= 8 and dtype.is_float:
        return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    if dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        high = (1 << (dtype.bits - dtype.is_signed)) - 1
        return np.array([low, low + 1, 0, 1, high - 1, high], object).astype(dtype.numpy)
    edges = np.array([-np.inf, -1.5, -0.0, 0.0, 1e-3, 2.0, np.inf, np.nan])
    return (edges[1:-2] if dtype.is_complex else edges).astype(dtype.numpy)


@pytest.mark.parametrize("name", sorted(BY_NAME))
@pytest.mark.parametrize("kind", sorted(MONOIDS))
def test_an_identity_changes_nothing(kind: str, name: str) -> None:
    dtype = BY_NAME[name]
    found = identity(kind, dtype)
    if found is None:
        return
    neutral = np.asarray(found).astype(dtype.numpy)
    assert is_identity(kind, dtype, neutral[()])
    values = some_values(dtype)
    with np.errstate(all="ignore"):
        got = Monoid(kind).combine(widen(values), widen(neutral)).astype(dtype.numpy)
    if dtype.is_integer or dtype.kind == "pred":
        assert (got.astype(object) == values.astype(object)).all()
        return
    x, y = got.astype(np.complex128), values.astype(np.complex128)
    assert np.array_equal(x, y, equal_nan=True)
    if dtype.is_float:
        a, b = got.astype(np.float64), values.astype(np.float64)
        number = ~np.isnan(b)
        assert (np.signbit(a) == np.signbit(b))[number].all()


def test_types_without_an_identity() -> None:
    assert identity("add", BY_NAME["f8e8m0fnu"]) is None
    assert identity("maximum", BY_NAME["c64"]) is None
    assert identity("xor", BY_NAME["f32"]) is None
    assert identity("maximum", BY_NAME["f8e4m3fn"]) == -448
    assert identity("maximum", BY_NAME["f8e8m0fnu"]) == 2.0**-127
    assert identity("and", BY_NAME["u8"]) == 255
