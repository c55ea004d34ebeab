"""Merge networks: which stages sort lines of a power of two elements, and which are done together.

Position p of a line has its low `row_bits` as a row and those above as a lane. A stage compares
p with ``p ^ (1 << bit)``; blocks of ``1 << level`` are in order after the stages of a level, those of odd
number in descending order (the last level has one). A pass takes all stages of its bits at once:

    rows    ``1 << (high - low)`` rows, ``1 << low`` apart
    lanes   one row; its partners are other lanes of it (`high` = `low`)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tpu_sim.isa.geometry import LANES, SUBLANES

FEWEST_ROWS = 128
"""Of lines that are sorted together: eight registers whose rows lie sixteen apart."""
MOST_ROWS = 1 << 14
"""Of a line: all that is taken together lies within reach of one address."""


def may_sort(major: int, rows: int, columns: int, lanes: int) -> bool:
    """Whether `network-sort` takes lines of ``rows * lanes`` elements, of ``[major, rows, columns]``."""
    powers = all(n > 0 and n & (n - 1) == 0 for n in (rows, lanes))
    if not powers or not SUBLANES <= rows <= MOST_ROWS or lanes > LANES or columns % lanes:
        return False
    return rows >= FEWEST_ROWS or (
        major == 1 and columns % (LANES * (FEWEST_ROWS // rows)) == 0 and columns > 0
    )


@dataclass(frozen=True)
class CompareExchange:
    """Partners are ``1 << bit`` apart; blocks of ``1 << level`` are merged."""

    bit: int
    level: int


@dataclass(frozen=True)
class NetworkPass:
    """Exchanges of positions that differ in the bits from `low` on to `high`, the first excluded."""

    low: int
    high: int
    exchanges: tuple[CompareExchange, ...]

    @property
    def is_of_lanes(self) -> bool:
        """Whether partners lie in other lanes."""
        return self.low == self.high

    @property
    def level(self) -> int:
        """The level of the last exchange."""
        return self.exchanges[-1].level


@lru_cache(maxsize=256)
def passes(row_bits: int, lane_bits: int, most_bits: int) -> tuple[NetworkPass, ...]:
    """All passes over lines of ``1 << (row_bits + lane_bits)``, with up to ``1 << most_bits`` rows."""
    first = min(row_bits, most_bits)
    sorted_first = [_merge(level, 0, level) for level in range(1, first + 1)]
    found = [NetworkPass(0, first, tuple(e for stages in sorted_first for e in stages))]
    for level in range(first + 1, row_bits + lane_bits + 1):
        if level > row_bits:
            found.append(NetworkPass(0, 0, _merge(level, row_bits, level)))
        found += [
            NetworkPass(low, high, _merge(level, low, high))
            for low, high in _groups(min(level, row_bits), first, most_bits)
        ]
    return tuple(found)


def _merge(level: int, low: int, high: int) -> tuple[CompareExchange, ...]:
    return tuple(CompareExchange(bit, level) for bit in range(high - 1, low - 1, -1))


def _groups(bits: int, first: int, most: int) -> Iterator[tuple[int, int]]:
    """Cuts of so many bits, from the highest: the lowest `first` stay together."""
    above = bits - first
    count = -(-above // most)
    ends = [first + above * i // count for i in range(count + 1)] if count else [first]
    yield from reversed(list(pairwise(ends)))
    yield 0, first
