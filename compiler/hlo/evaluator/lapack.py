"""LAPACK calls of JAX's CPU lowerings, by NumPy or substitution, in f64 and rounded once.

Results that LAPACK leaves to itself are its freedom here too: the signs of eigenvectors and of
singular vectors, and all of U and V in mode N.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np

from compiler.hlo.evaluator import factorizations
from compiler.hlo.evaluator.context import Array, Operands, Value
from compiler.hlo.evaluator.linalg import cholesky_factor, solve_triangular
from compiler.hlo.ir import HloInstruction
from compiler.hlo.lapack_calls import lapack_character, lapack_routine
from compiler.hlo.shape import TupleShape, leaves

_Routine: TypeAlias = Callable[[HloInstruction, Operands], tuple[Array, ...]]


def lapack_call(instr: HloInstruction, operands: Operands) -> Value | None:
    """The results as the call declares them; None when it is of no known routine."""
    routine = _ROUTINES.get(lapack_routine(instr) or "")
    if routine is None:
        return None
    values = routine(instr, [np.asarray(operand) for operand in operands])
    declared = tuple(
        value.astype(shape.dtype.numpy)
        if value.shape == shape.dims
        else np.zeros(shape.dims, shape.dtype.numpy)  # mode N: they are not defined
        for value, shape in zip(values, leaves(instr.shape), strict=True)
    )
    return declared if isinstance(instr.shape, TupleShape) else declared[0]


def _first(failed: Array) -> Array:
    """The place, from 1, of the first true element along the last dimension; 0 if there is none."""
    return np.where(failed.any(-1), failed.argmax(-1) + 1, 0).astype(np.int32)


def _potrf(instr: HloInstruction, operands: Operands) -> tuple[Array, ...]:
    """The factor in one triangle; the other one is as it was."""
    a = operands[0]
    is_lower = lapack_character(instr, "uplo") == "L"
    factor = cholesky_factor(a, is_lower=is_lower)
    own = np.tril(np.ones(a.shape[-2:], np.bool_))
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1).real
    return np.where(own if is_lower else own.T, factor, a), _first(np.isnan(diagonal))


def _getrf(instr: HloInstruction, operands: Operands) -> tuple[Array, ...]:
    result = factorizations.lu_decomposition(instr, operands)
    packed, pivots = np.asarray(result[0]), np.asarray(result[1])
    return packed, pivots + 1, _first(np.diagonal(packed, axis1=-2, axis2=-1) == 0)


def _geqrf(instr: HloInstruction, operands: Operands) -> tuple[Array, ...]:
    packed, scales = factorizations.qr_decomposition(instr, operands)
    return np.asarray(packed), np.asarray(scales)


def _orgqr(instr: HloInstruction, operands: Operands) -> tuple[Array, ...]:
    return (np.asarray(factorizations.product_of_reflectors(instr, operands)),)


def _syevd(instr: HloInstruction, operands: Operands) -> tuple[Array, ...]:
    is_lower = lapack_character(instr, "uplo") == "L"
    triangle: Literal["L", "U"] = "L" if is_lower else "U"
    values, vectors = factorizations.of_finite(
        lambda a: np.linalg.eigh(a, triangle), _wide(operands[0])
    )
    return vectors, values, _success(operands[0])


def _gesdd(instr: HloInstruction, operands: Operands) -> tuple[Array, ...]:
    """Mode A: square u and v; S: as many columns as singular values; N: they are not defined."""
    a = operands[0]
    is_full = lapack_character(instr, "mode") != "S"
    u, s, vh = factorizations.of_finite(
        lambda matrices: np.linalg.svd(matrices, full_matrices=is_full), _wide(a)
    )
    return a, s, u, vh, _success(a)


def _trsm(instr: HloInstruction, operands: Operands) -> tuple[Array, ...]:
    solution = solve_triangular(
        _wide(operands[0]),
        _wide(operands[1]),
        left_side=lapack_character(instr, "side") == "L",
        lower=lapack_character(instr, "uplo") == "L",
        unit=lapack_character(instr, "diag") == "U",
        transpose={"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}[
            lapack_character(instr, "trans_x")
        ],
    )
    return (solution,)


def _wide(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _success(array: Array) -> Array:
    return np.zeros(array.shape[:-2], np.int32)


_ROUTINES: dict[str, _Routine] = {
    "geqrf": _geqrf,
    "gesdd": _gesdd,
    "getrf": _getrf,
    "heevd": _syevd,
    "orgqr": _orgqr,
    "potrf": _potrf,
    "syevd": _syevd,
    "trsm": _trsm,
    "ungqr": _orgqr,
}
LAPACK_ROUTINES = tuple(_ROUTINES)
"""The routines that are evaluated, without their type."""
