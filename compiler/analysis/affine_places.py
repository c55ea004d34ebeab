"""Places that are known when a program is compiled, and that a few counting digits describe.

The numbers of index vectors are written in a mixed radix, and each digit moves the place by a step:

    0 0 1 1 2 2 3 3     4 x (step 1), 2 x (step 0)     every row twice
    0 3 6 9             4 x (step 3)                   every third row
    0 1 4 5 8 9         3 x (step 4), 2 x (step 1)     two rows of every four

What no such number describes may still be a few that do, side by side, in every period:

    7 0 1 .. 6          one of 7, beside 7 x (step 1)  a ring
    0 1 1 2 3 3         4 x (step 1) from 0, beside 2 x (step 2) from 1
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Dims = tuple[int, ...]
Starts = npt.NDArray[np.int64]
"""Index vectors, [count, components]."""

_CORNER = 64
"""Periods, and vectors of each, that are compared before all are."""


@dataclass(frozen=True)
class Digit:
    """One digit of an index vector's number: it counts to `size`, and a step moves each component."""

    size: int
    steps: Dims


@dataclass(frozen=True)
class Places:
    """Index vectors: `first` where all digits are 0; the most significant digit comes first."""

    first: Dims
    digits: tuple[Digit, ...]


@dataclass(frozen=True)
class PlaceRange:
    """The index vectors ``begin`` to ``end`` of every period."""

    begin: int
    end: int
    places: Places


@dataclass(frozen=True)
class Pieces:
    """All index vectors, as pieces of every one of `periods` periods of `length`."""

    periods: int
    length: int
    parts: tuple[PlaceRange, ...]


def pieces_of(starts: Starts, most: int) -> Pieces | None:
    """The fewest pieces that describe `starts`; None if more than `most` are needed, or so many that a
    piece of a period is hardly more than any two vectors, which always count by some step."""
    if not len(starts):
        return None
    whole = _places(starts)
    if whole is not None:
        return Pieces(1, len(starts), (PlaceRange(0, len(starts), whole),))
    found: Pieces | None = None
    for length in _divisors(len(starts)):
        split = _split(starts, length, most)
        if split is not None and (found is None or len(split.parts) < len(found.parts)):
            found = split
    return found


def _places(starts: Starts) -> Places | None:
    digits: list[Digit] = []
    while len(starts) > 1:
        size = _counted(starts)
        if size == 1:
            return None
        digits.insert(0, Digit(size, _dims(starts[1] - starts[0])))
        starts = starts[::size]
    return Places(_dims(starts[0]), tuple(digits))


def _counted(starts: Starts) -> int:
    """The longest period in which vectors count by one step, the same in all periods."""
    steps = np.diff(starts, axis=0)
    is_same = (steps == steps[0]).all(axis=1)
    first_other = len(steps) if is_same.all() else int(np.argmin(is_same))
    for size in reversed(_divisors(len(starts))):
        if size > first_other + 1:
            continue
        inside = is_same.copy()
        inside[size - 1 :: size] = True  # from one period to the next
        if inside.all():
            return size
    return 1


def _split(starts: Starts, length: int, most: int) -> Pieces | None:
    """The pieces of periods of `length`, if every period is the first one, moved by a step each."""
    periods = len(starts) // length
    by_period = starts.reshape(periods, length, -1)
    if periods > 1 and not _is_moved_evenly(by_period):
        return None
    ends = _run_ends(by_period[0], most)
    if ends is None or len(ends) > 1 + length // 3:
        return None
    parts: list[PlaceRange] = []
    for begin, end in zip([0, *ends], ends, strict=False):
        places = _places(by_period[:, begin:end].reshape(periods * (end - begin), -1))
        if places is None:
            return None
        parts.append(PlaceRange(begin, end, places))
    return Pieces(periods, length, tuple(parts))


def _is_moved_evenly(by_period: Starts) -> bool:
    """Whether every period is the one before, moved by one step.

    A corner is looked at first: of the many lengths that places are tried with, hardly one gets further.
    """
    step = by_period[1, 0] - by_period[0, 0]
    corner = by_period[:_CORNER, :_CORNER]
    return all((np.diff(part, axis=0) == step).all() for part in (corner, by_period))


def _run_ends(starts: Starts, most: int) -> list[int] | None:
    """Where runs of vectors that count by one step end; None for more than `most` runs."""
    steps = np.diff(starts, axis=0)
    is_other = (steps[1:] != steps[:-1]).any(axis=1)
    changes = 1 + np.flatnonzero(is_other)  # step k is another than step k - 1

    def end_of(begin: int) -> int:
        after = int(np.searchsorted(changes, begin, side="right"))
        return int(changes[after]) + 1 if after < len(changes) else len(starts)

    ends: list[int] = []
    begin = 0
    while begin < len(starts):
        end = end_of(begin)
        if end == begin + 2 and end_of(begin + 1) > end + 1:
            end = begin + 1  # the second of two begins a longer run
        ends.append(end)
        if len(ends) > most:
            return None
        begin = end
    return ends


def _divisors(count: int) -> list[int]:
    """The divisors of a number beside 1, in order."""
    small = [n for n in range(1, int(count**0.5) + 1) if count % n == 0]
    return sorted({*small, *(count // n for n in small)} - {1})


def _dims(values: Starts) -> Dims:
    return tuple(int(v) for v in values)
