"""Stages of a Fourier transform of one length, and the roots of unity that they multiply by.

A transform of ``n = r1 r2 ..`` points goes through one stage a factor. Before a stage of radix r,
`done` is the product of the factors before it and ``left = n / (done r)``; position
``k n / done + j`` holds point k of the transform of every ``n / done``-th value from j on. The stage
takes, for each k below `done` and j below `left`,

    x[t] = value at (k r + t) left + j, times exp(-2 pi i k t / (done r))

and leaves point u of their transform of length r at ``(k + done u) left + j``. After the last stage
the points lie in order: there is no bit reversal.

Up to `MOST_DIRECT` points with a greater prime factor are sums over all values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from tpu_sim.isa.geometry import LANES

MOST_RADIX = 16
"""Values of a butterfly: their real and imaginary parts fill half of the registers."""
MOST_PRIME = 13
"""The greatest prime factor with a butterfly of its own."""
MOST_DIRECT = 127
"""Points of a transform by sums: from here on a convolution takes less."""


@dataclass(frozen=True)
class FourierStage:
    """One stage; its roots are at `first_root` of `roots`, cosines before sines, then by t, k."""

    done: int
    radix: int
    left: int
    first_root: int

    @property
    def root_count(self) -> int:
        """Roots of the stage: none for k = 0 alone."""
        return self.done * (self.radix - 1) if self.done > 1 else 0


def is_smooth(n: int) -> bool:
    """Whether all prime factors of n have butterflies."""
    for prime in (2, 3, 5, 7, 11, MOST_PRIME):
        while n % prime == 0:
            n //= prime
    return n == 1


def has_kernel(n: int) -> bool:
    """Whether `pair-fft` takes this length."""
    return n > 1 and (n <= MOST_DIRECT or is_smooth(n))


def direct_group(n: int) -> int:
    """Points of the first half, but the first, in whole eights."""
    return -(-(n // 2) // 8) * 8


@lru_cache(maxsize=256)
def stages(n: int) -> tuple[FourierStage, ...]:
    """The stages of a length: as few as can be, the greatest radix first. None if it is not smooth."""
    found: list[FourierStage] = []
    done, first = 1, 0
    for radix in _radices(n):
        stage = FourierStage(done, radix, n // (done * radix), first)
        found.append(stage)
        done, first = done * radix, first + 2 * stage.root_count
    return tuple(found)


@lru_cache(maxsize=4096)
def _radices(n: int, most: int = MOST_RADIX) -> tuple[int, ...]:
    """Factors up to `most` in descending order: fewest, then those of the least sum."""
    if n == 1:
        return ()
    choices = [
        (radix, *_radices(n // radix, radix))
        for radix in range(min(n, most), 1, -1)
        if n % radix == 0 and (n == radix or _radices(n // radix, radix))
    ]
    return min(choices, key=lambda c: (len(c), sum(c)), default=())


def root_rows(n: int) -> int:
    """Rows of `LANES` that the roots fill."""
    count = sum(2 * s.root_count for s in stages(n)) if is_smooth(n) else _direct_count(n)
    return -(-max(1, count) // LANES)


def _direct_count(n: int) -> int:
    return 2 * (n // 2) * direct_group(n)


@lru_cache(maxsize=64)
def roots(n: int) -> npt.NDArray[np.float32]:
    """Cosines and sines of ``2 pi k t / (done r)``, ``[root_rows(n), LANES]``, each rounded once.

    A single stage needs none: its table is a one and zeros, so that it stays a constant. Those of sums
    lie by value, cosines before sines, then by point.
    """
    table = np.zeros(root_rows(n) * LANES)
    if not is_smooth(n):
        table[: _direct_count(n)] = _direct_roots(n).reshape(-1)
        return table.astype(np.float32).reshape(-1, LANES)
    table[0] = 1
    for stage in stages(n):
        if not stage.root_count:
            continue
        places = np.outer(np.arange(1, stage.radix), np.arange(stage.done)).reshape(-1)
        angles = 2 * np.pi * places / (stage.done * stage.radix)
        parts = np.concatenate([np.cos(angles), np.sin(angles)])
        table[stage.first_root : stage.first_root + parts.size] = parts
    return table.astype(np.float32).reshape(-1, LANES)


def _direct_roots(n: int) -> npt.NDArray[np.float64]:
    places = np.outer(np.arange(1, n // 2 + 1), np.arange(1, direct_group(n) + 1)) % n
    angles = 2 * np.pi * places / n
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
