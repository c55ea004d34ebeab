"""Cholesky, QR, eigenvalues and singular values of `np.linalg`, and what singular values say."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from compiler.diagnostics import CompileError
from compiler.frontends.numpy import factorizations
from compiler.frontends.numpy.custom_rules import Begun, custom_jvp
from compiler.frontends.numpy.errors import BadValueError
from compiler.frontends.numpy.factorizations import adjoint, highest
from compiler.frontends.numpy.matrices import column, epsilon, matrices, real_dtype, result_dtype
from compiler.frontends.numpy.norms import norm
from compiler.frontends.numpy.ops import traced
from compiler.frontends.numpy.systems import inv
from compiler.frontends.numpy.tracer import Trace

_PINV = Begun()


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Any
    eigenvectors: Any


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Any
    R: Any


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Any
    S: Any
    Vh: Any


def cholesky(trace: Trace, a: Any, *, upper: bool = False) -> Any:
    """The lower triangular factor of Hermitian positive definite matrices, or its adjoint."""
    x = matrices(trace, "cholesky", a, square=True)
    if x.size:
        x = type(x)(trace, trace.builder.instruction("cholesky", (x.instr,), {"lower": True}))
    lower: Any = np.tril(x)
    return (adjoint(lower) if upper else lower).astype(result_dtype(trace, a))


def qr(trace: Trace, a: Any, mode: str = "reduced") -> Any:
    """Q and R; square Q in mode "complete", R alone in mode "r", Householder vectors in mode "raw"."""
    x, dtype = matrices(trace, "qr", a), result_dtype(trace, a)
    m, n = x.shape[-2:]
    k = min(m, n)
    if mode not in ("reduced", "complete", "r", "raw"):
        raise BadValueError(f"np.linalg.qr: mode={mode!r}, want reduced, complete, r or raw")
    if not x.size:
        columns = m if mode == "complete" else k
        unit = np.eye(m, columns, dtype=dtype)
        q: Any = np.broadcast_to(traced(trace, unit), (*x.shape[:-2], m, columns))
        r: Any = traced(trace, np.zeros((*x.shape[:-2], columns, n), dtype))
        return r if mode == "r" else QRResult(q, r)
    if mode == "raw":
        packed, scales = factorizations.packed_qr(x)
        return np.swapaxes(packed, -1, -2).astype(dtype), scales.astype(dtype)
    if mode == "complete" and m > n:
        packed, scales = factorizations.packed_qr(x)
        square = np.pad(packed, [(0, 0)] * (x.ndim - 1) + [(0, m - n)])
        q, r = factorizations.reflected(square, scales), np.triu(packed)
    else:
        q, r = factorizations.qr(x)
    return r.astype(dtype) if mode == "r" else QRResult(q.astype(dtype), r.astype(dtype))


def eigh(trace: Trace, a: Any, UPLO: str = "L") -> EighResult:
    """Eigenvalues, ascending, and eigenvectors of Hermitian matrices of which one triangle is read."""
    x, dtype = matrices(trace, "eigh", a, square=True), result_dtype(trace, a)
    if UPLO not in ("L", "U"):
        raise CompileError(f"np.linalg.eigh: UPLO={UPLO!r}, want 'L' or 'U'")
    if not x.size:
        return EighResult(np.real(x[..., 0] if x.shape[-1] else x.reshape(x.shape[:-1])), x)
    values, vectors = factorizations.eigh(adjoint(x) if UPLO == "U" else x)
    return EighResult(values.astype(real_dtype(dtype)), vectors.astype(dtype))


def svd(
    trace: Trace,
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
) -> Any:
    """``a = U diag(S) Vh``, S descending; S alone without `compute_uv`."""
    x, dtype = matrices(trace, "svd", a), result_dtype(trace, a)
    (m, n), batch = x.shape[-2:], x.shape[:-2]
    k = min(m, n)
    if x.size:
        is_full = full_matrices and compute_uv
        u, s, vh = (factorizations.full_svd if is_full else factorizations.svd)(x)
    else:
        columns, rows = (m, n) if full_matrices else (k, k)
        u = np.broadcast_to(traced(trace, np.eye(m, columns, dtype=x.dtype)), (*batch, m, columns))
        vh = np.broadcast_to(traced(trace, np.eye(rows, n, dtype=x.dtype)), (*batch, rows, n))
        s = traced(trace, np.zeros((*batch, k), np.float32))
    s = s.astype(real_dtype(dtype))
    return SVDResult(u.astype(dtype), s, vh.astype(dtype)) if compute_uv else s


def svdvals(trace: Trace, x: Any, /) -> Any:
    """Singular values, descending."""
    return svd(trace, x, compute_uv=False)


def matrix_rank(
    trace: Trace, A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None
) -> Any:
    """How many singular values are above `tol`, or above `rtol` of the largest."""
    x: Any = traced(trace, A)
    if x.ndim < 2:
        return np.any(x != 0).astype(np.int32)
    s = svdvals(trace, x)
    if not s.size:
        return np.sum(s > 0, axis=-1, dtype=np.int32)
    largest: Any = np.max(s, axis=-1, keepdims=True)
    if tol is None:
        share = max(x.shape[-2:]) * epsilon(s.dtype) if rtol is None else column(trace, rtol)
        bound = largest * share
    else:
        bound = column(trace, tol)
    return np.sum(s > bound, axis=-1, dtype=np.int32)


def pinv(
    trace: Trace, a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None
) -> Any:
    """The pseudo-inverse, without singular values below `rcond` (or `rtol`) of the largest."""
    x, dtype = matrices(trace, "pinv", a), result_dtype(trace, a)
    share = rtol if rcond is None else rcond
    share = max(x.shape[-2:]) * epsilon(x.dtype) if share is None else share
    if not x.size:
        return np.swapaxes(x, -1, -2).astype(dtype)
    bound = column(trace, share)

    def function(a: Any) -> Any:
        u, s, vh = factorizations.svd(a)
        kept: Any = s > np.max(s, axis=-1, keepdims=True) * bound
        inverse: Any = np.where(kept, 1 / np.where(kept, s, 1), 0).astype(a.dtype)
        return highest(adjoint(vh), inverse[..., :, None] * adjoint(u))

    def derivative(primals: Any, tangents: Any) -> Any:
        """Golub and Pereyra (1973), of matrices whose rank stays."""
        (a,), (da,) = primals, tangents
        p = custom_jvp(a.owner, function, derivative, _PINV, (a,))
        left, right = adjoint(p), adjoint(da)
        change = -highest(highest(p, da), p)
        rest = right - highest(highest(right, a), p)
        change = change + highest(highest(p, left), rest)
        rest = right - highest(highest(p, a), right)
        return p, change + highest(highest(rest, left), p)

    return custom_jvp(trace, function, derivative, _PINV, (x,)).astype(dtype)


def cond(trace: Trace, x: Any, p: Any = None) -> Any:
    """The condition number: of singular values for p None, 2, -2, else of norms of x and its inverse."""
    a = matrices(trace, "cond", x)
    if p in (None, 2, -2):
        s: Any = svdvals(trace, a)
        return s[..., 0] / s[..., -1] if p != -2 else s[..., -1] / s[..., 0]
    axes = (-2, -1)
    return norm(trace, a, p, axes) * norm(trace, inv(trace, a), p, axes)
