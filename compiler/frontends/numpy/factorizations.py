"""Factorizations of matrices that the compiler has as calls, with their derivatives.

    lu   `LuDecomposition`: packed factors, pivots, the order of the rows
    qr   `Qr` and the product of its reflectors
    eigh `Eigh`: eigenvectors and ascending eigenvalues
    svd  ``gesdd`` as JAX's lowerings name it

All take batches ``[.., m, n]`` of f32 or c64 that are not empty. Each derivative is a function of tangents,
linear in them (`custom_jvp`), so that it serves both modes and any order. Where a factorization is not unique
(equal eigenvalues or singular values) it has no derivative: the formulas divide by zero there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from compiler.frontends.numpy.custom_rules import Begun, custom_jvp
from compiler.hlo.dtypes import S32, from_numpy
from compiler.hlo.shape import ArrayShape, Shape, TupleShape

_LU, _QR, _EIGH, _SVD = Begun(), Begun(), Begun(), Begun()


def highest(x: Any, y: Any) -> Any:
    """The product of two batches of matrices in the precision of their type."""
    product: Any = np.matmul(x, y)
    product.instr.attrs["operand_precision"] = ("highest", "highest")
    return product


def adjoint(x: Any) -> Any:
    """The conjugate transpose."""
    turned: Any = np.swapaxes(x, -1, -2)
    return np.conj(turned) if x.dtype.kind == "c" else turned


def identity_like(x: Any) -> Any:
    """The unit matrix of the type and the size of square ones."""
    return np.eye(x.shape[-1], dtype=x.dtype)


def triangular_solve(
    a: Any, b: Any, *, left: bool = True, lower: bool = True, unit: bool = False, how: str = "NO_TRANSPOSE"
) -> Any:  # fmt: skip
    """``op(a)^-1 b``, or ``b op(a)^-1``, reading one triangle of a."""
    attrs: dict[str, object] = {
        "left_side": left, "lower": lower, "unit_diagonal": unit, "transpose_a": how
    }  # fmt: skip
    return type(b)(
        b.owner, b.owner.builder.instruction("triangular-solve", (a.instr, b.instr), attrs)
    )


def _called(target: str, operands: Sequence[Any], shapes: Sequence[Shape], config: str = "") -> Any:
    """The results of a call."""
    trace = operands[0].owner
    b = trace.builder
    shape = shapes[0] if len(shapes) == 1 else TupleShape(tuple(shapes))
    made = b.custom_call(target, [x.instr for x in operands], shape)
    if config:
        made.attrs["backend_config"] = config
    if len(shapes) == 1:
        return [type(operands[0])(trace, made)]
    return [type(operands[0])(trace, b.get_tuple_element(made, k)) for k in range(len(shapes))]


def _array(like: Any, dims: Sequence[int], dtype: Any = None) -> ArrayShape:
    return ArrayShape(from_numpy(np.dtype(dtype or like.dtype)), tuple(dims))


# --- LU --------------------------------------------------------------------------------------------


def lu(a: Any) -> tuple[Any, Any, Any]:
    """Of square matrices: L (with a unit diagonal) and U in one, s32 pivots, and the s32 order of the rows:
    ``a[order] = L U``."""
    found: tuple[Any, Any, Any] = custom_jvp(a.owner, _lu, _lu_derivative, _LU, (a,))
    return found


def _lu(a: Any) -> tuple[Any, Any, Any]:
    batch, n = a.shape[:-2], a.shape[-1]
    places = ArrayShape(S32, (*batch, n))
    packed, pivots, order = _called("LuDecomposition", [a], [_array(a, a.shape), places, places])
    return packed, pivots, order


def _lu_derivative(primals: Any, tangents: Any) -> Any:
    """``dL = L tril(F, -1)``, ``dU = triu(F) U`` of ``F = L^-1 da U^-1``."""
    (a,), (da,) = primals, tangents
    packed, pivots, order = lu(a)
    inner = triangular_solve(packed, permuted(da, order), unit=True)
    inner = triangular_solve(packed, inner, left=False, lower=False)
    lower: Any = np.tril(packed, -1) + identity_like(packed)
    upper: Any = np.triu(packed)
    change = highest(lower, np.tril(inner, -1)) + highest(np.triu(inner), upper)
    zeros = np.zeros(pivots.shape, np.int32), np.zeros(order.shape, np.int32)
    return (packed, pivots, order), (change, *zeros)


def permuted(b: Any, order: Any) -> Any:
    """The rows of each matrix in another order."""
    if order.ndim == 1:
        return b[order]
    batch = order.shape[:-1]
    count = int(np.prod(batch))
    rows: Any = np.reshape(b, (count, *b.shape[-2:]))
    moved = rows[np.arange(count)[:, None], np.reshape(order, (count, order.shape[-1]))]
    return np.reshape(moved, b.shape)


def lu_solve(factors: tuple[Any, Any, Any], b: Any) -> Any:
    """``a^-1 b`` of the factors of a."""
    packed, _, order = factors
    inner = triangular_solve(packed, permuted(b, order), unit=True)
    return triangular_solve(packed, inner, lower=False)


# --- QR --------------------------------------------------------------------------------------------


def qr(a: Any) -> tuple[Any, Any]:
    """Q ``[.., m, k]`` with orthonormal columns and upper triangular R ``[.., k, n]``, ``k = min(m, n)``."""
    found: tuple[Any, Any] = custom_jvp(a.owner, _qr, _qr_derivative, _QR, (a,))
    return found


def _qr(a: Any) -> tuple[Any, Any]:
    k = min(a.shape[-2:])
    packed, scales = packed_qr(a)
    return reflected(packed[..., :k], scales), np.triu(packed[..., :k, :])


def packed_qr(a: Any) -> tuple[Any, Any]:
    """R above Householder vectors, and the vectors' scales."""
    scales = (*a.shape[:-2], min(a.shape[-2:]))
    packed, taus = _called("Qr", [a], [_array(a, a.shape), _array(a, scales)])
    return packed, taus


def reflected(packed: Any, scales: Any) -> Any:
    """The product of the reflectors."""
    target = "ProductOfElementaryHouseholderReflectors"
    return _called(target, [packed, scales], [_array(packed, packed.shape)])[0]


def _qr_derivative(primals: Any, tangents: Any) -> Any:
    """``F = q^H da r^-1`` is what the rotation of q (skew) and the change of r (triangular) add up to."""
    (a,), (da,) = primals, tangents
    q, r = qr(a)
    k = r.shape[-2]
    square = r[..., :k]
    moved = triangular_solve(square, da[..., :k], left=False, lower=False)
    inner = highest(adjoint(q), moved)
    below: Any = np.tril(inner, -1)
    turn: Any = below - adjoint(below)
    if a.dtype.kind == "c":
        turn = turn + identity_like(inner) * (inner - np.real(inner).astype(a.dtype))
    dq = highest(q, turn - inner) + moved
    dr = highest(inner - turn, square)
    if a.shape[-1] > k:
        rest = highest(adjoint(q), da[..., k:] - highest(dq, r[..., k:]))
        dr = np.concatenate([dr, rest], axis=-1)
    return (q, r), (dq, dr)


# --- Eigenvalues -----------------------------------------------------------------------------------


def eigh(a: Any) -> tuple[Any, Any]:
    """Eigenvalues, ascending and real, and eigenvectors as columns, of Hermitian matrices of which the lower
    triangle is read."""
    found: tuple[Any, Any] = custom_jvp(a.owner, _eigh, _eigh_derivative, _EIGH, (a,))
    return found


def _eigh(a: Any) -> tuple[Any, Any]:
    shapes = [_array(a, a.shape), _array(a, a.shape[:-1], np.float32)]
    vectors, values = _called("Eigh", [a], shapes, "1,1,100,1e-6")
    return values, vectors


def _eigh_derivative(primals: Any, tangents: Any) -> Any:
    """``dw = diag(v^H da v)``, ``dv = v (v^H da v / (w_j - w_i))`` off the diagonal."""
    (a,), (da,) = primals, tangents
    values, vectors = eigh(a)
    below: Any = np.tril(da, -1)
    change: Any = np.tril(da) + adjoint(below)
    unit = identity_like(values[..., None] * values[..., None, :])
    inner = highest(highest(adjoint(vectors), change), vectors)
    gaps = values[..., None, :] - values[..., :, None] + unit
    shares: Any = (1 / gaps - unit).astype(a.dtype)
    dw = np.real(np.diagonal(inner, 0, -2, -1))
    return (values, vectors), (dw, highest(vectors, shares * inner))


# --- Singular values -------------------------------------------------------------------------------


def svd(a: Any) -> tuple[Any, Any, Any]:
    """``a = u diag(s) vh`` with ``k = min(m, n)`` columns of u and rows of vh; s descending."""
    found: tuple[Any, Any, Any] = custom_jvp(a.owner, _svd, _svd_derivative, _SVD, (a,))
    return found


def _svd(a: Any) -> tuple[Any, Any, Any]:
    return _gesdd(a, "S")


def full_svd(a: Any) -> tuple[Any, Any, Any]:
    """The same with square u and vh. It has no derivative unless a is square: the further columns are any."""
    return svd(a) if a.shape[-1] == a.shape[-2] else _gesdd(a, "A")


def _gesdd(a: Any, mode: str) -> tuple[Any, Any, Any]:
    m, n = a.shape[-2:]
    k = min(m, n)
    batch = a.shape[:-2]
    columns, rows = (m, n) if mode == "A" else (k, k)
    shapes = [
        _array(a, a.shape),
        _array(a, (*batch, k), np.float32),
        _array(a, (*batch, m, columns)),
        _array(a, (*batch, rows, n)),
        ArrayShape(S32, batch),
    ]
    letter = "c" if a.dtype.kind == "c" else "s"
    config = f"{{mode = {ord(mode)} : ui8}}"
    _, s, u, vh, _ = _called(f"lapack_{letter}gesdd_ffi", [a], shapes, config)
    return u, s, vh


def _svd_derivative(primals: Any, tangents: Any) -> Any:
    """Of ``G = u^H da v``: s changes by its diagonal, u and v turn by what is off it."""
    (a,), (da,) = primals, tangents
    u, s, vh = svd(a)
    v = adjoint(vh)
    inner = highest(highest(adjoint(u), da), v)
    unit = identity_like(s[..., None] * s[..., None, :])
    row, column = s[..., None, :], s[..., :, None]
    shares: Any = (1 / ((row + column) * (row - column) + unit) - unit).astype(a.dtype)
    wide_row, wide_column = row.astype(a.dtype), column.astype(a.dtype)
    by_row, by_column = inner * wide_row, wide_column * inner
    du = highest(u, shares * (by_row + adjoint(by_row)))
    dv = highest(v, shares * (by_column + adjoint(by_column)))
    if a.dtype.kind == "c":  # the phase that u and v share is u's
        phase = unit * (inner - adjoint(inner)) / 2
        du = du + highest(u, phase / wide_row)
    if a.shape[-2] > a.shape[-1]:
        moved = highest(da, v)
        du = du + (moved - highest(u, highest(adjoint(u), moved))) / wide_row
    if a.shape[-1] > a.shape[-2]:
        moved = highest(adjoint(da), u)
        dv = dv + (moved - highest(v, highest(vh, moved))) / wide_row
    ds = np.real(np.diagonal(inner, 0, -2, -1))
    return (u, s, vh), (du, ds, adjoint(dv))
