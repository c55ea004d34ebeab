"""Matrix factorisations that XLA:TPU knows as custom calls: LU, QR, symmetric eigenproblem.

All compute in f64 (complex128) and round once; leading dimensions are batches.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np

from compiler.hlo.evaluator.context import Array, Operands, Value
from compiler.hlo.ir import HloInstruction


def _batches(array: Array) -> Array:
    wide = np.complex128 if array.dtype.kind == "c" else np.float64
    return array.reshape(math.prod(array.shape[:-2]), *array.shape[-2:]).astype(wide)


def of_finite(factors: Callable[[Array], tuple[Array, ...]], matrices: Array) -> tuple[Array, ...]:
    """`factors` of each matrix; of one that is not finite, for which NumPy raises, all are NaN."""
    is_finite: Array = np.asarray(np.isfinite(matrices).all((-2, -1)))
    results = factors(np.where(is_finite[..., None, None], matrices, 0))
    return tuple(
        np.where(is_finite.reshape(*is_finite.shape, *[1] * (r.ndim - is_finite.ndim)), r, np.nan)
        for r in results
    )


def lu_decomposition(instr: HloInstruction, operands: Operands) -> Value:
    """Packed L and U with partial pivoting, the pivots, and the permutation of the rows."""
    array = np.asarray(operands[0])
    rows, columns = array.shape[-2:]
    batches = _batches(array)
    steps = min(rows, columns)
    pivots = np.zeros((len(batches), steps), np.int32)
    order = np.tile(np.arange(rows, dtype=np.int32), (len(batches), 1))
    for matrix, pivot, permutation in zip(batches, pivots, order, strict=True):
        for k in range(steps):
            best = k + int(np.argmax(np.abs(matrix[k:, k])))
            pivot[k] = best
            matrix[[k, best]] = matrix[[best, k]]
            permutation[[k, best]] = permutation[[best, k]]
            if matrix[k, k] != 0:
                matrix[k + 1 :, k] /= matrix[k, k]
            update: Array = matrix[k + 1 :, k, np.newaxis] * matrix[k, k + 1 :]
            matrix[k + 1 :, k + 1 :] -= update
    batch = array.shape[:-2]
    packed = batches.reshape(array.shape).astype(array.dtype)
    return packed, pivots.reshape(*batch, steps), order.reshape(*batch, rows)


def qr_decomposition(instr: HloInstruction, operands: Operands) -> Value:
    """R above the diagonal, Householder vectors below it, and their scales (as LAPACK's geqrf)."""
    array = np.asarray(operands[0])
    rows, columns = array.shape[-2:]
    batches = _batches(array)
    scales = np.zeros((len(batches), min(rows, columns)), batches.dtype)
    for matrix, taus in zip(batches, scales, strict=True):
        for k in range(len(taus)):
            taus[k] = _reflect_column(matrix, k)
    packed = batches.reshape(array.shape).astype(array.dtype)
    return packed, scales.reshape(*array.shape[:-2], scales.shape[-1]).astype(array.dtype)


def _reflect_column(matrix: Array, k: int) -> complex:
    """Zero column k below the diagonal by ``I - tau v v^H``; v is stored in place of the zeros."""
    head, tail = matrix[k, k], matrix[k + 1 :, k]
    size = np.sqrt(abs(head) ** 2 + np.sum(np.abs(tail) ** 2))
    if size == abs(head) and np.imag(head) == 0:
        return 0.0
    diagonal = -np.copysign(size, np.real(head))
    tau = (diagonal - head) / diagonal
    vector = np.concatenate([np.ones(1, matrix.dtype), tail / (head - diagonal)])
    rest = matrix[k:, k + 1 :]
    rest -= np.conj(tau) * np.outer(vector, np.conj(vector) @ rest)
    matrix[k, k] = diagonal
    matrix[k + 1 :, k] = vector[1:]
    return complex(tau) if matrix.dtype.kind == "c" else float(tau.real)


def product_of_reflectors(instr: HloInstruction, operands: Operands) -> Value:
    """The matrix Q that packed Householder vectors and their scales stand for."""
    array, scales = np.asarray(operands[0]), np.asarray(operands[1])
    rows, columns = array.shape[-2:]
    batches = _batches(array)
    taus = scales.reshape(len(batches), scales.shape[-1]).astype(batches.dtype)
    result = np.zeros_like(batches)
    for packed, tau, q in zip(batches, taus, result, strict=True):
        np.fill_diagonal(q, 1)
        for k in reversed(range(len(tau))):
            vector = np.concatenate([np.ones(1, q.dtype), packed[k + 1 :, k]])
            q[k:] -= tau[k] * np.outer(vector, np.conj(vector) @ q[k:])
    return result.reshape(*array.shape[:-2], rows, columns).astype(array.dtype)


def symmetric_eigenproblem(instr: HloInstruction, operands: Operands) -> Value:
    """Eigenvectors (as columns) and ascending eigenvalues; one triangle is read."""
    array = np.asarray(operands[0])
    # backend_config="lower,sorted,iterations,tolerance"
    is_lower = not str(instr.attrs.get("backend_config", "1")).strip('"').startswith("0")
    triangle: Literal["L", "U"] = "L" if is_lower else "U"
    values, vectors = of_finite(lambda a: np.linalg.eigh(a, triangle), _batches(array))
    real = np.float32 if array.dtype == np.complex64 else array.dtype
    return (
        vectors.reshape(array.shape).astype(array.dtype),
        values.reshape(array.shape[:-1]).astype(real),
    )
