"""Cholesky and triangular solve of matrices of several blocks, and of many small matrices."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tests.support.expansions import Array, assert_close, expanded, on_machine, reference
from tpu_sim.isa.chips import load_chip

PASSES = ["custom-call-expander", "linear-algebra-expander"]
GONE = ["custom-call", "cholesky", "triangular-solve"]
SHAPES = ((6, 6), (65, 65), (150, 150), (2, 130, 130), (2, 64, 9, 9))
"""Below a block, no multiple of one, a batch, and a batch that lies in the lanes."""


def _positive(dtype: str, *dims: int) -> Array:
    rng = np.random.default_rng(sum(dims))
    x = rng.standard_normal(dims)
    if dtype == "c64":
        x = x + 1j * rng.standard_normal(dims)
    product = x @ np.conj(np.swapaxes(x, -1, -2)) + dims[-1] / 10 * np.eye(dims[-1])
    return product.astype(np.complex64 if dtype == "c64" else np.float32)


def _text(dims: tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


def _without_other_triangle(x: Array, *, is_lower: bool) -> Array:
    """NaN where a lower (upper) triangle's user may not look."""
    other = np.triu(np.ones(x.shape[-2:], bool), 1)
    return np.where(other if is_lower else other.T, np.array(np.nan, x.dtype), x)


def _cholesky(dtype: str, dims: tuple[int, ...], *, is_lower: bool) -> str:
    shape = f"{dtype}[{_text(dims)}]"
    return (
        f"HloModule m\nENTRY e {{\n  x = {shape} parameter(0)\n"
        f"  ROOT r = {shape} cholesky(x), lower={str(is_lower).lower()}\n}}\n"
    )


@pytest.mark.parametrize("is_lower", [True, False])
@pytest.mark.parametrize("dtype", ["f32", "c64"])
@pytest.mark.parametrize("dims", SHAPES)
def test_cholesky(dims: tuple[int, ...], dtype: str, is_lower: bool) -> None:
    x = _positive(dtype, *dims)
    text = _cholesky(dtype, dims, is_lower=is_lower)
    given = _without_other_triangle(x, is_lower=is_lower)
    got = expanded(text, [given], PASSES, GONE)
    assert_close(reference(text, [x]), got, 2e-6)
    factor = got[0] if is_lower else np.conj(np.swapaxes(got[0], -1, -2))
    product = factor @ np.conj(np.swapaxes(factor, -1, -2))
    assert_close([x], [product.astype(x.dtype)], 4e-6)


@pytest.mark.parametrize("place", [0, 70, 149])
def test_one_negative_pivot_makes_the_whole_lower_triangle_nan(place: int) -> None:
    x = np.stack([_positive("f32", 150, 150)] * 2)
    x[1, place, place] = -1
    text = _cholesky("f32", x.shape, is_lower=True)
    (got,) = expanded(text, [x], PASSES, GONE)
    assert np.isfinite(got[0]).all()
    assert np.isnan(got[1][np.tril_indices(150)]).all()
    assert (got[1][np.triu_indices(150, 1)] == 0).all()


SOLVE = """HloModule m
ENTRY e {{
  a = {t}[{square}] parameter(0)
  b = {t}[{sides}] parameter(1)
  ROOT r = {t}[{sides}] triangular-solve(a, b), left_side={left}, lower={lower},
    transpose_a={transpose}, unit_diagonal={unit}
}}
"""
TURNS = ("NO_TRANSPOSE", "TRANSPOSE", "ADJOINT")
FORMS = tuple(itertools.product((True, False), (True, False), (True, False), TURNS))


def _solve(
    dims: tuple[int, ...], is_left: bool, is_lower: bool, is_unit: bool, turn: str
) -> tuple[str, list[Array], Array]:
    """The program, its inputs, and the triangle whose other part is zero."""
    dtype, n = "c64" if turn == "ADJOINT" else "f32", dims[-1]
    full = np.linalg.cholesky(_positive(dtype, *dims))
    full = full / n if is_unit else full
    a = full if is_lower else np.ascontiguousarray(np.swapaxes(full, -1, -2))
    sides = (*dims[:-2], n, 3) if is_left else (*dims[:-2], 3, n)
    b = np.random.default_rng(n).standard_normal(sides).astype(a.dtype)
    words = [str(flag).lower() for flag in (is_left, is_lower, is_unit)]
    text = SOLVE.format(
        t=dtype,
        square=_text(dims),
        sides=_text(sides),
        left=words[0],
        lower=words[1],
        unit=words[2],
        transpose=turn,
    )
    return text, [_without_other_triangle(a, is_lower=is_lower), b], a


@pytest.mark.parametrize(("is_left", "is_lower", "is_unit", "turn"), FORMS)
@pytest.mark.parametrize("dims", [(6, 6), (150, 150), (128, 5, 5)])
def test_triangular_solve(
    dims: tuple[int, ...], is_left: bool, is_lower: bool, is_unit: bool, turn: str
) -> None:
    text, inputs, a = _solve(dims, is_left, is_lower, is_unit, turn)
    want = reference(text, [a, inputs[1]])
    assert_close(want, expanded(text, inputs, PASSES, GONE), 2e-6)


@pytest.mark.parametrize("dims", [(20, 20), (130, 130), (128, 5, 5)])
def test_on_the_machine(dims: tuple[int, ...]) -> None:
    text, inputs, a = _solve(dims, True, False, False, "TRANSPOSE")
    assert_close(reference(text, [a, inputs[1]]), on_machine(text, inputs), 5e-6)
    x = _positive("f32", *dims)
    factor = _cholesky("f32", dims, is_lower=True)
    assert_close(reference(factor, [x]), on_machine(factor, [x]), 5e-6)


def _count_of(text: str, opcode: str) -> int:
    module = parse_module(text, "test.hlo")
    run_pipeline(module, load_chip("v5e"), passes=PASSES)
    return sum(i.opcode == opcode for c in module.computations.values() for i in c)


def test_programs_of_large_matrices_stay_small() -> None:
    assert _count_of(_cholesky("f32", (512, 512), is_lower=True), "while") == 4
    assert _count_of(_cholesky("f32", (10000, 10000), is_lower=True), "while") <= 16


def test_a_solve_of_blocks_has_no_loop() -> None:
    text, _, _ = _solve((150, 150), True, True, False, "NO_TRANSPOSE")
    assert _count_of(text, "while") == 0
