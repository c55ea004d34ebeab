"""Arrays made of nothing, as HLO: a constant spread, positions, diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.frontends.numpy.errors import BadNumberError
from compiler.frontends.numpy.ops import binary, compare, constant_like, convert, full, iota
from compiler.frontends.numpy.tracer import Trace, Tracer
from compiler.hlo.host_types import NumpyDType


def filled(trace: Trace, dims: Sequence[int], value: Any, dtype: NumpyDType) -> Tracer:
    """One value everywhere."""
    return full(trace, dims, np.asarray(value, dtype), dtype)


def require_fit(values: range, dtype: NumpyDType) -> None:
    """Raise `BadNumberError` for a range with numbers that an integer type does not hold."""
    limits = _limits(dtype)
    for end in (values[0], values[-1]) if values else ():
        if limits and end not in limits:
            raise BadNumberError(f"arange: {end} does not fit {dtype}; want a wider dtype=")


def _limits(dtype: NumpyDType) -> range | None:
    """The numbers of an integer type."""
    if dtype.kind not in "iu":
        return None
    info = np.iinfo(dtype.name)
    return range(info.min, info.max + 1)


def counted(trace: Trace, values: range, dtype: NumpyDType) -> Tracer:
    """The numbers of a range, counted in 32 bits where those hold them, else in `dtype`."""
    small = np.iinfo(np.int32)
    fits = all(small.min <= n <= small.max for n in (values.start, values.step, values.stop))
    positions = iota(trace, (len(values),), 0, np.int32 if fits else dtype)
    if values.step != 1:
        positions = binary("multiply", positions, constant_like(positions, values.step))
    if values.start:
        positions = binary("add", positions, constant_like(positions, values.start))
    return convert(positions, dtype)


def diagonal_mask(
    trace: Trace, dims: tuple[int, int], k: int, direction: str, dtype: NumpyDType
) -> Tracer:
    """1 where ``column - row`` compares to k as `direction` says, else 0."""
    rows, columns = (iota(trace, dims, axis) for axis in (0, 1))
    distance = binary("subtract", columns, rows)
    return convert(compare(distance, constant_like(distance, k), direction), dtype)
