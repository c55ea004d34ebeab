"""Functions of integers and bits: divisors, counts, positions in several dimensions, packed truths.

Each rule is NumPy code on traced arrays; NumPy's types do not know these: hence `Any`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy.control import while_loop
from compiler.frontends.numpy.errors import BadTypeError
from compiler.frontends.numpy.ops import as_number, as_tracer, promoted, traced, unary
from compiler.frontends.numpy.tracer import Rule, Trace, unsupported_function


def _two_integers(trace: Trace, name: str, a: Any, b: Any) -> tuple[Any, Any]:
    x, y = (as_number(operand) for operand in promoted(trace, (a, b)))
    if x.dtype.kind not in "iu":
        raise BadTypeError(f"np.{name} of {x.dtype}; want integers")
    return x, y


def gcd(trace: Trace, x1: Any, x2: Any) -> Any:
    """np.gcd, by Euclid: until all have ended."""
    x, y = _two_integers(trace, "gcd", x1, x2)

    def step(state: Any) -> Any:
        a, b = state
        safe: Any = np.where(b == 0, 1, b)
        return np.where(b == 0, a, b), np.where(b == 0, b, a % safe)

    found = while_loop(trace, lambda state: np.any(state[1] != 0), step, (np.abs(x), np.abs(y)))
    return found[0]


def lcm(trace: Trace, x1: Any, x2: Any) -> Any:
    """np.lcm."""
    x, y = _two_integers(trace, "lcm", x1, x2)
    divisor = gcd(trace, x, y)
    share: Any = np.abs(x) // np.where(divisor == 0, 1, divisor)
    return share * np.abs(y)


def _bitwise_count(trace: Trace, x: Any) -> Any:
    """Of a negative number the bits of its size, as NumPy."""
    array = as_number(traced(trace, x))
    if array.dtype.kind not in "iu":
        raise BadTypeError(f"np.bitwise_count of {array.dtype}; want integers")
    size: Any = np.abs(array)
    return unary("popcnt", size).astype(np.uint8)


def _packbits(trace: Trace, a: Any, axis: int | None = None, bitorder: str = "big") -> Any:
    given = traced(trace, a)
    if given.dtype.kind not in "iub":
        raise BadTypeError(f"np.packbits of {given.dtype}; want integers or booleans")
    x: Any = given != 0
    x = np.ravel(x) if axis is None else np.moveaxis(x, axis, -1)
    missing = -x.shape[-1] % 8
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, missing)])
    groups = x.reshape((*x.shape[:-1], x.shape[-1] // 8, 8)).astype(np.uint32)
    weights = 2 ** np.arange(8, dtype=np.uint32)
    total: Any = np.sum(groups * (weights if bitorder == "little" else weights[::-1]), axis=-1)
    packed: Any = total.astype(np.uint8)
    return packed if axis is None else np.moveaxis(packed, -1, axis)


def _unpackbits(
    trace: Trace, a: Any, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    x: Any = traced(trace, a)
    if x.dtype != np.uint8:
        raise BadTypeError(f"np.unpackbits of {x.dtype}; want uint8")
    x = np.ravel(x) if axis is None else np.moveaxis(x, axis, -1)
    places = np.arange(8, dtype=np.uint8)
    bits: Any = (x[..., None] >> (places if bitorder == "little" else places[::-1])) & np.uint8(1)
    flat: Any = bits.reshape((*x.shape[:-1], x.shape[-1] * 8))
    if count is not None:
        more = max(0, count - flat.shape[-1])
        flat = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, more)])[..., :count]
    return flat if axis is None else np.moveaxis(flat, -1, axis)


def _ravel_multi_index(
    trace: Trace, multi_index: Any, dims: Sequence[int], mode: Any = "raise", order: str = "C"
) -> Any:
    """Positions outside are wrapped or clipped, or stay as they are: the chip cannot raise an error."""
    modes = (mode,) * len(dims) if isinstance(mode, str) else tuple(mode)
    columns = [traced(trace, x) for x in multi_index]
    total: Any = 0
    for axis in range(len(dims)) if order == "C" else reversed(range(len(dims))):
        place: Any = columns[axis]
        if modes[axis] == "wrap":
            place = place % dims[axis]
        elif modes[axis] == "clip":
            place = np.clip(place, 0, dims[axis] - 1)
        total = total * dims[axis] + place
    return total


def _unravel_index(trace: Trace, indices: Any, shape: Any, order: str = "C") -> tuple[Any, ...]:
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    flat: Any = traced(trace, indices)
    places: list[Any] = []
    for extent in reversed(extents) if order == "C" else extents:
        places.append(flat % extent)
        flat = flat // extent
    return tuple(places[::-1] if order == "C" else places)


def counted(trace: Trace, x: Any, weights: Any, length: int) -> Any:
    """How often each number below `length` is there, or the sums of their weights."""
    places: Any = traced(trace, x)
    if places.ndim != 1 or places.dtype.kind not in "iub":
        raise CompileError(f"np.bincount: {places!r}, want a vector of integers")
    places = places.astype(np.int32)
    share = np.ones(places.shape, np.int32) if weights is None else weights
    given: Any = traced(trace, share)
    given = given if given.dtype.kind in "fc" or weights is None else given.astype(np.float32)
    totals = traced(trace, np.zeros((length,), given.dtype))
    outside: Any = np.where(places < 0, length, places)
    return totals.at[outside].add(given) if places.size else totals


def counted_length(dtype: np.dtype[Any], minlength: int) -> int | None:
    """The results of `np.bincount` whatever the values are: where `minlength` covers the element type."""
    largest = 1 if dtype == np.bool_ else np.iinfo(dtype).max if dtype.kind in "iu" else minlength
    return minlength if minlength > largest else None


def _bincount(trace: Trace, x: Any, /, weights: Any = None, minlength: int = 0) -> Any:
    places = as_tracer(trace, x)
    length = counted_length(places.dtype, minlength)
    if length is None:
        raise unsupported_function("np.bincount")
    return counted(trace, places, weights, length)


def _block(trace: Trace, arrays: Any) -> Any:
    """Nested lists: the innermost are joined along the last axis."""

    def depth(tree: Any) -> int:
        return 1 + max(map(depth, tree)) if isinstance(tree, list) else 0

    def rank(tree: Any) -> int:
        return max(map(rank, tree)) if isinstance(tree, list) else traced(trace, tree).ndim

    levels = depth(arrays)
    axes = max(levels, rank(arrays))

    def joined(tree: Any, level: int) -> Any:
        if not isinstance(tree, list):
            x = traced(trace, tree)
            return x.reshape((*(1,) * (axes - x.ndim), *x.shape))
        return np.concatenate(
            [joined(item, level + 1) for item in tree], axis=axes - levels + level
        )

    return joined(arrays, 0)


INTEGER_UFUNCS: dict[np.ufunc, Rule] = {np.gcd: gcd, np.lcm: lcm}
if hasattr(np, "bitwise_count"):
    INTEGER_UFUNCS[np.bitwise_count] = _bitwise_count
INTEGER_FUNCTIONS: dict[object, Rule] = {
    np.bincount: _bincount,
    np.block: _block,
    np.packbits: _packbits,
    np.ravel_multi_index: _ravel_multi_index,
    np.unpackbits: _unpackbits,
    np.unravel_index: _unravel_index,
}
