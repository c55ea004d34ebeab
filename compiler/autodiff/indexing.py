"""Derivatives of gather and topk: where values come from is data, which has no derivative.

A gather clamps its indices, a scatter leaves out what does not fit: the scatter that a gather
transposes into has its indices clamped.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.rule import DerivativeRule, DerivativeStep, Linear, LocalRule
from compiler.autodiff.scatter import ScatterRule, largest_indices
from compiler.autodiff.values import Contribution, Instr, Onto, Tangent, array_of
from compiler.rewrite.emitter import Emitter

# --- gather --------------------------------------------------------------------------------------


def _gather(step: DerivativeStep, g: Instr) -> Sequence[Contribution]:
    """Added to the operand's cotangent in the places that were read."""
    source, indices = step.operands
    limits = [n - size for n, size in zip(source.array.dims, step.instr.slice_sizes, strict=True)]
    clamped = _clamped(step.e, indices, step.instr, [limits[d] for d in step.instr.start_index_map])
    attrs = scatter_of_gather(step.instr)

    def add(e: Emitter, total: Instr) -> Instr:
        body = e.scalar("add", total.array.dtype)
        return e.scatter((total,), clamped, (g,), body, **attrs)

    return [Onto(add), None]


def scatter_of_gather(gather: Instr) -> dict[str, object]:
    """The attributes of the scatter that writes where a gather reads."""
    attrs: dict[str, object] = {
        "update_window_dims": gather.offset_dims,
        "inserted_window_dims": gather.collapsed_slice_dims,
        "scatter_dims_to_operand_dims": gather.start_index_map,
        "index_vector_dim": gather.index_vector_dim,
    }
    if gather.operand_batching_dims:
        attrs["input_batching_dims"] = gather.operand_batching_dims
        attrs["scatter_indices_batching_dims"] = gather.start_indices_batching_dims
    if gather.attrs.get("indices_are_sorted"):
        attrs["indices_are_sorted"] = True
    return attrs


def _clamped(e: Emitter, indices: Instr, instr: Instr, limits: Sequence[int]) -> Instr:
    if not limits:
        return indices
    return e.clamp(e.like(indices, 0), indices, largest_indices(e, indices, instr, limits))


# --- topk ----------------------------------------------------------------------------------------


class _TopK(LocalRule):
    """The chosen elements of each row."""

    def tangent(self, step: DerivativeStep, tangents: Sequence[Instr | None]) -> Tangent:
        """Their tangents."""
        assert isinstance(step.result, tuple)
        if tangents[0] is None:
            return None
        return taken_along_last(step.e, tangents[0], array_of(step.result[1])), None

    def cotangents(self, step: DerivativeStep, cotangent: Tangent) -> Sequence[Contribution]:
        """Back to where they were."""
        assert isinstance(step.result, tuple)
        assert isinstance(cotangent, tuple)
        g, places = cotangent[0], array_of(step.result[1])
        return [
            None
            if g is None
            else Onto(lambda e, total: put_along_last(e, total, places, array_of(g)))
        ]


def _row_indices(e: Emitter, places: Instr) -> tuple[Instr, tuple[int, ...]]:
    dims = places.array.dims
    return e.shaped(places, (*dims, 1)), tuple(range(len(dims) - 1))


def taken_along_last(e: Emitter, values: Instr, places: Instr) -> Instr:
    """np.take_along_axis of the last axis."""
    indices, batch = _row_indices(e, places)
    last = len(batch)
    return e.gather(
        values, indices, offset_dims=(), collapsed_slice_dims=(last,), start_index_map=(last,),
        operand_batching_dims=batch, start_indices_batching_dims=batch, index_vector_dim=last + 1,
        slice_sizes=(1,) * (last + 1),
    )  # fmt: skip


def put_along_last(e: Emitter, target: Instr, places: Instr, values: Instr) -> Instr:
    """`target` with values added along the last axis."""
    indices, batch = _row_indices(e, places)
    last = len(batch)
    return e.scatter(
        (target,), indices, (values,), e.scalar("add", target.array.dtype), update_window_dims=(),
        inserted_window_dims=(last,), scatter_dims_to_operand_dims=(last,), input_batching_dims=batch,
        scatter_indices_batching_dims=batch, index_vector_dim=last + 1,
    )  # fmt: skip


INDEXING_RULES: dict[str, DerivativeRule] = {
    "gather": Linear((0,), _gather),
    "scatter": ScatterRule(),
    "topk": _TopK(),
}
