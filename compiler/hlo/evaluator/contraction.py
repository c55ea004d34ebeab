"""dot, ragged-dot and scaled-dot: operands become [batch, m, k] and [batch, k, n] for BLAS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from compiler.hlo.evaluator.context import Array, Context, Handler, Operands, finish, unsupported
from compiler.hlo.evaluator.convolution import evaluate_convolution
from compiler.hlo.evaluator.matmul import contract, dot_precision
from compiler.hlo.evaluator.numerics import widen
from compiler.hlo.ir import HloInstruction

DimPair: TypeAlias = tuple[Sequence[int], Sequence[int]]


def _dot(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    contracting, batch = _dimension_numbers(instr)
    lhs, rhs = operands
    return finish(ctx, instr, general_dot(lhs, rhs, contracting, batch, dot_precision(ctx, instr)))


def _dimension_numbers(instr: HloInstruction) -> tuple[DimPair, DimPair]:
    """The contracting and the batch dimensions, of lhs and rhs each."""
    contracting = (
        instr.lhs_contracting_dims,
        instr.rhs_contracting_dims,
    )
    batch = (
        instr.lhs_batch_dims,
        instr.rhs_batch_dims,
    )
    return contracting, batch


def general_dot(
    lhs: Array,
    rhs: Array,
    contracting: DimPair,
    batch: DimPair,
    precision: str,
) -> Array:
    """Contract; the result's dimensions are batch, then lhs free, then rhs free ones."""
    lhs_free = _free_dims(lhs, (*contracting[0], *batch[0]))
    rhs_free = _free_dims(rhs, (*contracting[1], *batch[1]))
    batch_shape = [lhs.shape[d] for d in batch[0]]
    lhs_shape = [lhs.shape[d] for d in lhs_free]
    rhs_shape = [rhs.shape[d] for d in rhs_free]
    b, m, n = math.prod(batch_shape), math.prod(lhs_shape), math.prod(rhs_shape)
    k = math.prod(lhs.shape[d] for d in contracting[0])
    lhs3 = lhs.transpose(*batch[0], *lhs_free, *contracting[0]).reshape(b, m, k)
    rhs3 = rhs.transpose(*batch[1], *contracting[1], *rhs_free).reshape(b, k, n)
    result = contract(lhs3, rhs3, np.matmul, precision)
    return result.reshape([*batch_shape, *lhs_shape, *rhs_shape])


def _free_dims(array: Array, used: Sequence[int]) -> list[int]:
    return [d for d in range(array.ndim) if d not in used]


def _convolution(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    lhs, rhs = operands
    return finish(ctx, instr, evaluate_convolution(instr, lhs, rhs, dot_precision(ctx, instr)))


def _ragged_dot(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    """lhs rows in groups of `operands[2]` sizes, each group against its own slice of rhs.

    Covers the three modes of the operation (the ragged dimension is free, contracting or batch)
    for group sizes of rank 1; rows past the last group give zeros.
    """
    lhs, rhs, sizes = operands
    if sizes.ndim != 1:
        raise unsupported(instr, "group sizes of rank above 1; loop over the batch instead")
    contracting, batch = _dimension_numbers(instr)
    (ragged,) = instr.lhs_ragged_dims
    stops = np.cumsum(sizes)
    groups = [slice(int(stop - size), int(stop)) for stop, size in zip(stops, sizes, strict=True)]
    precision = dot_precision(ctx, instr)
    group_dims = instr.rhs_group_dims
    result = np.zeros(instr.array.dims, np.float32)
    result = result.astype(np.result_type(result, widen(lhs), widen(rhs)))
    for number, group in enumerate(groups):
        part = _along(lhs, ragged, group)
        if group_dims:
            other = np.take(rhs, number, axis=group_dims[0])
            rhs_contracting = [d - (d > group_dims[0]) for d in contracting[1]]
            rhs_batch = [d - (d > group_dims[0]) for d in batch[1]]
            axis = len(batch[0]) + _free_dims(lhs, (*contracting[0], *batch[0])).index(ragged)
            value = general_dot(
                part, other, (contracting[0], rhs_contracting), (batch[0], rhs_batch), precision
            )
            _along(result, axis, group)[...] = value
        elif ragged in contracting[0]:
            paired = contracting[1][contracting[0].index(ragged)]
            other = _along(rhs, paired, group)
            result[number] = general_dot(part, other, contracting, batch, precision)
        else:
            axis = batch[0].index(ragged)
            other = _along(rhs, batch[1][axis], group)
            value = general_dot(part, other, contracting, batch, precision)
            _along(result, axis, group)[...] = value
    return finish(ctx, instr, result)


def _along(array: Array, axis: int, part: slice) -> Array:
    return array[(slice(None),) * axis + (part,)]


def _scaled_dot(ctx: Context, instr: HloInstruction, operands: Operands) -> Array:
    """A dot whose operands are multiplied by block scales first (a scale per block of a dim)."""
    lhs, rhs, lhs_scale, rhs_scale = operands
    scaled = _apply_scale(lhs, lhs_scale), _apply_scale(rhs, rhs_scale)
    return finish(ctx, instr, general_dot(*scaled, *_dimension_numbers(instr), "highest"))


def _apply_scale(array: Array, scale: Array) -> Array:
    if scale.ndim == 0:
        return np.asarray(widen(array) * widen(scale))
    spread = widen(scale)
    for axis, (extent, blocks) in enumerate(zip(array.shape, scale.shape, strict=True)):
        spread = np.repeat(spread, extent // blocks, axis) if blocks != extent else spread
    return np.asarray(widen(array) * spread)


CONTRACTION_HANDLERS: dict[str, Handler] = {
    "convolution": _convolution,
    "dot": _dot,
    "ragged-dot": _ragged_dot,
    "scaled-dot": _scaled_dot,
}
