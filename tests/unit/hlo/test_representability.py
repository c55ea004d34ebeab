"""Facts about types against conversions that the evaluator does: every pair, every triple."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME, DType
from compiler.hlo.evaluator import evaluate
from compiler.hlo.parser import parse_module
from compiler.hlo.representability import converts_as_one, holds

TYPES = tuple(t for t in BY_NAME.values() if not t.is_complex)


def edges(dtype: DType) -> np.ndarray:
    """All values of small types; limits, powers of two and their neighbours of large ones."""
    if dtype.kind == "pred":
        return np.array([False, True])
    if dtype.is_integer:
        low = -(1 << (dtype.bits - 1)) if dtype.is_signed else 0
        high = (1 << (dtype.bits - dtype.is_signed)) - 1
        if dtype.bits <= 8:
            return np.arange(low, high + 1).astype(dtype.numpy)
        near = {s * (1 << k) + d for k in range(dtype.bits) for d in (-1, 0, 1) for s in (1, -1)}
        return np.array(
            sorted(n for n in near | {low, high, 200, 1000} if low <= n <= high), object
        ).astype(dtype.numpy)
    if dtype.bits <= 8:
        return np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    if dtype.bits == 16:
        return np.arange(0, 1 << 16, 3, dtype=np.uint16).view(dtype.numpy)
    powers = 2.0 ** np.arange(
        -149 if dtype.bits == 32 else -1074, 128 if dtype.bits == 32 else 1024
    )
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 200, 255.5, -129, 3e9, 1e-40, 1 / 3])
    return np.concatenate([powers, -powers, powers * (1 + 2.0**-20), odd]).astype(dtype.numpy)


def converted(x: np.ndarray, source: DType, *targets: DType) -> np.ndarray:
    lines = [f"v0 = {source}[{x.size}] parameter(0)"]
    for n, target in enumerate(targets):
        lines.append(f"v{n + 1} = {target}[{x.size}] convert(v{n})")
    lines[-1] = "ROOT " + lines[-1]
    text = "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
    with np.errstate(all="ignore"):
        (result,) = evaluate(parse_module(text), [x])
    return np.asarray(result)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal numbers (of perhaps two types), zeros told apart; any NaN is any NaN."""
    if "int" in a.dtype.name or a.dtype == bool:
        return bool((a.astype(object) == b.astype(object)).all())
    with np.errstate(invalid="ignore"):  # signalling NaN
        x, y = a.astype(np.float64), b.astype(np.float64)
    nan = np.isnan(x) & np.isnan(y)
    return bool((((x == y) & (np.signbit(x) == np.signbit(y))) | nan).all())


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_what_is_held_comes_back(source: DType) -> None:
    x = edges(source)
    for target in TYPES:
        if holds(target, source):
            assert same(converted(x, source, target, source), x), target
            if source.bits <= 8 and target.is_float and source.is_float:
                assert same(converted(x, source, target), x)


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_two_conversions_are_one(source: DType) -> None:
    """Every triple of types that the rule folds, over edge values."""
    x = edges(source)
    direct = {target: converted(x, source, target) for target in TYPES}
    for middle in TYPES:
        for last in TYPES:
            if converts_as_one(source, middle, last):
                got = converted(x, source, middle, last)
                assert same(got, direct[last]), (source, middle, last)


def test_the_rule_is_not_timid() -> None:
    of = BY_NAME
    for names in (
        "bf16 f32 bf16", "s8 s32 f32", "f8e4m3fn f32 bf16", "u8 s32 s8", "s32 s8 s4", "pred s32 f32",
        "f32 f64 s8", "u8 f32 u16", "c64 c128 c64", "f4e2m1fn bf16 f32", "s64 s32 s16",
    ):  # fmt: skip
        assert converts_as_one(*(of[name] for name in names.split())), names
    for names in (
        "u8 f32 s8", "s8 f32 u8", "s32 f32 s16", "f32 bf16 f32", "f16 bf16 f32", "s16 bf16 f32",
        "f8e4m3fn f8e5m2 f32", "f32 f8e5m2fnuz f32", "s32 s8 f32", "c64 f32 c64", "u32 s32 f32",
    ):  # fmt: skip
        assert not converts_as_one(*(of[name] for name in names.split())), names
