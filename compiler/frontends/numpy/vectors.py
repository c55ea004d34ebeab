"""Products of vectors beside the dots of `products`.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.tracer import Rule, Trace


def cross(
    trace: Trace,
    a: Any,
    b: Any,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: Any = None,
) -> Any:
    """np.cross of vectors of three elements."""
    if axis is not None:
        axisa = axisb = axisc = axis
    x: Any = np.moveaxis(traced(trace, a), axisa, -1)
    y: Any = np.moveaxis(traced(trace, b), axisb, -1)
    if x.shape[-1] != 3 or y.shape[-1] != 3:
        raise BadValueError("np.cross: want vectors of three elements")
    turned = (((i + 1) % 3, (i + 2) % 3) for i in range(3))
    parts = [x[..., j] * y[..., k] - x[..., k] * y[..., j] for j, k in turned]
    return np.stack(parts, axis=axisc)


def _kron(trace: Trace, a: Any, b: Any) -> Any:
    x, y = traced(trace, a), traced(trace, b)
    rank = max(x.ndim, y.ndim)
    left = (1,) * (rank - x.ndim) + x.shape
    right = (1,) * (rank - y.ndim) + y.shape
    spread: Any = np.reshape(x, [n for size in left for n in (size, 1)])
    repeated: Any = np.reshape(y, [n for size in right for n in (1, size)])
    return np.reshape(spread * repeated, [m * n for m, n in zip(left, right, strict=True)])


def vecdot(trace: Trace, x1: Any, x2: Any, *, axis: int = -1) -> Any:
    """np.vecdot: the first vectors are conjugated."""
    products: Any = np.conj(traced(trace, x1)) * traced(trace, x2)
    return np.sum(products, axis=axis).astype(products.dtype)


def _matvec(trace: Trace, x1: Any, x2: Any) -> Any:
    product: Any = np.matmul(traced(trace, x1), traced(trace, x2)[..., None])
    return product[..., 0]


def _vecmat(trace: Trace, x1: Any, x2: Any) -> Any:
    product: Any = np.matmul(np.conj(traced(trace, x1))[..., None, :], traced(trace, x2))
    return product[..., 0, :]


VECTORS_FUNCTIONS: dict[object, Rule] = {
    np.cross: cross,
    np.kron: _kron,
}

VECTORS_UFUNCS: dict[np.ufunc, Rule] = {np.vecdot: vecdot}
for _name, _rule in (("matvec", _matvec), ("vecmat", _vecmat)):  # since NumPy 2.2
    if hasattr(np, _name):
        VECTORS_UFUNCS[getattr(np, _name)] = _rule
