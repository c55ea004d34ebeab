"""`np.linalg` under tracing: values against NumPy's, derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tpuc
from compiler.diagnostics import CompileError
from compiler.frontends.numpy.pytree import flatten
from tests.unit.frontends.test_numpy_tracing import run

RNG = np.random.default_rng(5)
L = np.linalg


def f32(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


A, B, TALL, WIDE = f32(2, 4, 4), f32(4, 3), f32(5, 3), f32(2, 3, 5)
C = (A + 1j * f32(2, 4, 4)).astype(np.complex64)
H = A @ A.swapaxes(1, 2) + np.eye(4, dtype=np.float32)
HC = (C @ C.conj().swapaxes(1, 2) + np.eye(4)).astype(np.complex64)
SINGULAR = np.float32([[1, 2], [2, 4]])


def product(factors: Any) -> Any:
    """Factors are unique up to signs; their product is."""
    if len(factors) == 3:
        u, s, vh = factors
        return (u[..., : s.shape[-1]] * s[..., None, :]) @ vh[..., : s.shape[-1], :], s
    return factors[0] @ factors[1]


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve": (L.solve, (A, B)),
    "solve vector": (lambda a, b: L.solve(a, b[:, 0]), (A, B)),
    "solve complex": (L.solve, (C, B)),
    "inv": (L.inv, (A,)),
    "det": (lambda a, c, s: (L.det(a), L.det(c), L.det(s)), (A, C, SINGULAR)),
    "slogdet": (lambda a, c, s: (L.slogdet(a), L.slogdet(c), L.slogdet(s)), (A, C, SINGULAR)),
    "qr": (lambda a, b, c: [product(L.qr(x)) for x in (a, b, c)], (TALL, WIDE, C)),
    "qr complete": (lambda a: (product(L.qr(a, "complete")), L.qr(a, "complete")[0].shape), (TALL,)),
    "qr r": (lambda a: abs(L.qr(a, "r")), (TALL,)),
    "eigh": (lambda a: (L.eigh(a)[0], abs(L.eigh(a, "U")[1])), (H,)),
    "eigvalsh": (lambda a, c: (L.eigvalsh(a), L.eigvalsh(c)), (H, HC)),
    "svd": (lambda a, b, c: [product(L.svd(x)) for x in (a, b, c)], (TALL, WIDE, C)),
    "svd reduced": (lambda a: product(L.svd(a, full_matrices=False)), (WIDE,)),
    "svdvals": (lambda a, b: (L.svdvals(a), L.svdvals(b)), (C, WIDE)),
    "matrix_rank": (lambda a, s: (L.matrix_rank(a), L.matrix_rank(s), L.matrix_rank(s[0])), (A, SINGULAR)),
    "pinv": (lambda a, b, s: [L.pinv(x) for x in (a, b, s)], (TALL, WIDE, SINGULAR)),
    "lstsq": (lambda a, b: (L.lstsq(a, b), L.lstsq(a, b[:, 0])[0]), (TALL, f32(5, 2))),
    "cond": (lambda a: [L.cond(a, p) for p in (None, 2, -2, 1, np.inf, "fro")], (A[0],)),
    "norms": (lambda a: [L.norm(a, p, (0, 1)) for p in (2, -2, "nuc", "fro", 1)], (TALL,)),
    "matrix_norm": (lambda a: L.matrix_norm(a, ord="nuc", keepdims=True), (WIDE,)),
    "matrix_power": (lambda a: (L.matrix_power(a, -2), L.matrix_power(a, 3)), (A,)),
    "tensorsolve": (L.tensorsolve, (f32(2, 3, 6), f32(2, 3))),
    "tensorinv": (L.tensorinv, (f32(4, 3, 12),)),
    "cholesky": (lambda a, c: (L.cholesky(a), L.cholesky(c, upper=True)), (H, HC)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_are_numpys(name: str) -> None:
    function, args = CASES[name]
    got, want = flatten(run(function, *args))[0], flatten(function(*args))[0]
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert np.shape(mine) == np.shape(theirs)
        np.testing.assert_allclose(np.asarray(mine), theirs, 2e-3, 2e-4)


@pytest.mark.parametrize("name", ["det", "inv", "slogdet", "qr", "eigh", "svd", "pinv", "cholesky"])
def test_matrices_without_elements(name: str) -> None:
    empty = np.zeros((3, 0, 0), np.float32)
    got, want = run(getattr(L, name), empty), getattr(L, name)(empty)
    pairs = zip(flatten(got)[0], flatten(want)[0], strict=True)
    for mine, theirs in pairs:
        assert np.shape(mine) == np.shape(theirs)
        np.testing.assert_array_equal(np.asarray(mine), theirs)


GRADIENTS: dict[str, tuple[Callable[..., Any], np.ndarray]] = {
    "solve": (lambda a: np.sum(L.solve(a, a[..., :2] ** 2) ** 2), A),
    "inv": (lambda a: np.sum(L.inv(a) ** 3), H),
    "det": (lambda a: np.sum(L.det(a)), A),
    "slogdet": (lambda a: np.sum(L.slogdet(a)[1]), A),
    "qr": (lambda a: np.sum(abs(L.qr(a)[0]) ** 3 * a), TALL),
    "qr wide": (lambda a: np.sum(abs(L.qr(a)[1]) ** 3), WIDE),
    "eigh": (lambda a: np.sum(L.eigh(a + a.swapaxes(1, 2))[0] ** 2 * np.float32([1, 2, 3, 4])), A),
    "eigenvectors": (lambda a: np.sum(abs(L.eigh(a + a.swapaxes(1, 2))[1]) ** 3), A),
    "svd": (lambda a: np.sum(abs(L.svd(a, full_matrices=False)[0]) ** 3), TALL),
    "svd wide": (lambda a: np.sum(abs(L.svd(a, full_matrices=False)[2]) ** 3), WIDE),
    "svdvals": (lambda a: np.sum(L.svdvals(a) ** 3), A),
    "pinv": (lambda a: np.sum(L.pinv(a) ** 2), TALL),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_derivatives_are_those_of_finite_differences(name: str) -> None:
    """Both modes, along one direction; NumPy in f64 says how the function changes."""
    function, x = GRADIENTS[name]
    direction = np.random.default_rng(3).standard_normal(x.shape)
    direction /= np.sqrt(np.sum(direction**2))
    step = 1e-6
    ahead, behind = (function(x.astype(np.float64) + s * direction) for s in (step, -step))
    want = (ahead - behind) / (2 * step)
    moving = direction.astype(np.float32)
    gradient = run(tpuc.grad(function), x)
    forward = run(lambda x, t: tpuc.jvp(function, (x,), (t,))[1], x, moving)
    scale = max(1.0, float(np.sqrt(np.sum(np.asarray(gradient) ** 2))))
    assert abs(np.sum(gradient * direction) - want) < 2e-3 * scale
    assert abs(forward - want) < 2e-3 * scale


def test_second_derivatives() -> None:
    """The logarithm of a determinant has the Hessian ``-A^-1 (x) A^-1``."""
    x = H[0]
    found = run(lambda a: tpuc.hessian(lambda a: L.slogdet(a)[1])(a), x)
    inverse = np.linalg.inv(x)
    want = -np.einsum("jk,li->ijkl", inverse, inverse)
    np.testing.assert_allclose(found, want, 1e-3, 1e-3)


def test_what_is_no_matrix_is_said() -> None:
    with pytest.raises(CompileError, match=r"np\.linalg\.inv: .* want square matrices"):
        run(L.inv, TALL)
    with pytest.raises(CompileError, match="want rows for each column"):
        run(L.solve, A, TALL)


def test_it_runs_on_the_chip() -> None:
    """What passes make of the calls is tested where they are; this is the way there."""
    step = tpuc.jit(lambda a, b: (L.solve(a, b), L.det(a)), precision="highest")
    x, d = step(A[0], B)
    np.testing.assert_allclose(x, np.linalg.solve(A[0], B), 1e-3, 1e-3)
    np.testing.assert_allclose(d, np.linalg.det(A[0]), 1e-3)
