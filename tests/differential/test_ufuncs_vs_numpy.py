"""Every traced ufunc over element types and edge values has NumPy's values.

Transcendental functions are computed in f32 where NumPy takes f16 or f64, so integers are compared as far
as f32 holds them. What NumPy refuses with a TypeError is refused in tracing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tpuc
from compiler.diagnostics import CompileError, UnsupportedError
from compiler.frontends.numpy.tracing import trace
from compiler.frontends.numpy.ufuncs import UFUNCS
from compiler.hlo.attributes import OpMetadata
from compiler.hlo.evaluator import evaluate
from compiler.hlo.metadata_text import canonical_metadata
from compiler.hlo.verifier import verify

Values = np.ndarray[Any, Any]
INF, NAN = np.inf, np.nan


def integers(dtype: str) -> Values:
    limits = np.iinfo(dtype)
    small = [v for v in (-7, -3, -2, -1, 0, 1, 2, 3, 5, 7) if v >= limits.min]
    ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
    return np.unique(np.array([*small, *ends], dtype))


EDGES: dict[str, Values] = {
    "bool": np.array([False, True]),
    **{name: integers(name) for name in ("int8", "uint8", "int16", "int32", "uint32")},
    "float32": np.array(
        [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 1e30, -1e30, 1e-30, 1e-40, 3e38,
         INF, -INF, NAN, 7, -7, 0.1, 1e9, 88, -100], np.float32),
    "complex64": np.array(
        [0, 1, -1, 1j, -1j, 1 + 2j, -3 + 4j, 2 - 0.5j, 1e18 + 1e18j, complex(0, NAN)],
        np.complex64),
}  # fmt: skip

UNORDERED_ZEROS = {np.maximum, np.minimum, np.fmax, np.fmin}
"""Of two zeros NumPy gives either, the chip orders them."""
OF_ONE_TYPE = {np.ldexp, np.nextafter, np.spacing}
"""In the float that NumPy takes for an integer they have other values than in f32."""
PERIODIC = {np.sin, np.cos, np.tan}
"""Of integers beyond 2^24, f32 holds another angle."""


def operands(ufunc: np.ufunc, dtype: str) -> list[Values]:
    values = EDGES[dtype]
    if ufunc in PERIODIC and values.dtype.kind in "iu":
        values = values[np.abs(values.astype(np.int64)) < 2**24]
    if ufunc is np.frexp and values.dtype.kind in "iu":
        values = values[np.abs(values.astype(np.int64)) < 2**24]
    if ufunc is np.reciprocal and values.dtype.kind in "iub":
        values = values[values != 0]  # NumPy leaves it undefined
    if ufunc.nin == 1:
        return [values]
    pairs = np.meshgrid(values, values, indexing="ij")
    first, second = (side.ravel().copy() for side in pairs)
    if ufunc in (np.power, np.float_power) and values.dtype.kind in "iu":
        kept = (second >= 0) & (second <= 9)
        first, second = first[kept], second[kept]
    if ufunc in (np.left_shift, np.right_shift) and values.dtype.kind in "iu":
        kept = (second >= 0) & (second < 8 * second.itemsize)
        first, second = first[kept], second[kept]
    if ufunc in (np.power, np.float_power) and values.dtype.kind == "c":
        kept = np.abs(first) < 1e9
        first, second = first[kept], second[kept]
    return [first, second]


def traced(function: Callable[..., Any], arrays: list[Values]) -> list[Values]:
    module, _, _ = trace(function, arrays)
    verify(module)
    return [np.asarray(result) for result in evaluate(module, arrays, "highest")]


def agrees(got: Values, want: Values) -> np.ndarray[Any, np.dtype[np.bool_]]:
    if got.dtype.kind in "iub":
        return np.asarray(got == want.astype(got.dtype))
    tolerance = 2e-3 if want.dtype == np.float16 else 2e-5
    if got.dtype.kind == "c":
        exact = want.astype(np.complex128)
    else:
        exact = want.astype(np.float32).astype(np.float64)
    found = got.astype(exact.dtype)
    near = np.abs(found - exact) <= tolerance * np.abs(exact) + 1e-37
    same = (found == exact) | (np.isnan(found) & np.isnan(exact)) | near
    if got.dtype.kind == "f":
        same &= (exact != 0) | (found != 0) | (np.signbit(exact) == np.signbit(found))
    return np.asarray(same)


@pytest.mark.parametrize("dtype", EDGES)
@pytest.mark.parametrize(
    "ufunc", [f for f in UFUNCS if f not in OF_ONE_TYPE], ids=lambda ufunc: ufunc.__name__
)
def test_ufunc(ufunc: np.ufunc, dtype: str) -> None:
    arrays = operands(ufunc, dtype)
    with np.errstate(all="ignore"):
        try:
            wanted = ufunc(*arrays)
        except TypeError:
            with pytest.raises((CompileError, UnsupportedError)):
                traced(ufunc, arrays)
            return
        found = traced(ufunc, arrays)
        expected = wanted if isinstance(wanted, tuple) else (wanted,)
        for got, want in zip(found, expected, strict=True):
            assert got.shape == want.shape
            kinds = {got.dtype.kind, want.dtype.kind}
            assert len(kinds) == 1 or kinds <= {"i", "u"}
            if ufunc in UNORDERED_ZEROS and got.dtype.kind == "f":
                got, want = got + np.float32(0), want + np.float32(0)  # no negative zeros
            same = agrees(got, want)
            if not same.all():
                place = int(np.argmin(same))
                given = [array[place] for array in arrays]
                pytest.fail(f"{ufunc.__name__}{given}: {got[place]}, NumPy has {want[place]}")


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", ["ldexp", "nextafter", "spacing", "frexp", "modf"])
def test_parts_of_floats_to_the_bit(name: str, dtype: str) -> None:
    if name == "spacing" and dtype == "float16":
        pytest.skip("NumPy's own is another one below zero")
    with np.errstate(all="ignore"):
        values = EDGES["float32"].astype(dtype)
        arrays = [values]
        if name != "spacing" and name not in ("frexp", "modf"):
            powers = np.array([-300, -151, -149, -140, -127, -24, -15, -1, 0, 1, 15, 127, 130, 300])
            second = powers.astype(np.int32) if name == "ldexp" else values
            grid = np.meshgrid(values, second, indexing="ij")
            arrays = [side.ravel().copy() for side in grid]
        ufunc = getattr(np, name)
        wanted = ufunc(*arrays)
        found = traced(ufunc, arrays)
    for got, want in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert got.dtype == want.dtype
        has_sign = name != "nextafter" or dtype == "float32"  # NumPy keeps the other equal zero
        same = (got == want) & ((not has_sign) | (np.signbit(got) == np.signbit(want))) | (
            got != got
        ) & (want != want)
        assert same.all(), [(a[~same][:3]) for a in (*arrays, got, want)]


MASK = np.arange(35).reshape(5, 7) % 3 > 0
REDUCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "var": np.var,
    "std": np.std,
    "any": np.any,
    "all": np.all,
    "max from": lambda x: np.max(x, initial=1),
    "min from": lambda x: np.min(x, initial=0),
    "sum from": lambda x: np.sum(x, initial=1),
    "vdot": lambda x: np.vdot(x, x),
    "sum where": lambda x: np.sum(x, where=MASK),
    "prod where": lambda x: np.prod(x, where=MASK, initial=1),
    "max where": lambda x: np.max(x, where=MASK, initial=1),
    "min where": lambda x: np.min(x, where=MASK, initial=0),
    "mean where": lambda x: np.mean(x, where=MASK),
    "var where": lambda x: np.var(x, where=MASK),
    "std where": lambda x: np.std(x, where=MASK, ddof=1),
    "any where": lambda x: np.any(x, where=~MASK),
    "all where": lambda x: np.all(x, where=MASK),
    "reduce where": lambda x: np.add.reduce(x, axis=None, where=MASK[:, :1]),
}


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int32", "float32", "complex64"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reduction(name: str, dtype: str) -> None:
    source = np.random.default_rng(5)
    array = source.normal(size=(5, 7)) * 3
    if dtype == "complex64":
        array = array + 1j * source.normal(size=(5, 7))
    elif dtype == "uint8":
        array = np.abs(array)
    arrays = [array.astype(dtype)]
    if dtype == "complex64" and name.startswith(("max", "min")):
        with pytest.raises(UnsupportedError, match="complex"):
            traced(REDUCTIONS[name], arrays)
        return
    if name == "vdot" and dtype != "complex64":
        arrays = [
            np.abs(arrays[0].astype(np.float32)).astype(dtype) if dtype != "bool" else arrays[0]
        ]
    want = np.asarray(REDUCTIONS[name](*arrays))
    (got,) = traced(REDUCTIONS[name], arrays)
    if got.dtype.kind in "iub":
        assert got.dtype.kind == want.dtype.kind
        assert got == want.astype(got.dtype)
    else:
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    "values", [[[True, False], [False, False]], [[False, False], [True, True]]]
)
@pytest.mark.parametrize("initial", [False, True])
def test_extremes_of_booleans_from_a_start(values: list[list[bool]], initial: bool) -> None:
    array = np.array(values)
    for function in (np.max, np.min):
        want = function(array, axis=1, initial=initial)

        def run(x: Values, function: Callable[..., Any] = function) -> Any:
            return function(x, axis=1, initial=initial)

        (got,) = traced(run, [array])
        np.testing.assert_array_equal(got, want)


BIG = np.array([2**31, 1])


def test_integers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(CompileError, match=r"2147483648.*does not fit int32"):
        trace(lambda x: x + BIG, (np.ones(2, np.int32),))


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_arguments_that_do_not_fit_are_refused(value: int) -> None:
    executable = tpuc.compile(
        "HloModule m\nENTRY e { x = s32[2] parameter(0)\n ROOT y = s32[2] add(x, x) }"
    )
    np.testing.assert_array_equal(executable(np.array([1, 2]))[0], [2, 4])
    with pytest.raises(CompileError, match=f"input 0.*{value}.*does not fit int32"):
        executable(np.array([value, 1]))
    with pytest.raises(CompileError, match="does not fit int32"):
        tpuc.device_put(np.array([value, 1]))
    with pytest.raises(CompileError, match="does not fit int32"):
        tpuc.jit(lambda x: x + 1)(np.array([value, 1]))


def test_traced_metadata_is_xlas() -> None:
    module, _, _ = trace(np.tanh, (np.ones(2, np.float32),))
    (metadata,) = (i.attrs["metadata"] for i in module.entry if i.opcode == "tanh")
    assert isinstance(metadata, OpMetadata)
    text = metadata.text
    assert canonical_metadata(text) == text
