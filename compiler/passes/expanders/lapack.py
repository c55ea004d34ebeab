"""LAPACK calls of JAX's lowerings for the CPU, as the operations they stand for.

JAX lowers ``jnp.linalg`` for a CPU to ``lapack_spotrf_ffi`` and its like: the letter names the type
(s, c), arrays are logical (their column-major layout is a matter of memory), a character attribute is
its code. `info` is what LAPACK returns: 0, or the place (from 1) where it failed.
"""

from __future__ import annotations

from collections.abc import Callable

from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction
from compiler.hlo.lapack_calls import lapack_character, lapack_routine
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.hlo.shape_text import print_shape
from compiler.passes.expanders.eigen import hermitian_eigen
from compiler.passes.expanders.factorizations import (
    lu_decomposition,
    product_of_reflectors,
    qr_decomposition,
)
from compiler.passes.expanders.singular_values import singular_values
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
Results = list[Instr]

_OF_TWO = ("orgqr", "trsm", "ungqr")


def lapack_results(e: Emitter, instr: Instr) -> Results | None:
    """The results of a call; None when it is of no known routine."""
    name = lapack_routine(instr) or ""
    routine = _ROUTINES.get(name)
    if routine is None:
        return None
    if len(instr.operands) != (2 if name in _OF_TWO else 1):
        raise _unknown_form(instr)
    return routine(e, instr)


def _unknown_form(instr: Instr) -> UnsupportedError:
    return UnsupportedError(
        f"%{instr.name}: {instr.custom_call_target} with {len(instr.operands)} operands "
        f"and {print_shape(instr.shape)} for a result; compile what jax 0.5 or later lowers",
        instr.span,
    )


def _first(e: Emitter, failed: Instr) -> Instr:
    """The place, from 1, of the first true element along the last dimension; 0 if there is none."""
    dims = failed.array.dims
    place = e.positions(dims, -1)
    beyond = e.like(place, dims[-1])
    first = e.total(e.select(failed, place, beyond), -1, kind="minimum")
    found = e.compare_to(first, dims[-1], "LT")
    return e.select(found, e.add(first, e.like(first, 1)), e.like(first, 0))


def _diagonal_of(e: Emitter, matrix: Instr) -> Instr:
    dims = matrix.array.dims
    mask = e.compare(e.positions(dims, -2), e.positions(dims, -1), "EQ")
    short = -2 if dims[-2] > dims[-1] else -1
    return e.total(e.select(mask, matrix, e.like(matrix, 0)), short)


def _potrf(e: Emitter, instr: Instr) -> Results:
    """The factor in one triangle; the other one is not touched."""
    a = instr.operands[0]
    is_lower = lapack_character(instr, "uplo") == "L"
    dims = a.array.dims
    factor = e.instruction("cholesky", (a,), {"lower": is_lower}, a.shape)
    place, across = e.positions(dims, -2), e.positions(dims, -1)
    own = e.compare(place, across, "GE" if is_lower else "LE")
    part = e.real(_diagonal_of(e, factor))
    info = _first(e, e.compare(part, part, "NE"))
    return [e.select(own, factor, a), info]


def _getrf(e: Emitter, instr: Instr) -> Results:
    packed, pivots, _ = lu_decomposition(e, instr.operands[0])
    diagonal = _diagonal_of(e, packed)
    info = _first(e, e.compare(diagonal, e.like(diagonal, 0), "EQ"))
    return [packed, e.add(pivots, e.like(pivots, 1)), info]


def _geqrf(e: Emitter, instr: Instr) -> Results:
    return qr_decomposition(e, instr.operands[0])


def _orgqr(e: Emitter, instr: Instr) -> Results:
    return product_of_reflectors(e, *instr.operands)


def _syevd(e: Emitter, instr: Instr) -> Results:
    a = instr.operands[0]
    is_lower = lapack_character(instr, "uplo") == "L"
    vectors, values = hermitian_eigen(e, a, is_lower=is_lower)
    return [vectors, values, _success(e, a)]


def _success(e: Emitter, a: Instr) -> Instr:
    return e.full(S32, a.array.dims[:-2], 0)


def _gesdd(e: Emitter, instr: Instr) -> Results:
    """Mode A: square u and v; S: as many columns as singular values; N: they are not defined."""
    a = instr.operands[0]
    mode = lapack_character(instr, "mode")
    svd = singular_values(e, a, is_full=mode != "S")
    return [a, svd.s, svd.u, e.conj(e.swap_last(svd.v)), _success(e, a)]


def _trsm(e: Emitter, instr: Instr) -> Results:
    a, b = instr.operands
    kind = {"N": "NO_TRANSPOSE", "T": "TRANSPOSE", "C": "ADJOINT"}
    attrs: dict[str, object] = {
        "left_side": lapack_character(instr, "side") == "L",
        "lower": lapack_character(instr, "uplo") == "L",
        "unit_diagonal": lapack_character(instr, "diag") == "U",
        "transpose_a": kind[lapack_character(instr, "trans_x")],
    }
    return [e.instruction("triangular-solve", (a, b), attrs, b.shape)]


def results_as_declared(e: Emitter, instr: Instr, values: Results) -> Results:
    """What nobody reads may have another shape in mode N: zeros of the declared one."""
    shapes = instr.shape.elements if isinstance(instr.shape, TupleShape) else (instr.shape,)
    if len(values) != len(shapes):
        raise _unknown_form(instr)
    declared: Results = []
    for value, shape in zip(values, shapes, strict=True):
        assert isinstance(shape, ArrayShape)
        fits = value.array.dims == shape.dims
        declared.append(e.cast(value, shape.dtype) if fits else e.full(shape.dtype, shape.dims, 0))
    return declared


_ROUTINES: dict[str, Callable[[Emitter, Instr], Results]] = {
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
