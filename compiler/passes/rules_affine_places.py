"""Gathers and scatters at places that are known: slices, broadcasts and pads move the same elements.

`jnp.repeat(x, 2)`, `image.resize(.., "nearest")`, `x[(arange(n) + 1) % n]`, frames of a signal and
their gradients reach a compiler as index arithmetic on an iota. Their kernels would send for row
after row; as slices they are fused with what makes or uses them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from compiler.analysis.affine_boxes import (
    AffineBox,
    BoxedWindows,
    StridedAxis,
    known_starts,
    parts_of,
    span,
)
from compiler.analysis.affine_places import Starts, pieces_of
from compiler.analysis.gather_dims import GatherDims, gather_dims
from compiler.analysis.reducers import reducer_kind
from compiler.analysis.scatter_dims import ScatterDims, scatter_dims
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.rules_indexing import combine
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, splat_value
from compiler.rewrite.rewriter import ANY_ORDER, rule

Dims = tuple[int, ...]
_MOST_PARTS = 8
"""Slices that are joined; each is a case of its own in the kernel that reads them."""


# gather(x, known places) == concatenate(broadcast(slice(x)) ..)
@rule("gather-at-known-places", Op("gather"))
def gather_at_known_places(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Slices where a few describe all places; each slice is read as often as it is repeated."""
    d = gather_dims(instr)
    dims = d.operand.array.dims
    if not instr.array.element_count or not d.start_map:
        return None
    batches = (d.operand_batch, d.indices_batch)
    starts = known_starts(d.indices, d.vector_dim, d.start_map, batches, len(dims))
    if starts is None:
        return None
    most = [n - size for n, size in zip(dims, d.slice_sizes, strict=True)]
    pieces = pieces_of(np.clip(starts, 0, most), _MOST_PARTS)
    if pieces is None:
        return None
    found: list[HloInstruction] = []
    for piece in pieces.parts:
        parts = parts_of(piece.places, d.slice_sizes, _MOST_PARTS)
        if parts is None:
            return None
        length = piece.end - piece.begin
        joined = _assembled(d.operand, parts, 0)
        found.append(make.reshape(joined, (pieces.periods, length, *d.slice_sizes)))
    return _in_result_order(d, _concatenate(found, 1))


def _in_result_order(d: GatherDims, flat: HloInstruction) -> HloInstruction:
    """Slices in the order of their numbers, as the result has them."""
    result = d.gather.array.dims
    order = (*d.batch_dims, *d.offset_dims)
    ordered = make.reshape(flat, tuple(result[k] for k in order))
    return make.transpose(ordered, tuple(order.index(k) for k in range(len(result))))


def _assembled(
    operand: HloInstruction, parts: Sequence[BoxedWindows], depth: int
) -> HloInstruction:
    """Parts that share the first `depth` cuts, joined where the next cut went through them."""
    first = parts[0]
    if len(first.cuts) == depth:
        return _sliced(operand, first)
    label = first.cuts[depth].label
    by_cut: dict[int, list[BoxedWindows]] = {}
    for part in parts:
        by_cut.setdefault(part.cuts[depth].begin, []).append(part)
    joined = [_assembled(operand, group, depth + 1) for group in by_cut.values()]
    return _concatenate(joined, first.place(label))


def _concatenate(parts: Sequence[HloInstruction], dim: int) -> HloInstruction:
    if len(parts) == 1:
        return parts[0]
    dims = list(parts[0].array.dims)
    dims[dim] = sum(part.array.dims[dim] for part in parts)
    shape = parts[0].array.with_dims(tuple(dims))
    return emit(parts[0], "concatenate", shape, parts, {"dimensions": (dim,)})


def _sliced(operand: HloInstruction, part: BoxedWindows) -> HloInstruction:
    """The elements of a box: [digits .., window ..]."""
    box, found = part.box, operand
    for dim in reversed(range(operand.array.rank)):
        found = _split(found, dim, box.firsts[dim], box.axes[dim])
    labels = box.labels
    found = make.reshape(found, tuple(axis.size for one in box.axes for axis in one))
    wanted = sorted(labels, key=part.place)
    found = make.transpose(found, tuple(labels.index(label) for label in wanted))
    found = _reverse(found, [wanted.index(label) for label in box.reversed_digits])
    return make.broadcast(found, part.sizes, tuple(part.place(label) for label in wanted))


def _split(
    array: HloInstruction, dim: int, first: int, axes: Sequence[StridedAxis]
) -> HloInstruction:
    """Dimension `dim` cut into its axes: one dimension for each, and one of a single element if
    there are none."""
    size = array.array.dims[dim]
    if len(axes) < 2:
        step = axes[0].step if axes else 1
        return _cut(array, dim, first, first + span(axes), step)
    lead = axes[0]
    end = first + lead.step * lead.size
    whole = _cut(array, dim, first, min(end, size), 1)
    whole = _pad(whole, dim, (0, max(end - size, 0), 0), 0)
    dims = whole.array.dims
    split = make.reshape(whole, (*dims[:dim], lead.size, lead.step, *dims[dim + 1 :]))
    return _split(split, dim + 1, 0, axes[1:])


def _cut(array: HloInstruction, dim: int, start: int, limit: int, step: int) -> HloInstruction:
    bounds = [(0, n, 1) for n in array.array.dims]
    bounds[dim] = (start, limit, step)
    return make.slice_(array, tuple(bounds))


def _pad(
    array: HloInstruction, dim: int, padding: tuple[int, int, int], value: object
) -> HloInstruction:
    """(low, high, interior) elements of `value` along one dimension."""
    low, high, interior = padding
    size = array.array.dims[dim]
    if low == high == 0 and (interior == 0 or size == 1):
        return array
    dims = list(array.array.dims)
    dims[dim] += low + high + interior * (size - 1)
    attrs: dict[str, object] = {
        "padding": tuple(padding if d == dim else (0, 0, 0) for d in range(len(dims)))
    }
    fill = make.constant(array, array.array.dtype, value)
    return emit(array, "pad", array.array.with_dims(tuple(dims)), (array, fill), attrs)


def _reverse(array: HloInstruction, dims: Sequence[int]) -> HloInstruction:
    if not dims:
        return array
    return emit(array, "reverse", array.array, (array,), {"dimensions": tuple(sorted(dims))})


# scatter-f(x, known places, u) == f(x, pad(reduce-f(u))) in the box that the updates lie in
@rule("scatter-at-known-places", Op("scatter"), ANY_ORDER)
def scatter_at_known_places(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Updates of the same elements are combined first; then no two of a box meet."""
    if len(instr.operands) != 3 or not instr.operands[2].array.element_count:
        return None
    d = scatter_dims(instr)
    rank = d.operand.array.rank
    windows = tuple(d.window_size(dim) for dim in range(rank))
    starts = known_starts(
        d.indices, d.vector_dim, d.index_map, (d.operand_batch, d.indices_batch), rank
    )
    if starts is None or not d.index_map:
        return None
    if (starts < 0).any() or (starts > np.array(d.operand.array.dims) - windows).any():
        return None  # such updates are dropped
    kind = _combiner(instr)
    if kind is None or (kind == "replace" and _may_meet(starts, windows)):
        return None
    boxes = _updates(d, starts, windows)
    if boxes is None:
        return None
    combined = [(_combined_first(instr, kind, update, part), part.box) for update, part in boxes]
    if _is_fused(d.operand, kind, [box for _, box in combined]):
        return _all_at_once(instr, kind, d.operand, combined)
    result = d.operand
    for update, box in combined:
        result = _updated(instr, kind, result, update, box)
    return result


def _combiner(instr: HloInstruction) -> str | None:
    """The opcode that combines an element with its update; "replace" where updates replace it."""
    computation = instr.to_apply
    if computation.root is computation.parameters[1]:
        return "replace"
    kind = reducer_kind(computation)
    return kind if kind is not None and identity(kind, instr.array.dtype) is not None else None


def _may_meet(starts: Starts, windows: Dims) -> bool:
    """Whether two windows may share an element: the last of them would have to win."""
    apart = starts // np.array(windows)
    return len(np.unique(apart, axis=0)) < len(starts) or bool((starts % np.array(windows)).any())


def _updates(
    d: ScatterDims, starts: Starts, windows: Dims
) -> list[tuple[HloInstruction, BoxedWindows]] | None:
    """The updates of each box, [digits .., window ..]."""
    pieces = pieces_of(starts, _MOST_PARTS)
    if pieces is None:
        return None
    update = make.transpose(d.updates, (*d.batch_dims, *d.window_dims))
    update = make.reshape(update, (pieces.periods, pieces.length, *windows))
    found: list[tuple[HloInstruction, BoxedWindows]] = []
    for piece in pieces.parts:
        parts = parts_of(piece.places, windows, _MOST_PARTS)
        if parts is None or len(found) + len(parts) > _MOST_PARTS:
            return None
        digits = tuple(digit.size for digit in piece.places.digits)
        whole = make.reshape(_cut(update, 1, piece.begin, piece.end, 1), (*digits, *windows))
        for part in parts:
            own = whole
            for cut in part.cuts:
                own = _cut(own, part.place(cut.label), cut.begin, cut.end, 1)
            found.append((own, part))
    return found


def _combined_first(
    scatter: HloInstruction, kind: str, update: HloInstruction, part: BoxedWindows
) -> HloInstruction:
    """The updates of a box, those of the same elements combined: its axes are the dimensions."""
    box, dtype = part.box, update.array.dtype
    update = _reverse(update, box.reversed_digits)
    places = [part.place(label) for label in box.labels]
    gone = [n for n in range(update.array.rank) if n not in places]
    repeated = tuple(n for n in gone if update.array.dims[n] > 1)
    if repeated:
        init = make.constant(scatter, dtype, identity(kind, dtype))
        dims = tuple(n for d, n in enumerate(update.array.dims) if d not in repeated)
        attrs = {"dimensions": repeated, "to_apply": make.reducer(scatter, kind, dtype)}
        update = emit(scatter, "reduce", update.array.with_dims(dims), (update, init), attrs)
    kept = sorted(places)
    update = make.reshape(update, tuple(part.sizes[n] for n in kept))
    return make.transpose(update, tuple(kept.index(n) for n in places))


def _is_fused(operand: HloInstruction, kind: str, boxes: Sequence[AffineBox]) -> bool:
    """Whether all boxes are combined at once, by a pass over the whole operand."""
    if kind == "replace" or len(boxes) == 1:
        return False
    return sum(math.prod(box.spans) for box in boxes) * 2 >= operand.array.element_count


def _all_at_once(
    scatter: HloInstruction,
    kind: str,
    operand: HloInstruction,
    boxes: Sequence[tuple[HloInstruction, AffineBox]],
) -> HloInstruction:
    array = operand.array
    neutral = identity(kind, array.dtype)
    result = operand
    for update, box in boxes:
        wide = _enlarged(_spread(update, box, neutral), box, array.dims, neutral)
        result = emit(scatter, kind, array, (result, wide))
    return result


def _updated(
    scatter: HloInstruction,
    kind: str,
    operand: HloInstruction,
    update: HloInstruction,
    box: AffineBox,
) -> HloInstruction:
    """`operand` with the updates of a box, which has its axes as dimensions."""
    array = operand.array
    splat = splat_value(operand)
    if splat is not None:
        new = combine(scatter, make.splat(scatter, update.array, splat), update)
        assert new is not None
        return _enlarged(_spread(new, box, splat), box, array.dims, splat)
    spans = box.spans
    bounds = tuple((a, a + n, 1) for a, n in zip(box.firsts, spans, strict=True))
    old = make.slice_(operand, bounds)
    neutral = 0 if kind == "replace" else identity(kind, array.dtype)
    new = combine(scatter, old, _spread(update, box, neutral))
    assert new is not None
    if update.array.element_count < math.prod(spans):
        here = _spread(make.splat(scatter, ArrayShape(PRED, update.array.dims), True), box, False)
        new = emit(scatter, "select", old.array, (here, new, old))
    if spans == array.dims:
        return new
    starts = [make.constant(scatter, S32, first) for first in box.firsts]
    return emit(scatter, "dynamic-update-slice", array, (operand, new, *starts))


def _spread(update: HloInstruction, box: AffineBox, fill: object) -> HloInstruction:
    """The updates as they lie in the operand, `fill` between them: one dimension for each of its."""
    sizes = [[axis.size for axis in one] or [1] for one in box.axes]
    spread = make.reshape(update, tuple(n for one in sizes for n in one))
    for dim, axes in enumerate(box.axes):
        spread = _joined(spread, dim, axes, fill)
    return spread


def _joined(
    array: HloInstruction, dim: int, axes: Sequence[StridedAxis], fill: object
) -> HloInstruction:
    """Axes that are dimensions from `dim` on as one dimension."""
    if len(axes) < 2:
        return _pad(array, dim, (0, 0, axes[0].step - 1), fill) if axes else array
    lead, rest = axes[0], axes[1:]
    inner = _joined(array, dim + 1, rest, fill)
    inner = _pad(inner, dim + 1, (0, lead.step - inner.array.dims[dim + 1], 0), fill)
    dims = inner.array.dims
    merged = make.reshape(inner, (*dims[:dim], lead.size * lead.step, *dims[dim + 2 :]))
    return _cut(merged, dim, 0, span(axes), 1)


def _enlarged(update: HloInstruction, box: AffineBox, dims: Dims, fill: object) -> HloInstruction:
    """A box within an array of `dims` that holds `fill` elsewhere."""
    found = update
    for dim, (first, size) in enumerate(zip(box.firsts, dims, strict=True)):
        found = _pad(found, dim, (first, size - first - found.array.dims[dim], 0), fill)
    return found
