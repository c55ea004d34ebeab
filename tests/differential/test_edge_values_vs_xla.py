"""Edge values of integers, conversions, orders, windows, indices and empty arrays: the machine
against XLA on the CPU, many operations to a module."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

os.environ.setdefault("JAX_PLATFORMS", "cpu")
jax = pytest.importorskip("jax")


import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402

from tests.support.same_values import assert_same  # noqa: E402
from tests.support.three_ways import evaluator, machine, xla  # noqa: E402

Array = np.ndarray[Any, Any]
INTEGERS: dict[str, Any] = {
    "s2": ml_dtypes.int2, "u2": ml_dtypes.uint2, "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4,
    "s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32,
    "u32": np.uint32, "s64": np.int64, "u64": np.uint64,
}  # fmt: skip
FLOATS: dict[str, Any] = {
    "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
    "f8e4m3fn": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
    "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz, "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e4m3": ml_dtypes.float8_e4m3,
    "f8e3m4": ml_dtypes.float8_e3m4,
}  # fmt: skip


def module(lines: Sequence[str], results: dict[str, str]) -> str:
    """HLO text with a tuple of named results (name -> shape)."""
    shapes, names = ", ".join(results.values()), ", ".join(results)
    body = "\n".join(f"  {line}" for line in lines)
    return f"HloModule m\nENTRY e {{\n{body}\n  ROOT t = ({shapes}) tuple({names})\n}}\n"


def extreme_pairs(dtype: Any) -> tuple[Array, Array]:
    """Every pair of edge values: limits, small numbers, widths."""
    info = ml_dtypes.iinfo(dtype)
    low, high, bits = int(info.min), int(info.max), int(info.bits)
    wanted = (low, low + 1, -7, -2, -1, 0, 1, 2, 3, 7, bits - 1, bits, bits + 1, high // 2, high)
    edges = np.array(sorted({v for v in wanted if low <= v <= high}), object)
    holder = np.int64 if low < 0 else np.uint64
    a, b = (g.reshape(-1).astype(holder).astype(dtype) for g in np.meshgrid(edges, edges))
    return a, b


BINARY = (
    "add", "subtract", "multiply", "divide", "remainder", "maximum", "minimum", "and", "or", "xor",
    "shift-left", "shift-right-arithmetic", "shift-right-logical",
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["s2", "u4", "s8", "u16", "s32", "s64", "u64"])
def test_integers_at_their_edges(dtype: str) -> None:
    a, b = extreme_pairs(INTEGERS[dtype])
    shape = f"{dtype}[{len(a)}]"
    unary = ["count-leading-zeros", "not", "negate"]
    if dtype != "s4":  # XLA's CPU backend counts the sign bits beyond the four
        unary.append("popcnt")
    if dtype.startswith("s"):
        unary += ["abs", "sign"]
    lines = [f"p = {shape} parameter(0)", f"q = {shape} parameter(1)"]
    lines += [f"r.{op} = {shape} {op}(p, q)" for op in BINARY]
    lines += [f"r.{op} = {shape} {op}(p)" for op in unary]
    text = module(lines, {f"r.{op}": shape for op in (*BINARY, *unary)})
    want = xla(text, [a, b])
    for run in (evaluator, machine):
        for op, x, y in zip((*BINARY, *unary), run(text, [a, b]), want, strict=True):
            assert_same(x, y, f"{dtype} {op}")


def all_values(dtype: str) -> Array:
    """All codes of 8 bits and fewer; otherwise limits, halves, powers of two and random ones."""
    rng = np.random.default_rng(1)
    if dtype in INTEGERS:
        info = ml_dtypes.iinfo(INTEGERS[dtype])
        if info.bits <= 8:
            return np.arange(int(info.min), int(info.max) + 1).astype(INTEGERS[dtype])
        powers = [2**k + d for k in range(info.bits - 1) for d in (-1, 0, 1)]
        return np.array([int(info.min), int(info.max), *powers], INTEGERS[dtype])
    target = np.dtype(FLOATS[dtype])
    if target.itemsize == 1:
        return np.arange(256, dtype=np.uint8).view(target)
    if target.itemsize == 2:
        return np.arange(0, 65536, 7).astype(np.uint16).view(target)
    steps = np.array([2.0**k for k in range(-30, 66)])
    near = np.concatenate([steps * f for f in (1, 1.0000001, 0.99999994, 1.5, 1.0625, 0.5000001)])
    edges = np.concatenate([near, -near, np.arange(-40, 40) / 2, [np.inf, -np.inf, np.nan, -0.0]])
    noise = rng.standard_normal(500) * 10.0 ** rng.uniform(-5, 6, 500)
    return np.concatenate([edges, noise]).astype(np.float32)


@pytest.mark.parametrize("source", ["f32", "bf16", "f8e4m3fn", "f8e5m2fnuz", "s4", "u32", "s64"])
def test_conversions_of_every_code_and_edge(source: str) -> None:
    x = all_values(source)
    targets = [t for t in (*FLOATS, *INTEGERS) if t != source]
    lines = [f"p = {source}[{len(x)}] parameter(0)"]
    lines += [f"r.{t} = {t}[{len(x)}] convert(p)" for t in targets]
    text = module(lines, {f"r.{t}": f"{t}[{len(x)}]" for t in targets})
    want = xla(text, [x])
    for run in (evaluator, machine):
        for target, a, b in zip(targets, run(text, [x]), want, strict=True):
            assert_same(a, b, f"{source} to {target}")


def check(function: Callable[..., Any], *args: Array, tolerance: float = 0.0) -> None:
    """The machine on the StableHLO that JAX makes, against XLA."""
    lowered = jax.jit(function).lower(*args)
    want = [np.asarray(w) for w in jax.tree.leaves(lowered.compile()(*args))]
    got = machine(str(lowered.compiler_ir("stablehlo")), args)
    assert len(got) == len(want)
    for number, (a, b) in enumerate(zip(got, want, strict=True)):
        if not tolerance:
            assert_same(a, b, f"output {number}")
            continue
        assert a.shape == b.shape and a.dtype == b.dtype
        scale = tolerance * np.max(np.abs(b), initial=1.0)
        np.testing.assert_allclose(a, b, tolerance, scale)


def mixed(dtype: Any, *dims: int) -> Array:
    """Normal and small whole numbers, among them zeros, infinities and NaN of both signs."""
    rng = np.random.default_rng(7)
    whole = rng.random(dims) < 0.4
    x = np.where(whole, rng.integers(-5, 6, dims) / 2, rng.standard_normal(dims)).astype(np.float32)
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    pick = rng.integers(0, 24, dims)
    return np.where(pick < 6, special[np.minimum(pick, 5)], x).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_orders_of_nan_zeros_and_infinities(dtype: str) -> None:
    x = mixed(np.dtype(getattr(ml_dtypes, dtype, None) or dtype), 3, 21)
    check(
        lambda x: (
            jnp.sort(x), jnp.argsort(x, descending=True), lax.top_k(x, 7), lax.cummax(x, 1),
            lax.max(x, x[::-1]), lax.min(x, x[::-1]),
            lax.nextafter(x, x[::-1]), lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO),
            lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), jnp.sign(x), jnp.isfinite(x),
            lax.reduce_precision(x, 5, 2), lax.reduce_precision(x, 3, 0),
        ),
        x,
    )  # fmt: skip


WINDOWS: tuple[tuple[Any, ...], ...] = (
    ((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1)),
    ((2, 1), ((1, 2), (0, 1)), (1, 1), (2, 1)),
    ((1, 2), ((2, 1), (1, 1)), (2, 3), (1, 2)),
    ((1, 1), ((-1, 0), (0, -2)), (1, 1), (1, 1)),
    ((3, 3), ((3, 3), (3, 3)), (2, 1), (3, 2)),
)


def test_windows_with_dilations_and_negative_padding() -> None:
    x = np.random.default_rng(2).integers(-3, 4, (7, 9)).astype(np.int32)

    def all_of_them(x: Any) -> list[Any]:
        kinds = ((lax.add, 0), (lax.max, -(2**31)))
        results = []
        for strides, padding, base, window in WINDOWS:
            for kind, init in kinds:
                start = np.int32(init)
                results.append(
                    lax.reduce_window(x, start, kind, (2, 3), strides, padding, base, window)
                )
        return results

    check(all_of_them, x)


def test_duplicate_negative_and_far_indices() -> None:
    rng = np.random.default_rng(3)
    places = np.array([[0], [3], [3], [-1], [9], [3], [0], [2**31 - 1], [-(2**31)]], np.int32)
    updates = rng.integers(-9, 9, (9, 4)).astype(np.int32)
    scatter = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    gather = lax.GatherDimensionNumbers((1,), (0,), (0,))
    starts = np.array([-1, 3, 7, 2**31 - 1, -(2**31)], np.int32)

    def all_of_them(places: Any, updates: Any, starts: Any) -> list[Any]:
        x = jnp.ones((6, 4), jnp.int32)
        results = []
        for mode in (lax.GatherScatterMode.FILL_OR_DROP, lax.GatherScatterMode.CLIP):
            for kind in (
                lax.scatter, lax.scatter_add, lax.scatter_mul,
            ):  # fmt: skip
                results.append(kind(x, places, updates, scatter, mode=mode))
            for index in (places, places.astype(jnp.int8), places.astype(jnp.uint32)):
                results.append(lax.gather(updates, index, gather, (1, 4), mode=mode))
        for k in range(len(starts)):
            results.append(lax.dynamic_slice(updates, (starts[k], starts[-k]), (3, 2)))
            part = updates[:3, :2] * 2
            results.append(lax.dynamic_update_slice(updates, part, (starts[k], starts[-k])))
        return results

    check(all_of_them, places, updates, starts)


def test_products_of_integers_wrap() -> None:
    rng = np.random.default_rng(4)
    wide = rng.integers(-(2**31), 2**31, (3, 40)).astype(np.int32)
    small = rng.integers(-128, 128, (5, 130)).astype(np.int8)
    check(
        lambda w, s: (
            lax.dot(w, w.T), lax.dot(s, s.T), lax.dot(s, s.T, preferred_element_type=jnp.int32),
            lax.dot(s.astype(jnp.uint8), s.astype(jnp.uint8).T), lax.dot(s > 0, (s > 9).T),
        ),
        wide, small,
    )  # fmt: skip


def test_products_of_fp8_and_complex_numbers() -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((5, 40)).astype(np.float32)
    z = (rng.standard_normal((5, 40)) + 1j * rng.standard_normal((5, 40))).astype(np.complex64)

    def all_of_them(x: Any, z: Any) -> list[Any]:
        kinds = (jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3b11fnuz)
        narrow = [x.astype(kind) for kind in kinds]
        products = [lax.dot(n, n.T, preferred_element_type=jnp.float32) for n in narrow]
        return [*products, lax.dot(z, z.T, precision="highest")]

    check(all_of_them, x, z, tolerance=1e-5)


def test_powers_of_a_complex_zero() -> None:
    parts = [0.0, -0.0, 1.0, -2.0, 0.5, np.inf, -np.inf, np.nan]
    exponents = np.array([complex(p, q) for p in parts for q in parts], np.complex64)
    for zero in (0j, complex(-0.0, 0.0), complex(0.0, -0.0)):
        check(
            lambda z, w: (lax.real(lax.pow(z, w)), lax.imag(lax.pow(z, w))),
            np.full_like(exponents, zero),
            exponents,
        )


def test_arrays_without_elements() -> None:
    rows, columns = np.zeros((0, 3), np.float32), np.zeros((3, 0), np.float32)

    def all_of_them(a: Any, b: Any) -> list[Any]:
        nothing = jnp.array([], jnp.int32)
        return [
            a + 1, jnp.sin(a), b @ a, a @ b, a.sum(), b.sum(1), jnp.max(b, initial=-1.0, axis=1),
            a.T, a.reshape(0, 1, 3), jnp.concatenate([a, jnp.ones((2, 3))]), jnp.sort(b, axis=1),
            jnp.cumsum(a, 0), jnp.pad(a, ((1, 1), (0, 0))), a[:, 1:2], jnp.flip(a),
            jnp.where(a > 0, a, a), a.astype(jnp.int8), *lax.top_k(b, 0), jnp.argsort(b, 1),
            jnp.fft.fft(a, axis=1).real, a[nothing], b[jnp.array([1, 1])],
            jnp.zeros((4, 3)).at[nothing].add(a), nothing // 3, jnp.zeros((2, 2)).at[:, 0:0].set(1),
            lax.reduce_window(a, 0.0, lax.add, (1, 2), (1, 1), "VALID"),
            lax.dynamic_slice(a, (0, 1), (0, 2)), lax.bitcast_convert_type(a, jnp.int32),
            lax.conv_general_dilated(
                a.reshape(0, 1, 3, 1), jnp.ones((2, 1, 1, 1)), (1, 1), "VALID"
            ),
        ]  # fmt: skip

    check(all_of_them, rows, columns)
