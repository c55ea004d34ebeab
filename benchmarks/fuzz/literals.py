"""Texts of constants: numbers of chance and the special values of each type."""

from __future__ import annotations

import math
import random

from benchmarks.fuzz import kinds

_SPECIAL = ("0", "-0.0", "1", "-1", "inf", "-inf", "nan", "0.5", "2")
"""XLA reads `-0` as the integer 0."""
_HUGE = {"f32": "3.4028235e38", "bf16": "3.3895314e38", "f16": "65504", "c64": "3e38"}
_TINY = {"f32": "1e-45", "bf16": "1e-40", "f16": "6e-8"}
_WITHOUT_INFINITY = (
    "f8e4m3fn", "f8e4m3b11fnuz", "f8e5m2fnuz", "f8e4m3fnuz", *kinds.TINY_FLOATS,
)  # fmt: skip


def literal(rng: random.Random, dtype: str, dims: tuple[int, ...]) -> tuple[str, float]:
    """Text and a bound of the magnitudes."""
    wild = rng.random() < 0.25
    draws: list[float] = []

    def nested(rest: tuple[int, ...]) -> str:
        if not rest:
            word, size = _number(rng, dtype, wild)
            draws.append(size)
            return word
        return "{" + ", ".join(nested(rest[1:]) for _ in range(rest[0])) + "}"

    return nested(dims), max(draws, default=0.0)


def _number(rng: random.Random, dtype: str, wild: bool) -> tuple[str, float]:
    if dtype == "pred":
        return rng.choice(("true", "false")), 1.0
    if kinds.is_integer(dtype):
        low, high = kinds.integer_range(dtype)
        if wild:
            return str(rng.choice((low, high, 0, high // 2, rng.randint(low, high)))), math.inf
        return str(rng.randint(max(low, -4), min(high, 9))), 9.0
    if kinds.is_complex(dtype):
        (re, a), (im, b) = (_number(rng, "f32", wild) for _ in range(2))
        if "nan" in (re, im):  # XLA writes both parts as NaN in StableHLO
            re = im = "nan"
        return f"({re}, {im})", a + b
    return _float(rng, dtype, wild)


def _float(rng: random.Random, dtype: str, wild: bool) -> tuple[str, float]:
    if not kinds.has_zero(dtype):  # powers of two and NaN are all it has
        value = 2.0 ** rng.randint(-3, 3)
        return ("nan", math.inf) if wild and rng.random() < 0.3 else (repr(value), value)
    if not wild:
        whole = rng.random() < 0.5
        value = rng.randint(-8, 8) / 2 if whole else round(rng.uniform(-3, 3), 3)
        return repr(value), abs(value)
    word = rng.choice((*_SPECIAL, _HUGE.get(dtype, "8"), _TINY.get(dtype, "0.25")))
    if "inf" in word and dtype in _WITHOUT_INFINITY:
        word = "nan"
    if word == "nan" and not kinds.has_nan(dtype):
        word = "-6"
    if "nan" in word or "inf" in word or "e38" in word or word == "65504":
        return word, math.inf
    return word, abs(float(word))
