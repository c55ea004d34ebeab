"""Dots and reductions: tiles of what is contracted make partial sums."""

from __future__ import annotations

import math
from collections.abc import Callable

from compiler.hlo.identities import MONOIDS, identity, is_identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.shape import leaves
from compiler.partitioner.factors import Job, Plan
from compiler.partitioner.grid import Cut
from compiler.partitioner.local import Local
from compiler.partitioner.region import Handler, Region
from compiler.partitioner.values import Held
from compiler.passes.reducers import reducer_kind
from compiler.rewrite.pattern import splat_value

Instr = HloInstruction


def zero_of(instr: Instr) -> Callable[[Local], Instr]:
    """A scalar zero of an array's type."""
    return lambda b: b.constant(instr.array.dtype, 0)


def sum_of(instr: Instr) -> Callable[[Local], HloComputation]:
    """The sum of two scalars of an array's type; of preds, whether either holds."""
    dtype = instr.array.dtype
    return lambda b: b.scalar("or" if dtype.kind == "pred" else "add", dtype)


def _dot(region: Region, instr: Instr) -> Held:
    plan = Plan.of(instr, sums=True)
    plan.fills = {0: zero_of(instr.operands[0]), 1: zero_of(instr.operands[1])}
    plan.combiner = sum_of(instr)
    plan.work = math.prod(plan.rule.sizes) / 32
    return region.apply(instr, plan)


def _reduce(region: Region, instr: Instr) -> Held:
    """Partial results are combined by the reduction's own computation."""
    body = instr.to_apply
    count = len(instr.operands) // 2
    plan = Plan.of(instr, sums=True)
    kind = reducer_kind(body, MONOIDS) if count == 1 else None
    for number in range(count):
        plan.fills[number] = _start_of(region, instr.operands[count + number], kind)
    if count == 1:
        plan.combiner = lambda _: body
        plan.emit = lambda job: _reduced(job, plan)
    else:
        plan.emit = lambda job: _reduced_together(job, plan, count)
        plan.extra = lambda given: _bytes_of_results(instr, plan, given, region)
    return region.apply(instr, plan)


def _start_of(region: Region, start: Instr, kind: str | None) -> Callable[[Local], Instr]:
    """What adds nothing; where that is not known, what the reduction starts from."""
    neutral = None if kind is None else identity(kind, start.array.dtype)
    if neutral is None:
        return lambda _: region.need(start, Cut.whole(0))
    return lambda b: b.constant(start.array.dtype, neutral)


def _reduced(job: Job, plan: Plan) -> list[Instr]:
    """A start that is not neutral counts once: on the first device of those that share the sum."""
    instr, b, sums = job.instr, job.b, plan.sums(job.given)
    kind = reducer_kind(instr.to_apply, MONOIDS)
    start = splat_value(instr.operands[1])
    dtype = instr.operands[1].array.dtype
    neutral = None if kind is None else identity(kind, dtype)
    is_neutral = start is not None and kind is not None and is_identity(kind, dtype, start)
    if sums and neutral is not None and not is_neutral:
        is_first = b.flag_of(b.tile(sums) == 0)
        job.operands[1] = b.select(is_first, job.operands[1], b.constant(dtype, neutral))
    return job.same()


def _reduced_together(job: Job, plan: Plan, count: int) -> list[Instr]:
    """Several arrays at once: the devices' results are gathered and reduced again."""
    made, b, sums = job.same(), job.b, plan.sums(job.given)
    if not sums:
        return made
    gathered = []
    for value in made:
        row = b.reshape(value, (1, *value.array.dims))
        gathered.append(b.all_gather(row, 0, sums))
    body = job.instr.to_apply
    assert isinstance(body, HloComputation)
    again = b.reduce(gathered, job.operands[count:], (0,), body)
    return [b.get_tuple_element(again, i) for i in range(count)]


def _bytes_of_results(
    instr: Instr, plan: Plan, given: dict[int, tuple[int, ...]], region: Region
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
