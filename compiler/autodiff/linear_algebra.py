"""Derivatives of Fourier transforms, Cholesky factors and triangular systems."""

from __future__ import annotations

import math
from collections.abc import Sequence

from compiler.autodiff.rule import DerivativeRule, DerivativeStep, Linear, LocalRule
from compiler.autodiff.values import Contribution, Instr, Tangent, array_of, tangent_sum
from compiler.passes.expanders.blocked_factors import product
from compiler.rewrite.emitter import Emitter

# --- Fourier transforms --------------------------------------------------------------------------


def _fft(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """A transform's matrix is symmetric; a real one sees half of it."""
    kind = step.instr.fft_type
    if kind in ("FFT", "IFFT"):
        return [step.again([g])]
    return [_of_real(step, g) if kind == "RFFT" else _to_real(step, g)]


def _of_real(step: DerivativeStep, g: Instr) -> Instr:
    """RFFT: pad to the whole spectrum, transform, keep the real part."""
    e, dims = step.e, step.operands[0].array.dims
    whole = e.pad_dim(g, len(dims) - 1, 0, dims[-1] - g.array.dims[-1])
    attrs: dict[str, object] = {"fft_type": "FFT", "fft_length": step.instr.fft_length}
    return e.unary("real", e.instruction("fft", (whole,), attrs))


def _to_real(step: DerivativeStep, g: Instr) -> Instr:
    """IRFFT: a real transform of the cotangent; what stands for two coefficients counts twice."""
    e, array = step.e, step.operands[0].array
    lengths = step.instr.fft_length
    attrs: dict[str, object] = {"fft_type": "RFFT", "fft_length": lengths}
    made = e.instruction("fft", (g,), attrs)
    n, kept = lengths[-1], array.dims[-1]
    place = e.positions(made.array.dims, len(array.dims) - 1)
    alone = e.compare_to(place, 0, "EQ")
    if n % 2 == 0:
        alone = e.or_(alone, e.compare_to(place, kept - 1, "EQ"))
    scale = 1 / math.prod(lengths)
    real = e.unary("real", made).array
    factor = e.select(
        alone, e.full(real.dtype, real.dims, scale), e.full(real.dtype, real.dims, 2 * scale)
    )
    parts = [e.multiply(e.unary(part, made), factor) for part in ("real", "imag")]
    return e.conj(e.instruction("complex", parts))  # it goes the other way around the circle


# --- matrices ------------------------------------------------------------------------------------


def _adjoint(e: Emitter, a: Instr) -> Instr:
    return e.conj(e.swap_last(a))


def _solve(e: Emitter, a: Instr, b: Instr, *, left: bool, lower: bool, how: str) -> Instr:
    attrs: dict[str, object] = {
        "left_side": left, "lower": lower, "unit_diagonal": False, "transpose_a": how
    }  # fmt: skip
    return e.instruction("triangular-solve", (a, b), attrs)


def _triangle(e: Emitter, a: Instr, *, lower: bool, strict: bool = False) -> Instr:
    """One triangle; the other is zero."""
    dims = a.array.dims
    row, column = e.positions(dims, -2), e.positions(dims, -1)
    direction = ("GT" if strict else "GE") if lower else ("LT" if strict else "LE")
    return e.select(e.compare(row, column, direction), a, e.like(a, 0))


def _half_diagonal(e: Emitter, a: Instr) -> Instr:
    dims = a.array.dims
    same = e.compare(e.positions(dims, -2), e.positions(dims, -1), "EQ")
    half = e.multiply(a, e.like(a, 0.5))
    return e.select(same, half, a)


class _Cholesky(LocalRule):
    """``a = l l^H``: ``dl = l phi(l^-1 da l^-H)``, phi the lower triangle with half the diagonal.

    Of the operand only one triangle is read, and only it has a derivative.
    """

    def _lower(self, step: DerivativeStep, matrix: Instr) -> Instr:
        return matrix if step.instr.lower else _adjoint(step.e, matrix)

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """By the law above, of the Hermitian matrix that the triangle stands for."""
        if tangents[0] is None:
            return None
        e, factor = step.e, self._lower(step, step.y)
        half = self._lower(step, tangents[0])
        below = _triangle(e, half, lower=True, strict=True)
        change = e.add(_triangle(e, half, lower=True), _adjoint(e, below))
        inner = _solve(e, factor, change, left=True, lower=True, how="NO_TRANSPOSE")
        inner = _solve(e, factor, inner, left=False, lower=True, how="ADJOINT")
        phi = _half_diagonal(e, _triangle(e, inner, lower=True))
        return self._lower(step, product(e, factor, phi))

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """``l^-H phi(l^H g) l^-1``, in the triangle that is read."""
        e, factor = step.e, self._lower(step, step.y)
        # The law is for the adjoint; cotangents here pair without conjugation.
        g = _triangle(e, self._lower(step, e.conj(array_of(cotangent))), lower=True)
        inner = _half_diagonal(e, _triangle(e, product(e, _adjoint(e, factor), g), lower=True))
        inner = e.add(inner, _adjoint(e, inner))
        inner = e.multiply(inner, e.like(inner, 0.5))
        inner = _solve(e, factor, inner, left=True, lower=True, how="ADJOINT")
        inner = _solve(e, factor, inner, left=False, lower=True, how="NO_TRANSPOSE")
        below = _triangle(e, inner, lower=True, strict=True)
        folded = e.add(_triangle(e, inner, lower=True), below)
        return [e.conj(self._lower(step, folded))]


class _TriangularSolve(LocalRule):
    """``op(a) x = b``, or ``x op(a) = b``."""

    def _again(self, step: DerivativeStep, b: Instr) -> Instr:
        return step.again([step.operands[0], b])

    def _triangle_of(self, step: DerivativeStep, a: Instr) -> Instr:
        """What is read of a matrix."""
        return _triangle(step.e, a, lower=step.instr.lower, strict=bool(step.instr.unit_diagonal))

    def _turned(self, step: DerivativeStep, a: Instr) -> Instr:
        how = step.instr.transpose_a
        if how == "NO_TRANSPOSE":
            return a
        return _adjoint(step.e, a) if how == "ADJOINT" else step.e.swap_last(a)

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """``op(a)^-1 (db - op(da) x)``."""
        e, (da, db) = step.e, tangents
        parts = [db]
        if da is not None:
            change = self._turned(step, self._triangle_of(step, da))
            pair = (change, step.y) if step.instr.left_side else (step.y, change)
            parts.append(e.negate(product(e, *pair)))
        total = tangent_sum(e, parts)
        return None if total is None else self._again(step, total)

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """``c = op(a)^-T g`` for b, and ``-c x^T`` for op(a)."""
        e, instr, g = step.e, step.instr, array_of(cotangent)
        attrs = {k: v for k, v in instr.attrs.items() if k != "metadata"}
        how = instr.transpose_a
        matrix = step.operands[0]
        if how == "ADJOINT":
            matrix, attrs["transpose_a"] = e.conj(matrix), "NO_TRANSPOSE"
        else:
            attrs["transpose_a"] = "TRANSPOSE" if how == "NO_TRANSPOSE" else "NO_TRANSPOSE"
        c = e.instruction("triangular-solve", (matrix, g), attrs)
        if not step.wanted[0]:
            return [None, c]
        y = e.swap_last(step.y)
        change = product(e, c, y) if instr.left_side else product(e, y, c)
        if how != "NO_TRANSPOSE":
            change = e.swap_last(change)
        if how == "ADJOINT":
            change = e.conj(change)
        return [self._triangle_of(step, e.negate(change)), c]


LINEAR_ALGEBRA_RULES: dict[str, DerivativeRule] = {
    "cholesky": _Cholesky(),
    "fft": Linear((0,), _fft),
    "triangular-solve": _TriangularSolve(),
}
