"""Dots and reductions: tiles of what is contracted make partial sums."""

from __future__ import annotations

import math
from collections.abc import Callable

from compiler.analysis.reducers import has_neutral_start, is_idempotent_start, neutral_starts
from compiler.hlo.dtypes import DType
from compiler.hlo.identities import Number
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import leaves
from compiler.partitioner.factors import FactorPlan, Job
from compiler.partitioner.grid import Cut
from compiler.partitioner.local import Local
from compiler.partitioner.region import Handler, LocalComputation
from compiler.partitioner.values import Held

Instr = HloInstruction


def zero_of(instr: Instr) -> Callable[[Local], Instr]:
    """A scalar zero of an array's type."""
    return lambda b: b.constant(instr.array.dtype, 0)


def sum_of(instr: Instr) -> Callable[[Local], HloComputation]:
    """`Local.sum_of` for an array's type."""
    dtype = instr.array.dtype
    return lambda b: b.sum_of(dtype)


def _dot(region: LocalComputation, instr: Instr) -> Held:
    plan = FactorPlan.of(instr, sums=True)
    plan.fills = {0: zero_of(instr.operands[0]), 1: zero_of(instr.operands[1])}
    plan.combiner = sum_of(instr)
    plan.work = math.prod(plan.rule.sizes) / 32
    return region.apply(instr, plan)


def _reduce(region: LocalComputation, instr: Instr) -> Held:
    """Partial results are combined by the reduction's own computation, where a start may be met by
    several devices: a neutral one, or one that is combined with itself to itself."""
    count = len(instr.operands) // 2
    starts = list(instr.operands[count:])
    neutral = neutral_starts(instr)
    plan = FactorPlan.of(instr, sums=neutral is not None or is_idempotent_start(instr))
    for number, start in enumerate(starts):
        dtype = instr.operands[number].array.dtype
        plan.fills[number] = _fill(
            region, start, dtype, None if neutral is None else neutral[number]
        )
    if count == 1:
        plan.combiner = lambda _: instr.to_apply
        plan.emit = lambda job: _reduced(job, plan, neutral)
    else:
        plan.emit = lambda job: _reduced_together(job, plan, neutral)
        plan.extra = lambda given: _bytes_of_results(instr, plan, given, region)
    return region.apply(instr, plan)


def _fill(
    region: LocalComputation, start: Instr, dtype: DType, neutral: Number | None
) -> Callable[[Local], Instr]:
    """What changes nothing; where that is not known, what the reduction starts from."""
    if neutral is None:
        return lambda b: b.cast(region.need(start, Cut.whole(0)), dtype)
    return lambda b: b.cast(b.constant(start.array.dtype, neutral), dtype)


def _reduced(job: Job, plan: FactorPlan, neutral: tuple[Number, ...] | None) -> list[Instr]:
    """A start that is not neutral counts once: on the first device of those that share the sum."""
    b, sums = job.b, plan.sums(job.given)
    count = len(job.operands) // 2
    if sums and neutral is not None and not has_neutral_start(job.instr, neutral):
        is_first = b.flag_of(b.tile(sums) == 0)
        for at, value in enumerate(neutral, count):
            empty = b.constant(job.operands[at].array.dtype, value)
            job.operands[at] = b.select(is_first, job.operands[at], empty)
    return job.same()


def _reduced_together(
    job: Job, plan: FactorPlan, neutral: tuple[Number, ...] | None
) -> list[Instr]:
    """Several arrays at once: the devices' results are gathered and reduced again."""
    made, b, sums = _reduced(job, plan, neutral), job.b, plan.sums(job.given)
    if not sums:
        return made
    count = len(made)
    gathered = []
    for value in made:
        row = b.reshape(value, (1, *value.array.dims))
        gathered.append(b.all_gather(row, 0, sums))
    body = job.instr.to_apply
    assert isinstance(body, HloComputation)
    starts = job.operands[count:]
    if neutral is not None:
        starts = [b.constant(o.array.dtype, n) for o, n in zip(starts, neutral, strict=True)]
    again = b.reduce(gathered, starts, (0,), body)
    return [b.get_tuple_element(again, i) for i in range(count)]


def _bytes_of_results(
    instr: Instr, plan: FactorPlan, given: dict[int, tuple[int, ...]], region: LocalComputation
) -> float:
    n = region.grid.count(plan.sums(given))
    if n == 1:
        return 0.0
    total = 0.0
    for leaf, dims in zip(leaves(instr.shape), plan.rule.results, strict=True):
        cut = math.prod(region.grid.count(a) for a in plan.project(dims, given))
        total += max(1, leaf.dtype.bits // 8) * leaf.element_count / cut * (n - 1) + 8
    return total


CONTRACTION: dict[str, Handler] = {
    "dot": _dot,
    "reduce": _reduce,
}
