"""Gathers, scatters and dynamic slices: a device holds some of what is indexed.

What is read from a cut dimension is read where it lies, zero elsewhere, and added up. What is
written to one is written by the device that holds the place; the others drop it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from compiler.analysis.reducers import reducer_kind
from compiler.hlo.dtypes import S32
from compiler.hlo.identities import MONOIDS, identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.partitioner.factors import FactorPlan, Job
from compiler.partitioner.local import Local
from compiler.partitioner.region import Handler, LocalComputation
from compiler.partitioner.rules.contraction import sum_of
from compiler.partitioner.values import Held
from compiler.sharding.movement_rules import ints
from compiler.sharding.rule import FactorKind

Instr = HloInstruction


def _nothing(b: Local, like: Instr) -> Instr:
    """The scalar that adds nothing: -0.0 for floats, for it keeps the sign of zeros."""
    dtype = like.array.dtype
    neutral = identity("or" if dtype.kind == "pred" else "add", dtype)
    return b.constant(dtype, 0 if neutral is None else neutral)


def _place(b: Local, index: Instr, most: int) -> Instr:
    """Indices clamped to ``0 .. most`` as s32; those of a narrow type, which may not have that number, are
    s32 before, those of a wide one after."""
    if index.array.dtype.bits < 32:
        index = b.cast(index, S32)
    bound = b.like(index, most)
    clamped = b.clamp(b.like(index, 0), index, bound)
    return b.cast(clamped, S32)


def _signed(b: Local, index: Instr, size: int) -> Instr:
    """Indices as s32; those of a wider type that are far outside stay outside."""
    if index.array.dtype.bits > 32:
        low = b.like(index, -1 if index.array.dtype.is_signed else 0)
        index = b.clamp(low, index, b.like(index, size))
    return b.cast(index, S32)


# Index vectors.


def _components(b: Local, indices: Instr, vector: int, count: int) -> list[Instr]:
    """The components of all index vectors, each an array over the other dimensions."""
    if vector == indices.array.rank:
        return [indices]
    dims = indices.array.dims
    rest = (*dims[:vector], *dims[vector + 1 :])
    return [b.reshape(b.part(indices, vector, i, i + 1), rest) for i in range(count)]


def _vectors(b: Local, parts: list[Instr], vector: int, rank: int) -> Instr:
    """The reverse of `_components`."""
    if vector == rank:
        return parts[0]
    dims = parts[0].array.dims
    shaped = [b.reshape(part, (*dims[:vector], 1, *dims[vector:])) for part in parts]
    return b.join(shaped, vector)


def _number(instr: Instr, name: str) -> int:
    value = instr.attrs[name]
    assert isinstance(value, int)
    return value


# Gather and scatter.


def _gather(region: LocalComputation, instr: Instr) -> Held:
    plan = FactorPlan.of(instr, sums=True)
    mapped = instr.start_index_map
    collapsed = instr.collapsed_slice_dims
    for dim in collapsed:
        if dim not in mapped:
            plan.ways[plan.where(0, dim)] = "whole"
    kept = [d for d, n in enumerate(instr.operands[0].array.dims) if n != instr.slice_sizes[d]]
    for dim in kept:
        if dim in mapped and dim not in collapsed:
            plan.ways[plan.where(0, dim)] = "sum"
    plan.combiner = sum_of(instr)
    plan.emit = lambda job: _gathered(job, plan)
    return region.apply(instr, plan)


def _gathered(job: Job, plan: FactorPlan) -> list[Instr]:
    instr, b = job.instr, job.b
    operand, indices = job.operands
    mapped = instr.start_index_map
    cut = [d for d in mapped if job.axes(_first(plan, d)) and _is_sum(plan, d)]
    sizes = tuple(
        size if d in cut else min(size, local)
        for d, (size, local) in enumerate(zip(instr.slice_sizes, operand.array.dims, strict=True))
    )
    if not cut:
        return job.same(slice_sizes=sizes)
    vector = _number(instr, "index_vector_dim")
    parts = _components(b, indices, vector, len(mapped))
    inside: Instr | None = None
    for number, dim in enumerate(mapped):
        whole = instr.operands[0].array.dims[dim]
        place = _place(b, parts[number], whole - instr.slice_sizes[dim])
        if dim in cut:
            start = b.offset(whole, job.axes(_first(plan, dim)))
            place = b.subtract(place, b.broadcast(start, place.array.dims))
            local, size = operand.array.dims[dim], instr.slice_sizes[dim]
            if size > 1:  # what a slice has of other devices' rows adds nothing
                ends = [
                    (size, size, 0) if d == dim else (0, 0, 0) for d in range(operand.array.rank)
                ]
                operand = b.pad(operand, _nothing(b, operand), ends)
                place = b.add(place, b.like(place, size))
                parts[number] = b.clamp(b.like(place, 0), place, b.like(place, local + size))
                continue
            is_here = b.and_(
                b.compare(place, b.like(place, 0), "GE"),
                b.compare(place, b.like(place, local), "LT"),
            )
            inside = is_here if inside is None else b.and_(inside, is_here)
        parts[number] = place
    job.operands[:] = [operand, _vectors(b, parts, vector, indices.array.rank)]
    (made,) = job.same(slice_sizes=sizes, indices_are_sorted=False)
    if inside is None:
        return [made]
    offsets = instr.offset_dims
    batch = [d for d in range(made.array.rank) if d not in offsets]
    mask = b.broadcast(inside, made.array.dims, batch)
    return [b.where(mask, made, _nothing(b, made))]


def _first(plan: FactorPlan, dim: int) -> int | None:
    factors = plan.rule.operands[0][dim]
    return factors[0] if factors else None


def _is_sum(plan: FactorPlan, dim: int) -> bool:
    return plan.ways[plan.where(0, dim)] == "sum"


def _scatter(region: LocalComputation, instr: Instr) -> Held:
    """Updates that are cut are scattered into nothing but on one device, and added up."""
    count = len(instr.operands) // 2
    body = instr.attrs["to_apply"]
    assert isinstance(body, HloComputation)
    kind = reducer_kind(body, MONOIDS)
    dtype = instr.operands[0].array.dtype
    neutral = None if kind is None or count > 1 else identity(kind, dtype)
    plan = FactorPlan.of(instr, sums=neutral is not None)
    mapped = instr.scatter_dims_to_operand_dims
    for dim in instr.inserted_window_dims:
        if dim not in mapped:
            plan.ways[plan.where(0, dim)] = "whole"
    single = _single_places(instr, count)
    for dim in single:
        plan.ways[plan.where(0, dim)] = "pass"
    if neutral is not None:
        plan.combiner = lambda _: body
        indices = instr.operands[count]
        outside = identity("minimum", indices.array.dtype)
        plan.fills[count] = lambda b: b.constant(indices.array.dtype, outside or 0)
        if not mapped:  # no index says that an update is of the padding
            plan.fills[count + 1] = lambda b: b.constant(dtype, neutral or 0)
    plan.emit = lambda job: _scattered(job, plan, count, neutral)
    return region.apply(instr, plan)


def _single_places(instr: Instr, count: int) -> list[int]:
    """Dimensions of which each index says one place: no other device has any of what is written there."""
    operand, update = instr.operands[0].array.dims, instr.operands[count + 1].array.dims
    inserted = instr.inserted_window_dims
    kept = [
        d for d in range(len(operand)) if d not in (*inserted, *ints(instr, "input_batching_dims"))
    ]
    size = dict(zip(kept, (update[d] for d in instr.update_window_dims), strict=True))
    one = [d for d in kept if size[d] == 1 != operand[d]]
    return [d for d in instr.scatter_dims_to_operand_dims if d in inserted or d in one]


def _scattered(job: Job, plan: FactorPlan, count: int, neutral: float | None) -> list[Instr]:
    instr, b = job.instr, job.b
    mapped = instr.scatter_dims_to_operand_dims
    cut = [d for d in _single_places(instr, count) if job.axes(_first(plan, d))]
    attrs: dict[str, object] = {}
    if cut:
        vector = _number(instr, "index_vector_dim")
        indices = job.operands[count]
        parts = _components(b, indices, vector, len(mapped))
        for number, dim in enumerate(mapped):
            whole = instr.operands[0].array.dims[dim]
            place = _signed(b, parts[number], whole)
            if dim in cut:
                start = b.offset(whole, job.axes(_first(plan, dim)))
                place = b.subtract(place, b.broadcast(start, place.array.dims))
            parts[number] = place
        job.operands[count] = _vectors(b, parts, vector, indices.array.rank)
        attrs["indices_are_sorted"] = False
    sums = plan.sums(job.given)
    if sums:
        operand = job.operands[0]
        is_first = b.broadcast(b.flag_of(b.tile(sums) == 0), operand.array.dims)
        empty = b.constant(operand.array.dtype, neutral or 0)
        job.operands[0] = b.where(is_first, operand, empty)
    return job.same(**attrs)


# Dynamic slices.


def _starts(job: Job, first: int) -> list[Instr]:
    """The starts, clamped so that the whole slice lies inside, as s32."""
    instr = job.instr
    whole = instr.operands[0].array.dims
    sizes = instr.array.dims if first == 1 else instr.operands[1].array.dims
    return [
        _place(job.b, start, n - size)
        for start, n, size in zip(job.operands[first:], whole, sizes, strict=True)
    ]


def _dynamic_slice(region: LocalComputation, instr: Instr) -> Held:
    """Every device cuts out what it holds of the slice."""
    plan = FactorPlan.of(instr)
    cut = [d for d, n in enumerate(instr.operands[0].array.dims) if n != instr.array.dims[d]]
    for dim in cut:
        _read_apart(plan, dim, instr.operands[0].array.dims[dim])
    plan.combiner = sum_of(instr)
    plan.emit = lambda job: _sliced(job, plan, cut)
    return region.apply(instr, plan)


def _read_apart(plan: FactorPlan, dim: int, size: int) -> None:
    """Give the operand's dimension a factor of its own, of which parts are summed."""
    rule, new = plan.rule, len(plan.rule.sizes)
    operand = rule.operands[0]
    changed = (*operand[:dim], (new,), *operand[dim + 1 :])
    plan.rule = replace(
        rule,
        sizes=(*rule.sizes, size),
        kinds=(*rule.kinds, FactorKind.REDUCE),
        operands=(changed, *rule.operands[1:]),
    )
    plan.ways.append("sum")


def _sliced(job: Job, plan: FactorPlan, changed: list[int]) -> list[Instr]:
    b, operand = job.b, job.operands[0]
    sizes = list(job.dims[0])
    cut = [d for d in changed if job.axes(plan.where(0, d))]
    if not cut:
        return job.same(dynamic_slice_sizes=tuple(sizes))
    starts = _starts(job, 1)
    inside: Instr | None = None
    for dim in cut:
        size, local = sizes[dim], operand.array.dims[dim]
        begin = b.offset(job.instr.operands[0].array.dims[dim], job.axes(plan.where(0, dim)))
        first = b.subtract(starts[dim], begin)
        if size > 1:
            operand = b.pad_dim(operand, dim, size, size)
        shift = size if size > 1 else 0
        low, high = b.number(0), b.number(local + size if size > 1 else local - 1)
        starts[dim] = b.clamp(low, b.add(first, b.number(shift)), high)
        is_here = b.within(b.full(S32, tuple(sizes), 0), dim, first, 0, local)
        inside = is_here if inside is None else b.and_(inside, is_here)
    made = b.dynamic_slice(operand, starts, sizes)
    assert inside is not None
    return [b.where(inside, made, _nothing(b, made))]


def _dynamic_update_slice(region: LocalComputation, instr: Instr) -> Held:
    """Every device replaces what it holds of the place, from the whole update."""
    plan = FactorPlan.of(instr)
    update = instr.operands[1].array.dims
    changed = [d for d, n in enumerate(instr.array.dims) if n != update[d]]
    plan.emit = lambda job: _updated(job, plan, changed)
    return region.apply(instr, plan)


def _updated(job: Job, plan: FactorPlan, changed: list[int]) -> list[Instr]:
    b, (operand, update) = job.b, job.operands[:2]
    cut = [d for d in changed if job.axes(plan.where(0, d))]
    if not cut:
        return job.same()
    starts = _starts(job, 2)
    inside: list[Callable[[Instr], Instr]] = []
    for dim in cut:
        size, local = update.array.dims[dim], operand.array.dims[dim]
        begin = b.offset(job.instr.array.dims[dim], job.axes(plan.where(0, dim)))
        first = b.subtract(starts[dim], begin)
        if size == 1:
            starts[dim] = b.clamp(b.number(0), first, b.number(local - 1))
            inside.append(_at(b, dim, first, 0, local))
            continue
        padded = b.pad_dim(update, dim, local, local)
        at = b.clamp(b.number(0), b.subtract(b.number(local), first), b.number(size + local))
        update = b.part_at(padded, dim, at, local)
        starts[dim] = b.number(0)
        inside.append(_at(b, dim, b.negate(first), 0, size))
    old = b.dynamic_slice(operand, starts, update.array.dims)
    mask = inside[0](update)
    for test in inside[1:]:
        mask = b.and_(mask, test(update))
    return [b.dynamic_update_slice(operand, b.select(mask, update, old), starts)]


def _at(b: Local, dim: int, start: Instr, low: int, high: int) -> Callable[[Instr], Instr]:
    return lambda rows: b.within(rows, dim, start, low, high)


INDEXING: dict[str, Handler] = {
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_update_slice,
    "gather": _gather,
    "scatter": _scatter,
}
