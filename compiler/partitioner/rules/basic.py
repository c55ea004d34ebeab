"""Elementwise operations, shapes, values that are made from nothing, tuples."""

from __future__ import annotations

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape, leaves
from compiler.partitioner.factors import DROPPED, FactorPlan, Job
from compiler.partitioner.grid import Cut
from compiler.partitioner.region import GATHERED, Handler, LocalComputation
from compiler.partitioner.rules import sums
from compiler.partitioner.values import Held, PartitionedValue, Several, Whole, width

Instr = HloInstruction


def by_rule(region: LocalComputation, instr: Instr) -> Held:
    """Cut wherever the sharding rule lets tiles pass; parts of sums go through what keeps sums."""
    plan = FactorPlan.of(instr)
    return sums.through(region, instr, plan) or region.apply(instr, plan)


def _convert(region: LocalComputation, instr: Instr) -> Held:
    """As any elementwise operation; what it widens is moved as it was before."""
    found = by_rule(region, instr)
    source = region.value(instr.operands[0])
    assert isinstance(found, PartitionedValue)
    if width(source.dtype) < width(found.dtype):
        found.narrow = source
    return found


def _broadcast(region: LocalComputation, instr: Instr) -> Held:
    return region.apply(instr, FactorPlan.of(instr, makes=True))


def _iota(region: LocalComputation, instr: Instr) -> Held:
    """Counted in s32 from where the tile begins, then rounded once."""

    dim = instr.attrs["iota_dimension"]
    assert isinstance(dim, int)

    def emit(job: Job) -> list[Instr]:
        axes, b = job.axes(factor), job.b
        if not axes:
            return [b.iota(instr.array.dtype, job.dims[0], dim)]
        places = b.places(job.dims[0], dim, b.offset(instr.array.dims[dim], axes))
        return [b.cast(places, instr.array.dtype)]

    plan = FactorPlan.of(instr, makes=True)
    (factor,) = plan.rule.results[0][dim]
    plan.emit = emit
    return region.apply(instr, plan)


def _constant(region: LocalComputation, instr: Instr) -> Held:
    """Kept whole; each device takes its part."""
    attrs = {k: v for k, v in instr.attrs.items() if k not in DROPPED}
    made = region.b.instruction("constant", (), attrs, instr.shape, instr.name)
    return region.taken(made, instr.shape, (Cut.whole(s.rank) for s in leaves(instr.shape)))


def replicated(region: LocalComputation, instr: Instr) -> Held:
    """Computed as a whole on every device."""
    operands = []
    for operand in instr.operands:
        whole = (Cut.whole(s.rank) for s in leaves(operand.shape))
        operands.append(region.given(region.held[operand], whole))
    attrs = {k: v for k, v in instr.attrs.items() if k not in DROPPED}
    made = region.b.instruction(instr.opcode, operands, attrs, instr.shape, instr.name)
    found = region.taken(made, instr.shape, (Cut.whole(s.rank) for s in leaves(instr.shape)))
    for value, hint in zip(region.arrays(found), region.hints(instr), strict=True):
        value.hint = hint
    return found


def _opaque(region: LocalComputation, instr: Instr) -> Held:
    """As `replicated`; said, since it costs every device the whole."""
    if any(value.first.used() for o in instr.operands for value in region.arrays(region.held[o])):
        region.remark(instr, GATHERED)
    return replicated(region, instr)


def copied(region: LocalComputation, instr: Instr) -> Held:
    """The same array, wanted in another cut."""
    source = region.value(instr.operands[0])
    (hint,) = region.hints(instr)
    wanted = hint or source.hint
    return PartitionedValue(
        source.dims, source.dtype, source.cuts, source.combiner, wanted, source.narrow
    )


def _tuple(region: LocalComputation, instr: Instr) -> Held:
    return Several([region.held[operand] for operand in instr.operands])


def _get_tuple_element(region: LocalComputation, instr: Instr) -> Held:
    source = region.held[instr.operands[0]]
    index = instr.attrs["index"]
    assert isinstance(source, Several)
    assert isinstance(index, int)
    return source.elements[index]


def _barrier(region: LocalComputation, instr: Instr) -> Held:
    """What goes in has the cuts that are asked for."""
    source = region.held[instr.operands[0]]
    cuts = list(region.hinted(source))
    made = region.b.instruction("opt-barrier", (region.given(source, iter(cuts)),))
    return region.taken(made, instr.shape, iter(cuts))


def _ordering(region: LocalComputation, instr: Instr) -> Held:
    """Tokens are the same in both programs."""
    operands = []
    for operand in instr.operands:
        held = region.held[operand]
        operands.append(region.given(held, region.hinted(held)))
    made = region.b.instruction(instr.opcode, operands, None, instr.shape)
    if isinstance(instr.shape, ArrayShape):
        return region.held[instr.operands[0]]
    return Whole(made)


def _map(region: LocalComputation, instr: Instr) -> Held:
    def emit(job: Job) -> list[Instr]:
        return job.same(dimensions=tuple(range(len(job.dims[0]))))

    plan = FactorPlan.of(instr)
    plan.emit = emit
    return region.apply(instr, plan)


_ELEMENTWISE = [name for name, info in OPCODES.items() if info.has(Trait.ELEMENTWISE)]

BASIC: dict[str, Handler] = {
    **dict.fromkeys(_ELEMENTWISE, by_rule),
    "add-dependency": _ordering,
    "after-all": _ordering,
    "batch-norm-grad": by_rule,
    "batch-norm-inference": by_rule,
    "batch-norm-training": by_rule,
    "bitcast": by_rule,
    "bitcast-convert": by_rule,
    "broadcast": _broadcast,
    "cholesky": by_rule,
    "constant": _constant,
    "convert": _convert,
    "copy": copied,
    "fft": by_rule,
    "get-tuple-element": _get_tuple_element,
    "iota": _iota,
    "map": _map,
    "opt-barrier": _barrier,
    "partition-id": replicated,
    "ragged-dot": _opaque,
    "replica-id": replicated,
    "reshape": by_rule,
    "rng": replicated,
    "rng-bit-generator": replicated,
    "rng-get-and-update-state": replicated,
    "scan": _opaque,
    "sort": by_rule,
    "topk": by_rule,
    "transpose": by_rule,
    "triangular-solve": by_rule,
    "tuple": _tuple,
}
