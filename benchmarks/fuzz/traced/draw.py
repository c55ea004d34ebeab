"""What is drawn: element types, dimensions, kinds of values, axes."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

FLOATS = ("float32", "float32", "float32", "bfloat16", "float16")
NARROW = (
    "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float8_e3m4", "float8_e4m3", "float8_e8m0fnu", "float4_e2m1fn",
)  # fmt: skip
INTEGERS = ("int32", "int32", "uint8", "int8", "uint32", "int16", "uint16", "int4", "uint4")
WIDE = ("int64", "uint64")
SIZES = (0, 1, 1, 2, 3, 5, 7, 8, 9, 11, 13, 16, 17, 31, 32, 33, 64, 100, 127, 128, 129, 130, 251)
_REAL = (3, 8, 16, 32, 64, 77, 100, 128, 196, 255, 256, 384, 512, 640, 768, 1000, 1024, 2048, 4096,
         5120, 8192, 16384, 32768, 50257, 65537, 131072, 1_000_000)  # fmt: skip


def dtype(rng: random.Random, wide: bool = False) -> str:
    """An element type."""
    family = rng.choices(("float", "integer", "bool", "complex", "narrow"), (60, 25, 5, 5, 5))[0]
    if family == "bool":
        return "bool"
    if family == "complex":
        return "complex64"
    names = {"float": FLOATS, "integer": INTEGERS + (WIDE * 2 if wide else ()), "narrow": NARROW}
    return rng.choice(names[family])


def kind(rng: random.Random, name: str) -> str:
    """A kind of values that suits the type."""
    if name == "bool":
        return "tame"
    if name.startswith(("int", "uint")):
        return rng.choice(("any", "small", "index", "whole"))
    return rng.choices(("any", "tame", "whole", "positive"), (5, 4, 2, 2))[0]


def dims(
    rng: random.Random, most: int, real: bool = False, rank: int | None = None
) -> tuple[int, ...]:
    """Dimensions of at most `most` elements."""
    if rank is None:
        rank = rng.choices(range(7), (1, 6, 9, 7, 4, 1, 1) if not real else (0, 4, 8, 8, 5, 1, 0))[
            0
        ]
    if real:
        return real_dims(rng, most, rank)
    sizes = [rng.choice(SIZES) if rng.random() < 0.6 else rng.randint(1, 12) for _ in range(rank)]
    while math.prod(sizes) > most:
        at = max(range(rank), key=lambda d: sizes[d])
        sizes[at] = max(1, sizes[at] // rng.choice((2, 3)))
    return tuple(sizes)


def real_dims(rng: random.Random, most: int, rank: int) -> tuple[int, ...]:
    """Dimensions of an array that does real work: between a tenth of `most` and `most` elements."""
    sizes = [1] * rank
    for at in rng.sample(range(rank), rank):
        room = most // max(1, math.prod(sizes))
        fits = [n for n in _REAL if n <= room] or [1]
        sizes[at] = rng.choice(fits[-12:] if at else fits)
    if rank and math.prod(sizes) < most // 10:
        at = rng.randrange(rank)
        sizes[at] *= max(1, int(most / math.prod(sizes) * rng.uniform(0.1, 0.9)))
    return tuple(sizes)


def axis(rng: random.Random, rank: int) -> int:
    """A dimension, also counted from the end."""
    if rank == 0:
        return 0
    drawn = rng.randrange(rank)
    return drawn if rng.random() < 0.6 else drawn - rank


def axes(rng: random.Random, rank: int) -> tuple[int, ...]:
    """Some dimensions, in any order."""
    return tuple(rng.sample(range(rank), rng.randint(0, rank)))


def factored(rng: random.Random, size: int, rank: int) -> tuple[int, ...]:
    """Dimensions whose product is `size`."""
    sizes = []
    for _ in range(rank - 1):
        divisors = [d for d in range(1, min(size, 4096) + 1) if size % d == 0]
        sizes.append(rng.choice(divisors) if divisors else 0)
        size //= max(1, sizes[-1])
    return (*sizes, size)


def broadcast_of(rng: random.Random, sizes: Sequence[int]) -> tuple[int, ...]:
    """Dimensions that broadcast with the ones given."""
    kept = tuple(1 if rng.random() < 0.3 else n for n in sizes)
    return kept[rng.randint(0, len(kept)) :] if rng.random() < 0.4 else kept
