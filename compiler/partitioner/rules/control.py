"""Loops, branches, and regions whose shapes are each device's own already."""

from __future__ import annotations

from dataclasses import replace

from compiler.diagnostics import CompileError
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import TupleShape, leaves
from compiler.hlo.sharding import HloSharding
from compiler.partitioner.factors import DROPPED, FactorPlan, Job
from compiler.partitioner.grid import Axes, Cut
from compiler.partitioner.region import GATHERED, Handler, LocalComputation
from compiler.partitioner.rules.basic import copied, replicated
from compiler.partitioner.values import Held, PartitionedValue
from compiler.sharding.op_rules import FULL_TO_SHARD, MOVES, SHARD_TO_FULL, batch_rank

Instr = HloInstruction


def partition_computation(
    region: LocalComputation, source: HloComputation, given: list[list[Cut]], made: list[Cut] | None
) -> HloComputation:
    """The device's form of a computation whose parameters and results have these cuts."""
    inner = LocalComputation(region.shared, source)
    for parameter, cuts in zip(source.parameters, given, strict=True):
        inner.bind(parameter, cuts)
    inner.run()
    return inner.finish(made)


def _cuts_of(region: LocalComputation, instr: Instr) -> list[Cut]:
    """The cut that the program asks for of every array; whole where it leaves that open."""
    shapes = leaves(instr.shape)
    return [
        hint or Cut.whole(shape.rank)
        for hint, shape in zip(region.hints(instr), shapes, strict=True)
    ]


def _while(region: LocalComputation, instr: Instr) -> Held:
    """The state has the same cuts wherever it is: those of the body's parameter."""
    condition, body = instr.attrs["condition"], instr.attrs["body"]
    assert isinstance(condition, HloComputation)
    assert isinstance(body, HloComputation)
    inner = LocalComputation(region.shared, body)
    said = inner.hints(body.parameters[0])
    outside = region.hints(instr)
    state = list(region.hinted(region.held[instr.operands[0]]))
    cuts = [a or b or c for a, b, c in zip(said, outside, state, strict=True)]
    attrs: dict[str, object] = {k: v for k, v in instr.attrs.items() if k not in DROPPED}
    attrs["condition"] = partition_computation(region, condition, [cuts], None)
    attrs["body"] = partition_computation(region, body, [cuts], cuts)
    region.b.near = instr
    init = region.given(region.held[instr.operands[0]], iter(cuts))
    made = region.b.instruction("while", (init,), attrs, None, instr.name)
    return region.taken(made, instr.shape, iter(cuts))


def _conditional(region: LocalComputation, instr: Instr) -> Held:
    """Each branch has the cuts of its parameter; all have those of the result."""
    names = ("true_computation", "false_computation", "branch_computations")
    found = [instr.attrs[n] for n in names if n in instr.attrs]
    branches: list[HloComputation] = []
    for value in found:
        branches += value if isinstance(value, tuple) else [value]  # type: ignore[list-item]
    results = _cuts_of(region, instr)
    operands = [region.need(instr.operands[0], Cut.whole(0))]
    made = []
    for branch, operand in zip(branches, instr.operands[1:], strict=True):
        said = LocalComputation(region.shared, branch).hints(branch.parameters[0])
        state = region.hinted(region.held[operand])
        cuts = [a or b for a, b in zip(said, state, strict=True)]
        made.append(partition_computation(region, branch, [cuts], results))
        region.b.near = instr
        operands.append(region.given(region.held[operand], iter(cuts)))
    attrs: dict[str, object] = {k: v for k, v in instr.attrs.items() if k not in DROPPED}
    if "branch_computations" in attrs:
        attrs["branch_computations"] = tuple(made)
    else:
        attrs["true_computation"], attrs["false_computation"] = made
    chosen = region.b.instruction("conditional", operands, attrs, None, instr.name)
    return region.taken(chosen, instr.shape, iter(results))


# Regions with shapes of each device's own.


def _joined(
    region: LocalComputation, instr: Instr, outer: Instr, inner: Instr, cut: Cut
) -> tuple[Cut, Cut]:
    """The cut outside of a manual region, by its manual axes first, then as inside; and that inside."""
    (said,) = region.hints(outer)
    outside, inside = outer.array.dims, inner.array.dims
    counts = [a // b if b else 1 for a, b in zip(outside, inside, strict=True)]
    first = region.grid.first_tiles(said or Cut.whole(outer.array.rank), counts)
    if first is None or tuple(b * n for b, n in zip(inside, counts, strict=True)) != outside:
        raise CompileError(
            f"%{instr.name}: {list(outside)} is not {list(inside)} times the tiles that "
            "the sharding outside gives it",
            instr.span,
        )
    if first.used() and cut.used() and first.order != cut.order:
        cut = Cut.whole(inner.array.rank)
    order = first.order if first.used() else cut.order
    dims = [(*a, *b) for a, b in zip(first.dims, cut.dims, strict=True)]
    return Cut(tuple(dims), _sums(region, outer, inner), order), cut


def _sums(region: LocalComputation, outer: Instr, inner: Instr) -> Axes:
    """Along which manual axes the array outside is partial sums: devices see their own inside."""
    (said,), sharding = region.stated(outer), inner.attrs.get("sharding")
    if said is None or not said.partial or not isinstance(sharding, HloSharding):
        return ()
    manual = region.grid.group_axes(sharding, inner.array.rank, "manual")
    return tuple(axis for axis in said.partial if axis in manual)


def _enter(region: LocalComputation, instr: Instr) -> Held:
    """An array in its cut is, inside, an array of the device's own."""
    (operand,) = instr.operands
    (hint,) = _cuts_of(region, instr)
    outside, inside = _joined(region, instr, operand, instr, _whole_tiles(region, instr, hint))
    made = region.need(operand, outside)
    return PartitionedValue(
        instr.array.dims, instr.array.dtype, {inside.normal(): made}, None, hint
    )


def _leave(region: LocalComputation, instr: Instr) -> Held:
    (operand,) = instr.operands
    source = region.value(operand)
    wanted = _whole_tiles(region, operand, next(region.hinted(source)))
    outside, inside = _joined(region, instr, instr, operand, wanted)
    (hint,) = region.hints(instr)
    made, dtype = region.need(operand, inside), instr.array.dtype
    combiner = region.b.sum_of(dtype) if outside.partial else None
    return PartitionedValue(instr.array.dims, dtype, {outside.normal(): made}, combiner, hint)


def _whole_tiles(region: LocalComputation, inner: Instr, cut: Cut) -> Cut:
    """As much of a cut of a device's own array as makes equal tiles of it: tiles of uneven ones lie elsewhere
    than those of the array outside."""
    dims = []
    for size, axes in zip(inner.array.dims, cut.dims, strict=True):
        ends = [n for n in range(len(axes) + 1) if size % region.grid.count(axes[:n]) == 0]
        dims.append(axes[: max(ends)])
    return replace(cut, dims=tuple(dims))


_KNOWN = {
    FULL_TO_SHARD: _enter,
    SHARD_TO_FULL: _leave,
    "Sharding": copied,
    **dict.fromkeys(MOVES, copied),
}


def _custom_call(region: LocalComputation, instr: Instr) -> Held:
    target = str(instr.attrs.get("custom_call_target"))
    if target in _KNOWN:
        return _KNOWN[target](region, instr)
    if batch_rank(instr):
        return region.apply(instr, FactorPlan.of(instr))
    if any(value.first.used() for o in instr.operands for value in region.arrays(region.held[o])):
        region.remark(instr, GATHERED)
    return replicated(region, instr)


def _collective(region: LocalComputation, instr: Instr) -> Held:
    """One that the program itself has, in a manual region: dimensions that it changes are whole."""

    def emit(job: Job) -> list[Instr]:
        has_channel = "channel_id" in instr.attrs
        return job.same(**({"channel_id": next(region.shared.channels)} if has_channel else {}))

    if isinstance(instr.shape, TupleShape) or instr.opcode == "ragged-all-to-all":
        return replicated(region, instr)
    plan = FactorPlan.of(instr)
    plan.emit = emit
    return region.apply(instr, plan)


def _parameter(region: LocalComputation, instr: Instr) -> Held:
    raise AssertionError(f"%{instr.name}: parameters are bound before the others")


CONTROL: dict[str, Handler] = {
    **dict.fromkeys(with_trait(Trait.GROUPED), _collective),
    **dict.fromkeys(with_trait(Trait.ASYNC), replicated),
    "collective-permute": _collective,
    "conditional": _conditional,
    "custom-call": _custom_call,
    "parameter": _parameter,
    "while": _while,
}
