"""cholesky, triangular-solve and fft; the factorisations compute in f64 and round once."""

from __future__ import annotations

import numpy as np

from compiler.hlo.evaluator.context import (
    Array,
    Context,
    Handler,
    Operands,
    Value,
    finish,
    unsupported,
)
from compiler.hlo.fourier import roots
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import TupleShape


def _double(array: Array) -> Array:
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _cholesky(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    """The factor in the triangle asked for, zeros elsewhere; NaN where not positive definite."""
    factor = cholesky_factor(operands[0], is_lower=instr.lower)
    return finish(ctx, instr, factor)


def cholesky_factor(matrix: Array, *, is_lower: bool) -> Array:
    """`cholesky` in f64; one triangle of the matrix is read."""
    array = _double(matrix)
    size = array.shape[-1]
    source = array if is_lower else np.conj(np.swapaxes(array, -1, -2))
    factor = np.zeros_like(source)
    for j in range(size):
        row = factor[..., j, :j]
        pivot = np.sqrt((source[..., j, j] - np.sum(row * np.conj(row), -1)).real)
        factor[..., j, j] = pivot
        rest = np.matmul(factor[..., j + 1 :, :j], np.conj(row)[..., np.newaxis])[..., 0]
        factor[..., j + 1 :, j] = (source[..., j + 1 :, j] - rest) / pivot[..., np.newaxis]
    failed = np.isnan(factor).any((-1, -2), keepdims=True)
    factor = np.where(failed, np.tril(np.full_like(factor, np.nan)), factor)
    return factor if is_lower else np.conj(np.swapaxes(factor, -1, -2))


def _triangular_solve(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    solution = solve_triangular(
        _double(operands[0]),
        _double(operands[1]),
        left_side=instr.left_side,
        lower=instr.lower,
        unit=instr.unit_diagonal,
        transpose=instr.transpose_a,
    )
    return finish(ctx, instr, solution)


def solve_triangular(
    a: Array, b: Array, *, left_side: bool, lower: bool, unit: bool, transpose: str
) -> Array:
    """Solve ``op(a) x = b``, or ``x op(a) = b``, by substitution; only one triangle is read."""
    if transpose != "NO_TRANSPOSE":
        a = np.swapaxes(a, -1, -2)
        lower = not lower
    if transpose == "ADJOINT":
        a = np.conj(a)
    if not left_side:
        # x a = b  ==  a^T x^T = b^T
        a, b, lower = np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2), not lower
    x = np.zeros(np.broadcast_shapes(b.shape), b.dtype)
    size = a.shape[-1]
    for i in range(size) if lower else reversed(range(size)):
        known = slice(0, i) if lower else slice(i + 1, size)
        value = b[..., i, :] - np.matmul(a[..., i : i + 1, known], x[..., known, :])[..., 0, :]
        x[..., i, :] = value if unit else value / a[..., i, i, np.newaxis]
    return x if left_side else np.swapaxes(x, -1, -2)


def _fft(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    lengths = instr.fft_length
    axes = tuple(range(-len(lengths), 0))
    if not operands[0].size or 0 in lengths:  # NumPy transforms at least one point
        return finish(ctx, instr, np.zeros(instr.array.dims))
    array = _double(operands[0])
    result: Array
    match instr.fft_type:
        case "FFT":
            result = np.fft.fftn(array, lengths, axes)
        case "IFFT":
            result = np.fft.ifftn(array, lengths, axes)
        case "RFFT":
            result = np.fft.rfftn(array, lengths, axes)
        case "IRFFT":
            result = np.fft.irfftn(array, lengths, axes)
        case other:
            raise unsupported(instr, f"fft_type={other}")
    return finish(ctx, instr, result)


def _pair_fft(ctx: Context, instr: HloInstruction, operands: Operands) -> Value:
    table, real, *rest = operands
    (dim,) = instr.dimensions
    if not np.array_equal(table, roots(real.shape[dim])):
        raise unsupported(instr, "a table that is not the roots of its length")
    value = _double(real) if not rest else _double(real) + 1j * _double(rest[0])
    is_inverse = instr.fft_type == "IFFT"
    result = (np.fft.ifft if is_inverse else np.fft.fft)(value, axis=dim)
    real, imag = result.real.astype(np.float32), result.imag.astype(np.float32)
    return (real, imag) if isinstance(instr.shape, TupleShape) else real


LINALG_HANDLERS: dict[str, Handler] = {
    "cholesky": _cholesky,
    "fft": _fft,
    "pair-fft": _pair_fft,
    "triangular-solve": _triangular_solve,
}
