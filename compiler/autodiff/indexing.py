"""Derivatives of gather, scatter and topk: where values come from is data, which has no derivative.

A gather clamps its indices, a scatter leaves out what does not fit: each transposes into the other with
the indices clamped, or the values masked, accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence

from compiler.autodiff.reduction import monoid_of
from compiler.autodiff.rule import Linear, Local, Rule, Step
from compiler.autodiff.values import Contribution, Instr, Onto, Tangent, array_of, or_zeros
from compiler.diagnostics import UnsupportedError
from compiler.hlo.builder import HloBuilder
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import ArrayShape
from compiler.passes.expanders.emitter import Emitter

# --- gather --------------------------------------------------------------------------------------


def _gather(step: Step, g: Instr) -> Sequence[Contribution]:
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


def _limits(e: Emitter, indices: Instr, instr: Instr, limits: Sequence[int]) -> Instr:
    """The largest allowed value of each index component, in the shape of the indices."""
    dims, place = indices.array.dims, instr.index_vector_dim
    line = e.table(indices.array.dtype, limits)
    if place == len(dims):
        return e.broadcast(e.shaped(line, ()), dims) if dims else e.shaped(line, ())
    return e.broadcast(line, dims, (place,))


def _clamped(e: Emitter, indices: Instr, instr: Instr, limits: Sequence[int]) -> Instr:
    if not limits:
        return indices
    return e.clamp(e.like(indices, 0), indices, _limits(e, indices, instr, limits))


# --- scatter -------------------------------------------------------------------------------------


def _window_sizes(instr: Instr, update: Instr) -> tuple[int, ...]:
    """The box of operand 0 that one index writes, dimension by dimension."""
    windows = iter([update.array.dims[d] for d in instr.update_window_dims])
    gone = (*instr.inserted_window_dims, *instr.input_batching_dims)
    rank = instr.operands[0].array.rank
    return tuple(1 if d in gone else next(windows) for d in range(rank))


def read_back(step: Step, g: Instr) -> Instr:
    """What an array has in the places that a scatter's updates go to; zero for those left out."""
    e, instr = step.e, step.instr
    count = len(step.operands) // 2
    indices, update = step.operands[count], step.operands[count + 1]
    sizes = _window_sizes(instr, update)
    attrs: dict[str, object] = {
        "offset_dims": instr.update_window_dims,
        "collapsed_slice_dims": instr.inserted_window_dims,
        "start_index_map": instr.scatter_dims_to_operand_dims,
        "index_vector_dim": instr.index_vector_dim,
        "slice_sizes": sizes,
    }
    if instr.input_batching_dims:
        attrs["operand_batching_dims"] = instr.input_batching_dims
        attrs["start_indices_batching_dims"] = instr.scatter_indices_batching_dims
    read = e.instruction("gather", (g, indices), attrs)
    return e.select(_fits(step, indices, sizes, read), read, e.like(read, 0))


def _fits(step: Step, indices: Instr, sizes: Sequence[int], like: Instr) -> Instr:
    """Whether the box of each update lies inside, in the shape of the updates."""
    e, instr = step.e, step.instr
    dims = step.operands[0].array.dims
    bounds = [dims[d] - sizes[d] for d in instr.scatter_dims_to_operand_dims]
    if not bounds:
        return e.full(PRED, like.array.dims, 1)
    low = e.compare_to(indices, 0, "GE")
    high = e.compare(indices, _limits(e, indices, instr, bounds), "LE")
    inside = e.and_(low, high)
    if instr.index_vector_dim < indices.array.rank:
        inside = e.total(inside, instr.index_vector_dim, kind="and")
    mapping = [d for d in range(like.array.rank) if d not in instr.update_window_dims]
    return e.broadcast(inside, like.array.dims, mapping)


class _Scatter(Local):
    """By what becomes of an element and its update: their sum, the update, product, extreme."""

    def tangent(self, step: Step, tangents: Sequence[Instr | None]) -> Tangent:
        """Of a sum the same, of tangents; of the rest, by what was taken."""
        kind, count = self._kind(step), len(step.operands) // 2
        if kind != "add" and not (kind == "set" and count == 1):
            raise self._unsupported(step, "forward mode")
        moving = [
            or_zeros(step.e, tangents[i], operand.array) if i != count else operand
            for i, operand in enumerate(step.operands)
        ]
        made = step.again(moving) if kind == "add" or _is_unique(step) else self._set(step, moving)
        if count == 1:
            return made
        return tuple(step.e.get_tuple_element(made, k) for k in range(count))

    def _set(self, step: Step, moving: Sequence[Instr]) -> Instr:
        """Of several updates of one element the one that is there in the result."""
        e = step.e
        target, indices, update = moving
        kept = e.select(self._is_written(step), e.like(target, 0), target)
        mine = e.select(self._won(step), update, e.like(update, 0))
        attrs = {k: v for k, v in step.instr.attrs.items() if k not in ("metadata", "to_apply")}
        return e.scatter((kept,), indices, (mine,), e.scalar("add", kept.array.dtype), **attrs)

    def cotangents(self, step: Step, cotangent: Tangent) -> Sequence[Contribution]:
        """What each operand and update has of the result."""
        kind, count = self._kind(step), len(step.operands) // 2
        if kind not in ("add", "set") or (kind == "set" and count > 1):
            raise self._unsupported(step, "reverse mode")
        parts = cotangent if isinstance(cotangent, tuple) else (cotangent,)
        targets: list[Contribution] = []
        updates: list[Contribution] = []
        for k, part in enumerate(parts):
            g = None if part is None else array_of(part)
            wanted = step.wanted[k], step.wanted[count + 1 + k]
            targets.append(None if g is None or not wanted[0] else self._kept(step, kind, g))
            updates.append(None if g is None or not wanted[1] else self._given(step, kind, g))
        return [*targets, None, *updates]

    def _kept(self, step: Step, kind: str, g: Instr) -> Instr:
        if kind == "add":
            return g
        return step.e.select(self._is_written(step), step.e.like(g, 0), g)

    def _given(self, step: Step, kind: str, g: Instr) -> Instr:
        read = read_back(step, g)
        if kind == "add" or _is_unique(step):
            return read
        return step.e.select(self._won(step), read, step.e.like(read, 0))

    def _written_by(self, step: Step) -> Instr:
        """The number of the update that each element has, from 1 on; 0 for none."""
        e, (target, indices, update) = step.e, step.operands
        count = update.array.element_count
        numbers = (
            e.shaped(e.iota(S32, (count,), 0), update.array.dims)
            if count
            else e.full(S32, update.array.dims, 0)
        )
        numbers = e.add(numbers, e.like(numbers, 1))
        attrs = {k: v for k, v in step.instr.attrs.items() if k not in ("metadata", "to_apply")}
        none = e.full(S32, target.array.dims, 0)
        return e.scatter((none,), indices, (numbers,), _second(e), **attrs)

    def _is_written(self, step: Step) -> Instr:
        return step.e.compare_to(self._written_by(step), 0, "NE")

    def _won(self, step: Step) -> Instr:
        """Whether an update is the one that stands in its element in the end."""
        e, update = step.e, step.operands[2]
        count = update.array.element_count
        back = read_back(step, self._written_by(step))
        numbers = e.shaped(e.iota(S32, (count,), 0), update.array.dims)
        return e.compare(back, e.add(numbers, e.like(numbers, 1)), "EQ")

    def _kind(self, step: Step) -> str:
        body = step.instr.to_apply
        if body.root_instruction is body.parameters[-1] and len(body.parameters) == 2:
            return "set"
        count = len(step.operands) // 2
        return monoid_of(body) or "" if count == 1 else ""

    def _unsupported(self, step: Step, mode: str) -> UnsupportedError:
        return UnsupportedError(
            f"%{step.instr.name}: scatter with %{step.instr.to_apply.name} has no derivative in {mode}; "
            "scatter by adding, or write with unique indices",
            step.instr.span,
        )


def _second(e: Emitter) -> HloComputation:
    """The update, whatever was there."""
    inner = HloBuilder("take_update", e.module)
    inner.parameter(ArrayShape(S32, ()))
    return inner.build(inner.parameter(ArrayShape(S32, ())))


def _is_unique(step: Step) -> bool:
    return bool(step.instr.attrs.get("unique_indices"))


# --- topk ----------------------------------------------------------------------------------------


class _TopK(Local):
    """The chosen elements of each row."""

    def tangent(self, step: Step, tangents: Sequence[Instr | None]) -> Tangent:
        """Their tangents."""
        assert isinstance(step.result, tuple)
        if tangents[0] is None:
            return None
        return taken_along_last(step.e, tangents[0], array_of(step.result[1])), None

    def cotangents(self, step: Step, cotangent: Tangent) -> Sequence[Contribution]:
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


INDEXING_RULES: dict[str, Rule] = {
    "gather": Linear((0,), _gather),
    "scatter": _Scatter(),
    "topk": _TopK(),
}
