"""Whether two results are the same, where it matters: measured tolerances, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.fuzz.exactness import step_of
from compiler.hlo.dtypes import from_numpy

Array = npt.NDArray[Any]
Again = Callable[[int, float], list[Array]]
"""Evaluates once more with noise: (seed, scale) to results."""

_FIRST, _MORE = 4, 28
_TIMES = 4.0
_FLOOR = 2.0**-126


@dataclass(frozen=True)
class Difference:
    """Where two results differ. `kind`: "value" or, where nothing else differs, "zero sign"."""

    kind: str
    output: int
    text: str


def difference(
    got: Sequence[Array],
    want: Sequence[Array],
    again: Again,
    is_tainted: bool,
    times: float = 1.0,
    reads_bits: bool = False,
) -> Difference | None:
    """The first difference that noise does not explain, or None.

    Noise is made only when something differs at all; an element is suspected when no run of many
    came near it. With `reads_bits` one that noise moves by more than itself says nothing: it may
    be made of bits below those that are defined, and be anything.
    """
    if len(got) != len(want):
        return Difference("value", 0, f"{len(got)} results for {len(want)}")
    suspects = [i for i, (a, b) in enumerate(zip(got, want, strict=True)) if not _equal(a, b)]
    if not suspects:
        return _signs_of_zero(got, want, again, is_tainted)
    for i in suspects:
        if got[i].dtype != want[i].dtype or got[i].shape != want[i].shape:
            a, b = (f"{v.dtype}{list(v.shape)}" for v in (got[i], want[i]))
            return Difference("value", i, f"{a} for {b}")
    if not is_tainted:
        return _describe(
            suspects[0], got, want, np.logical_not(_same(got[suspects[0]], want[suspects[0]]))
        )
    runs = [again(k, 1.0) for k in range(_FIRST)]
    found = _beyond(suspects, got, want, runs, times, reads_bits)
    if found is None:
        return _signs_of_zero(got, want, again, is_tainted)
    runs += [again(_FIRST + k, float(1 + k % 2)) for k in range(_MORE)]
    return _beyond(suspects, got, want, runs, times, reads_bits) or _signs_of_zero(
        got, want, again, is_tainted
    )


def _beyond(
    suspects: Sequence[int],
    got: Sequence[Array],
    want: Sequence[Array],
    runs: Sequence[Sequence[Array]],
    times: float,
    reads_bits: bool,
) -> Difference | None:
    for i in suspects:
        wrong = _wrong(got[i], want[i], [run[i] for run in runs], times, reads_bits)
        if wrong.any():
            return _describe(i, got, want, wrong)
    return None


def _wide(array: Array) -> Array:
    if array.dtype.kind == "c":
        return array.astype(np.complex128)
    dtype = from_numpy(array.dtype)
    return array.astype(np.float64) if dtype.is_float else array


def _same(a: Array, b: Array) -> Array:
    """Equal, any NaN equal to any NaN, signs of zeros aside."""
    x, y = _wide(a), _wide(b)
    with np.errstate(all="ignore"):
        same = np.asarray(x == y)
        if x.dtype.kind == "f":
            same = same | (np.isnan(x) & np.isnan(y))
        if x.dtype.kind == "c":
            parts = (_same(x.real, y.real), _same(x.imag, y.imag))
            same = same | (parts[0] & parts[1]) | (np.isnan(x) & np.isnan(y))
    return same


def _equal(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(_same(a, b).all())


def _wrong(got: Array, want: Array, runs: Sequence[Array], times: float, reads_bits: bool) -> Array:
    """Elements that differ by more than noise moves them."""
    if want.dtype.kind == "c":
        parts = ([a.real for a in runs], [a.imag for a in runs])
        real = _wrong(got.real, want.real, parts[0], times, reads_bits)
        either = np.asarray(real | _wrong(got.imag, want.imag, parts[1], times, reads_bits))
        # Which of infinity and NaN a part becomes depends on how the product is written out.
        with np.errstate(all="ignore"):
            overflows = ~np.isfinite(got) & ~np.isfinite(want)
        return either & ~_same(got, want) & ~overflows
    dtype = from_numpy(want.dtype)
    same = _same(got, want)
    if not dtype.is_float:
        moved = np.zeros(want.shape, bool)
        for run in runs:
            moved |= run != want
        return ~same & ~moved
    base, found = _wide(want), _wide(got)
    with np.errstate(all="ignore"):
        spread = np.zeros(want.shape)
        unsure = np.zeros(want.shape, bool)
        for run in runs:
            other = _wide(run)
            unsure |= _class_of(other) != _class_of(base)
            off = np.abs(other - base)
            spread = np.maximum(spread, np.where(np.isfinite(off), off, 0))
        if reads_bits:
            unsure |= spread > np.abs(base)
        # What is divided by may be zero where noise moves the quotient by as much as itself.
        unsure |= np.isinf(found) & (2 * spread > np.abs(base))
        step = step_of(dtype.name)
        floor = _FLOOR if dtype.bits >= 32 or dtype.name == "bf16" else 0.0
        slack = 2 * step * np.abs(base) + floor if spread.any() or unsure.any() else 0.0
        allowed = times * (_TIMES * spread + slack)
        near = np.abs(found - base) <= allowed
        # A value close to the largest may be infinite, and one that was may not.
        return ~same & ~unsure & ~near


def _class_of(array: Array) -> Array:
    """0 finite, 1 and 2 infinities, 3 NaN; of complex numbers both parts together."""
    if array.dtype.kind == "c":
        return np.asarray(4 * _class_of(array.real) + _class_of(array.imag))
    return np.where(np.isnan(array), 3, np.where(np.isinf(array), np.where(array > 0, 1, 2), 0))


def _signs_of_zero(
    got: Sequence[Array], want: Sequence[Array], again: Again, is_tainted: bool
) -> Difference | None:
    runs: list[list[Array]] = []
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        x, y = _wide(a), _wide(b)
        if x.dtype.kind != "f":
            continue
        wrong = _other_zero(x, y)
        if wrong.any() and is_tainted:
            runs = runs or [again(k, 1.0) for k in range(_FIRST + _MORE)]
            for run in runs:
                with np.errstate(all="ignore"):
                    wrong &= (_wide(run[i]) == y) & (np.signbit(_wide(run[i])) == np.signbit(y))
        if wrong.any():
            found = _describe(i, got, want, wrong)
            return Difference("zero sign", i, found.text)
    return None


def _other_zero(x: Array, y: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray((x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y)))


def _describe(i: int, got: Sequence[Array], want: Sequence[Array], wrong: Array) -> Difference:
    at = np.unravel_index(int(np.argmax(wrong)), wrong.shape) if wrong.ndim else ()
    count = f"{int(wrong.sum())} of {wrong.size}"
    place = [int(n) for n in at]
    return Difference(
        "value",
        i,
        f"output {i} ({want[i].dtype}) at {place}: {got[i][at]} for {want[i][at]} ({count})",
    )
