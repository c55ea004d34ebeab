"""Element types by family and what is drawn how often: types, sizes and ranks."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from compiler.hlo.dtypes import BY_NAME

WIDE_FLOATS = ("f32", "bf16", "f16")
NARROW_FLOATS = (
    "f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", "f8e4m3", "f8e3m4",
)  # fmt: skip
TINY_FLOATS = ("f4e2m1fn", "f6e2m3fn", "f6e3m2fn", "f8e8m0fnu")
"""Floats without infinity, and some without NaN or zero."""
FLOATS = WIDE_FLOATS + NARROW_FLOATS + TINY_FLOATS
SIGNED = ("s32", "s8", "s16", "s64", "s4", "s2")
UNSIGNED = ("u32", "u8", "u16", "u64", "u4", "u2")
INTEGERS = SIGNED + UNSIGNED
INDICES = ("s32", "u32", "s8", "u8", "s16", "u16", "s64", "u64")
COMPLEX = ("c64",)
ALL = (*FLOATS, *INTEGERS, *COMPLEX, "pred")

WEIGHTS = {
    "f32": 30, "s32": 14, "bf16": 8, "pred": 6, "f16": 4, "u8": 4, "s8": 4, "u32": 4, "u16": 3,
    "s16": 3, "s64": 3, "u64": 3, "c64": 3, "s4": 2, "u4": 2, "s2": 1, "u2": 1,
}  # fmt: skip

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 64, 100, 127, 128, 129, 130, 255, 256, 257, 1023)
_COMMON = (1, 1, 2, 3, 5, 7, 8, 9, 16)
_REAL = (12, 32, 49, 64, 100, 128, 197, 224, 256, 384, 512, 768, 1000, 1024, 2048, 4096, 8192)
_LONG = (16384, 32000, 50257, 65536, 1_000_003, 4_194_304, 20_000_000)
_RANKS = (0, 1, 1, 2, 2, 2, 3, 3, 4, 5)
_HIGH_RANKS = (6, 7, 8)
MOST_RANK = 8


def dtype(rng: random.Random, wanted: tuple[str, ...] = ALL) -> str:
    """An element type, the common ones more often."""
    return rng.choices(wanted, [WEIGHTS.get(name, 1) for name in wanted])[0]


def size(rng: random.Random) -> int:
    """The size of a dimension: small, beside a tile's edge, or (seldom) zero."""
    draw = rng.random()
    if draw < 0.015:
        return 0
    return rng.choice(_COMMON) if draw < 0.6 else rng.choice(SIZES)


def real_size(rng: random.Random) -> int:
    """The size of a dimension in programs that do real work."""
    draw = rng.random()
    if draw < 0.25:
        return rng.choice(_COMMON)
    if draw < 0.35:
        return rng.randint(2, 5000)
    return rng.choice(_REAL if draw < 0.93 else _LONG)


def dims(
    rng: random.Random,
    most: int,
    least_rank: int = 0,
    most_rank: int = MOST_RANK,
    draw: Callable[[random.Random], int] = size,
) -> tuple[int, ...]:
    """Dimensions of at most `most` elements."""
    drawn = rng.choice(_HIGH_RANKS if rng.random() < 0.03 else _RANKS)
    rank = min(max(drawn, least_rank), most_rank)
    sizes = [draw(rng) for _ in range(rank)]
    while math.prod(sizes) > most:
        at = max(range(rank), key=lambda d: sizes[d])
        sizes[at] = max(1, sizes[at] // 2)
    return tuple(sizes)


def grown(rng: random.Random, sizes: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Mostly grown until there are `most` elements or a good part of them."""
    result = list(sizes)
    while rng.random() < 0.8 and 0 < math.prod(result) < most // 4:
        at = rng.randrange(len(result))
        result[at] = max(result[at], rng.choice(_REAL))
        while math.prod(result) > most:
            result[at] = max(1, result[at] // 2)
    return tuple(result)


def text(dtype_name: str, sizes: tuple[int, ...]) -> str:
    """``f32[2,3]``."""
    return f"{dtype_name}[{','.join(map(str, sizes))}]"


def bits(dtype_name: str) -> int:
    """The width of an element type."""
    return BY_NAME[dtype_name].bits


def integer_range(dtype_name: str) -> tuple[int, int]:
    """The smallest and the largest value of an integer type."""
    width = bits(dtype_name)
    if dtype_name[0] == "s":
        return -(1 << (width - 1)), (1 << (width - 1)) - 1
    return 0, (1 << width) - 1


def is_float(dtype_name: str) -> bool:
    """Whether this is a real floating-point type."""
    return BY_NAME[dtype_name].is_float


def has_zero(dtype_name: str) -> bool:
    """Whether zero and negative numbers are values of this type."""
    return dtype_name != "f8e8m0fnu"


def has_nan(dtype_name: str) -> bool:
    """Whether this is a float type with NaN among its values."""
    return is_float(dtype_name) and dtype_name[:2] not in ("f4", "f6")


def is_integer(dtype_name: str) -> bool:
    """Whether this is an integer type (pred is not)."""
    return BY_NAME[dtype_name].is_integer


def is_complex(dtype_name: str) -> bool:
    """Whether this is a complex type."""
    return BY_NAME[dtype_name].is_complex


def split_shapes(shape: str) -> list[tuple[str, tuple[int, ...]]]:
    """The arrays of a flat tuple's text ``(f32[2], s32[])``."""
    parts = shape.strip("()").split("], ")
    pairs = (part.rstrip("]").split("[") for part in parts if part)
    return [(name, tuple(int(n) for n in dims.split(",") if n)) for name, dims in pairs]
