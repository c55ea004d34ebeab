"""Factorisations and solves as loops of whole-matrix steps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from compiler.diagnostics import UnsupportedError
from tests.support.expansions import Array, assert_close, expanded, on_machine, reference

PASSES = ["custom-call-expander", "linear-algebra-expander"]
GONE = ["custom-call", "cholesky", "triangular-solve"]


def _matrix(dtype: str, *dims: int) -> Array:
    rng = np.random.default_rng(sum(dims))
    value = rng.standard_normal(dims)
    if dtype == "c64":
        return (value + 1j * rng.standard_normal(dims)).astype(np.complex64)
    return value.astype(np.float32)


def _positive(dtype: str, *dims: int) -> Array:
    x = _matrix(dtype, *dims)
    product = x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(dims[-1])
    return product.astype(x.dtype)


def _shape(dims: tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


def _call(target: str, operands: list[str], result: str, config: str = "") -> str:
    lines = [f"  p{i} = {shape} parameter({i})" for i, shape in enumerate(operands)]
    names = ", ".join(f"p{i}" for i in range(len(operands)))
    tail = f', backend_config="{config}"' if config else ""
    call = f'  ROOT r = {result} custom-call({names}), custom_call_target="{target}"{tail}'
    return "HloModule m\nENTRY e {\n" + "\n".join([*lines, call]) + "\n}\n"


@pytest.mark.parametrize("lower", ["true", "false"])
@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_cholesky(dtype: str, lower: str) -> None:
    x = _positive(dtype, 2, 9, 9)
    text = f"""HloModule m
    ENTRY e {{
      x = {dtype}[2,9,9] parameter(0)
      ROOT r = {dtype}[2,9,9] cholesky(x), lower={lower}
    }}
    """
    want = reference(text, [x])
    assert_close(want, expanded(text, [x], PASSES, GONE), 1e-5)
    if lower == "false":
        assert_close(want, on_machine(text, [x]), 1e-5)


def test_cholesky_of_an_indefinite_matrix_is_nan() -> None:
    x = -np.eye(3, dtype=np.float32)
    text = "HloModule m\nENTRY e {\n x = f32[3,3] parameter(0)\n"
    text += " ROOT r = f32[3,3] cholesky(x), lower=true\n}\n"
    (got,) = expanded(text, [x], PASSES, GONE)
    assert np.isnan(got[np.tril_indices(3)]).all()
    assert (got[np.triu_indices(3, 1)] == 0).all()


SOLVE = """HloModule m
ENTRY e {{
  a = {t}[2,5,5] parameter(0)
  b = {t}[{dims}] parameter(1)
  ROOT r = {t}[{dims}] triangular-solve(a, b), left_side={left}, lower={lower},
    transpose_a={transpose}, unit_diagonal={unit}
}}
"""
SIDES = tuple(itertools.product(("true", "false"), ("true", "false")))


@pytest.mark.parametrize("transpose", ["NO_TRANSPOSE", "TRANSPOSE", "ADJOINT"])
@pytest.mark.parametrize(("left", "lower"), SIDES)
@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_triangular_solve(dtype: str, left: str, lower: str, transpose: str) -> None:
    dims = (2, 5, 3) if left == "true" else (2, 3, 5)
    unit = "true" if transpose == "TRANSPOSE" else "false"
    text = SOLVE.format(
        t=dtype, dims=_shape(dims), left=left, lower=lower, transpose=transpose, unit=unit
    )
    a = (_matrix(dtype, 2, 5, 5) + 3 * np.eye(5)).astype(_matrix(dtype, 1).dtype)
    inputs = [a, _matrix(dtype, *dims)]
    assert_close(reference(text, inputs), expanded(text, inputs, PASSES, GONE), 1e-5)


def test_triangular_solve_on_the_machine() -> None:
    text = SOLVE.format(
        t="f32", dims="2,3,5", left="false", lower="true", transpose="TRANSPOSE", unit="false"
    )
    inputs = [_matrix("f32", 2, 5, 5) + 3 * np.eye(5, dtype=np.float32), _matrix("f32", 2, 3, 5)]
    assert_close(reference(text, inputs), on_machine(text, inputs), 1e-5)


@pytest.mark.parametrize("dims", [(1, 1), (2, 4, 7), (7, 4), (12, 12)])
@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_lu_and_qr(dtype: str, dims: tuple[int, ...]) -> None:
    x, least = _matrix(dtype, *dims), min(dims[-2:])
    full, batch = _shape(dims), dims[:-2]
    pivots, rows = _shape((*batch, least)), _shape((*batch, dims[-2]))
    lu = _call(
        "LuDecomposition",
        [f"{dtype}[{full}]"],
        f"({dtype}[{full}], s32[{pivots}], s32[{rows}])",
    )
    assert_close(reference(lu, [x]), expanded(lu, [x], PASSES, GONE), 1e-4)
    qr = _call("Qr", [f"{dtype}[{full}]"], f"({dtype}[{full}], {dtype}[{pivots}])")
    packed = reference(qr, [x])
    assert_close(packed, expanded(qr, [x], PASSES, GONE), 1e-4)
    q = _call(
        "ProductOfElementaryHouseholderReflectors",
        [f"{dtype}[{full}]", f"{dtype}[{pivots}]"],
        f"{dtype}[{full}]",
    )
    assert_close(reference(q, packed), expanded(q, packed, PASSES, GONE), 1e-4)


def test_lu_pivots_on_the_machine() -> None:
    x = _matrix("f32", 6, 6)
    text = _call("LuDecomposition", ["f32[6,6]"], "(f32[6,6], s32[6], s32[6])")
    assert_close(reference(text, [x]), on_machine(text, [x]), 1e-4)


@pytest.mark.parametrize("dims", [(1, 1), (2, 2), (2, 5, 5), (3, 8, 8)])
@pytest.mark.parametrize("dtype", ["f32", "c64"])
def test_eigh(dtype: str, dims: tuple[int, ...]) -> None:
    x = _matrix(dtype, *dims)
    hermitian = x + np.conj(np.swapaxes(x, -1, -2))
    text = _call(
        "Eigh",
        [f"{dtype}[{_shape(dims)}]"],
        f"({dtype}[{_shape(dims)}], f32[{_shape(dims[:-1])}])",
        "1,1,100,1e-6",
    )
    upper_is_not_read = np.tril(hermitian)
    vectors, values = expanded(text, [upper_is_not_read], PASSES, GONE)
    assert_close([reference(text, [hermitian])[1]], [values], 1e-5)
    product = hermitian @ vectors
    assert_close([product], [(vectors * values[..., None, :]).astype(product.dtype)], 1e-5)


def test_eigh_of_equal_eigenvalues_on_the_machine() -> None:
    x = np.diag(np.array([2, 2, -1, 2, 0], np.float32))
    x[0, 3] = x[3, 0] = 1
    text = _call("Eigh", ["f32[5,5]"], "(f32[5,5], f32[5])", "1,1,100,1e-6")
    vectors, values = on_machine(text, [x])
    np.testing.assert_allclose(values, [-1, 0, 1, 2, 3], atol=1e-5)
    np.testing.assert_allclose(x @ vectors, vectors * values, atol=1e-5)


def test_an_unknown_target_is_refused_by_name() -> None:
    text = _call("Mystery", ["f32[2]"], "f32[2]")
    with pytest.raises(UnsupportedError, match="'Mystery' is unknown"):
        expanded(text, [np.zeros(2, np.float32)], PASSES)


def test_eigh_of_what_is_not_finite_is_nan() -> None:
    x = np.stack([np.eye(5), np.eye(5), np.eye(5)]).astype(np.float32)
    x[1, 2, 3] = x[1, 3, 2] = np.nan
    x[2, 0, 0] = np.inf
    text = _call("Eigh", ["f32[3,5,5]"], "(f32[3,5,5], f32[3,5])", "1,1,100,1e-6")
    vectors, values = on_machine(text, [x])
    np.testing.assert_allclose(values[0], np.ones(5))
    assert np.isnan(values[1:]).all() and np.isnan(vectors[1:]).all()
