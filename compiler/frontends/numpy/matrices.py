"""Operands and results of linear algebra: their types, and the dimensions that are wanted."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from compiler.frontends.numpy.errors import BadMatrixError
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.promotion import float_dtype, promote_pair
from compiler.frontends.numpy.tracer import Trace


def expect_matrices(name: str, x: Any, *, square: bool = False) -> None:
    """BadMatrixError unless `x` is a batch of matrices."""
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise BadMatrixError(f"np.linalg.{name}: {x!r}, want {kind}: the last two axes")


def matrices(trace: Trace, name: str, a: Any, *, square: bool = False) -> Any:
    """The operand in f32 or c64, which is a batch of matrices."""
    x: Any = traced(trace, a)
    expect_matrices(name, x, square=square)
    return x if x.dtype.kind == "c" else x.astype(np.float32)


def result_dtype(trace: Trace, *values: Any) -> Any:
    """The type of a result: the operands', f32 for integers."""
    dtypes = [float_dtype(traced(trace, value).dtype) for value in values]
    return functools.reduce(promote_pair, dtypes)


def real_dtype(dtype: Any) -> Any:
    """The type of the sizes of elements."""
    return np.dtype(np.float32) if dtype.kind == "c" else dtype


def epsilon(dtype: Any) -> float:
    """The distance from 1 to the next number of the type that is computed in."""
    return float(np.finfo(np.float32).eps) if dtype.kind in "fc" else 0.0


def column(trace: Trace, value: Any) -> Any:
    """A number for each matrix, beside singular values."""
    x: Any = traced(trace, value)
    return x[..., None] if x.ndim else x
