"""One computation of the global program becomes one of a device's program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count

from compiler.diagnostics import CompileError, UnsupportedError
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.replica_groups import DeviceCounts
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves
from compiler.hlo.sharding import HloSharding, leaf_count
from compiler.partitioner.factors import Assignment, FactorPlan, Job, candidates, sharers
from compiler.partitioner.grid import Cut, Grid
from compiler.partitioner.local import Local
from compiler.partitioner.moves import Router
from compiler.partitioner.sizes import seen_padding
from compiler.partitioner.values import (
    Held,
    PartitionedValue,
    Several,
    Whole,
    cost_of,
    in_cut,
    leaves_of,
    width,
)
from compiler.passes.context import PassContext
from compiler.sharding.op_rules import EXPANDED, NO_RULE

Instr = HloInstruction
Handler = Callable[["LocalComputation", Instr], Held]

GATHERED = "its operands are gathered, all of it is computed on every device"
"""The remark of what costs every device the whole."""
_WORK_OF_A_BYTE = 32.0
"""How much local work (bytes read or written, or so many multiplications) one byte sent is worth."""
_ROUNDING = 1e-9
"""By how much sums of costs in another order may differ."""


@dataclass
class Partition:
    """What all regions of a module share."""

    module: HloModule
    grid: Grid
    counts: DeviceCounts
    router: Router
    context: PassContext
    handlers: dict[str, Handler]
    channels: Iterator[int] = field(default_factory=lambda: count(1))


class LocalComputation:
    """The device's form of one computation, under construction."""

    def __init__(self, shared: Partition, source: HloComputation) -> None:
        self.shared = shared
        self.source = source
        self.grid = shared.grid
        self.router = shared.router
        made = HloComputation(f"{source.name}_spmd")
        made.module = shared.module
        made.attrs = dict(source.attrs)
        near = source.root_instruction
        self.b = Local(made, near, shared.grid, shared.counts, shared.channels)
        self.held: dict[Instr, Held] = {}

    # Reading the global program.

    def hints(self, instr: Instr) -> list[Cut | None]:
        """The cut of each array of the result that the program asks for; None where it is open.

        Where it asks for partial sums they are made: only whoever looks in from outside sees them.
        """
        return [None if cut is None else cut.summed() for cut in self.stated(instr)]

    def _goals(self, instr: Instr) -> list[Cut | None]:
        """The cuts that are needed in the end: those of the copies if nobody else uses the result."""
        asked = {tuple(self.hints(user)) if user.opcode == "copy" else () for user in instr.users}
        return list(next(iter(asked))) if len(asked) == 1 and () not in asked else self.hints(instr)

    def stated(self, instr: Instr) -> list[Cut | None]:
        """The same with partial sums where the program says so."""
        shapes = leaves(instr.shape)
        sharding = instr.attrs.get("sharding")
        if not isinstance(sharding, HloSharding) or leaf_count(instr.shape) != len(shapes):
            return [None] * len(shapes)
        parts = sharding.for_leaves(len(shapes)).elements or ()
        try:
            return [
                None if part.kind == "unknown" else self.grid.cut(part, shape.rank)
                for part, shape in zip(parts, shapes, strict=True)
            ]
        except ValueError as error:
            raise CompileError(f"%{instr.name}: {error}", instr.span) from error

    def value(self, instr: Instr) -> PartitionedValue:
        """What an instruction of the global program computes, known to be an array."""
        found = self.held[instr]
        assert isinstance(found, PartitionedValue), f"%{instr.name} is no array"
        return found

    def need(self, instr: Instr, cut: Cut) -> Instr:
        """An operand in a cut."""
        return self.in_cut(self.value(instr), cut)

    def in_cut(self, value: PartitionedValue, cut: Cut) -> Instr:
        """A value in a cut, moved if it must be."""
        return in_cut(self.b, self.router, value, cut.normal())

    # Whole values.

    def new_value(
        self, made: Instr, dims: tuple[int, ...], cut: Cut, hint: Cut | None
    ) -> PartitionedValue:
        """An array that was computed in a cut."""
        return PartitionedValue(dims, made.array.dtype, {cut.normal(): made}, None, hint)

    def taken(self, made: Instr, shape: Shape, cuts: Iterator[Cut]) -> Held:
        """A local instruction of any shape as a held value; the arrays' cuts in order."""
        if isinstance(shape, TupleShape):
            parts = [
                self.taken(self.b.get_tuple_element(made, i), element, cuts)
                for i, element in enumerate(shape.elements)
            ]
            return Several(parts)
        if not isinstance(shape, ArrayShape):
            return Whole(made)
        cut = next(cuts)
        found = self.new_value(made, shape.dims, cut, cut.summed())
        if cut.partial:
            found.combiner = self.b.sum_of(shape.dtype)
        return found

    def given(self, held: Held, cuts: Iterator[Cut]) -> Instr:
        """A held value as one local instruction, its arrays in these cuts."""
        if isinstance(held, Several):
            return self.b.tuple([self.given(element, cuts) for element in held.elements])
        if isinstance(held, Whole):
            return held.instr
        return self.in_cut(held, next(cuts))

    def hinted(self, held: Held) -> Iterator[Cut]:
        """The cuts that the arrays of a value should have: as asked for, else as computed."""
        if isinstance(held, Several):
            for element in held.elements:
                yield from self.hinted(element)
        elif isinstance(held, PartitionedValue):
            first = held.first
            yield held.hint or Cut(first.dims, order=first.order).normal()

    def bind(self, parameter: Instr, cuts: list[Cut]) -> None:
        """Make the local form of a parameter."""
        self.b.near = parameter
        shape = self.local_shape(parameter.shape, iter(cuts))
        made = self.b.parameter(shape, parameter.name)
        self.held[parameter] = self.taken(made, parameter.shape, iter(cuts))

    def local_shape(self, shape: Shape, cuts: Iterator[Cut]) -> Shape:
        """The shape of a device's part."""
        if isinstance(shape, TupleShape):
            return TupleShape(tuple(self.local_shape(e, cuts) for e in shape.elements))
        if not isinstance(shape, ArrayShape):
            return shape
        return shape.with_dims(self.grid.local(shape.dims, next(cuts)))

    def finish(self, cuts: list[Cut] | None) -> HloComputation:
        """The computation, its results in these cuts (default: as the program asks)."""
        root = self.held[self.source.root_instruction]
        wanted = list(self.hinted(root)) if cuts is None else cuts
        self.b.near = self.source.root_instruction
        made = self.b.computation
        made.root = self.given(root, iter(wanted))
        made.owner.add_computation(made, keep_names=True)
        return made

    # Running handlers.

    def run(self) -> None:
        """Partition every instruction but the parameters, which have been bound before."""
        for instr in list(self.source):
            if instr in self.held:
                continue
            self.b.near = instr
            self.b.order = 0
            self._remark_maximal(instr)
            handler = self.shared.handlers.get(instr.opcode)
            if handler is None:
                why = NO_RULE.get(instr.opcode, EXPANDED)
                message = f"%{instr.name}: {instr.opcode} is not partitioned over devices: {why}"
                raise UnsupportedError(message, instr.span)
            self.held[instr] = handler(self, instr)

    def arrays(self, held: Held) -> list[PartitionedValue]:
        """The arrays of a value."""
        return list(leaves_of(held))

    def remark(self, instr: Instr, text: str) -> None:
        """Say something about how an instruction was partitioned, to whoever reads the dump."""
        self.shared.context.remarks.append(f"%{instr.name} ({instr.opcode}): {text}")

    def _remark_maximal(self, instr: Instr) -> None:
        sharding = instr.attrs.get("sharding")
        if isinstance(sharding, HloSharding):
            parts = sharding.elements or (sharding,)
            if any(part.kind == "maximal" for part in parts) and instr.opcode != "tuple":
                self.remark(instr, "wanted on one device, it is computed on all")

    def _remark_gathered(self, instr: Instr, given: Assignment) -> None:
        """What was cut, and is computed as a whole."""
        is_cut = any(self.value(operand).first.used() for operand in instr.operands)
        if is_cut and not any(given.values()):
            self.remark(instr, GATHERED)

    def apply(self, instr: Instr, plan: FactorPlan) -> Held:
        """Do an operation in the cheapest way that its plan allows."""
        given, order = self._best(instr, plan)
        self._remark_gathered(instr, given)
        self.b.near, self.b.order = instr, order
        operands = [
            self._operand(instr, plan, i, Cut(plan.project(dims, given), order=order), given)
            for i, dims in enumerate(plan.rule.operands)
        ]
        self.b.near, self.b.order = instr, order
        partial = plan.sums(given)
        shapes = leaves(instr.shape)
        cuts = [Cut(plan.project(dims, given), partial, order) for dims in plan.rule.results]
        dims = [self.grid.local(s.dims, c) for s, c in zip(shapes, cuts, strict=True)]
        made = plan.emit(Job(self.b, instr, operands, given, dims))
        combiner = plan.combiner(self.b) if plan.combiner is not None and partial else None
        if plan.combiner is None:
            cuts = [Cut(cut.dims, (), order) for cut in cuts]
        values: list[Held] = []
        for local, shape, cut, hint in zip(made, shapes, cuts, self.hints(instr), strict=True):
            value = self.new_value(local, shape.dims, cut, hint)
            value.combiner = combiner
            values.append(value)
        return Several(values) if isinstance(instr.shape, TupleShape) else values[0]

    def _operand(
        self, instr: Instr, plan: FactorPlan, index: int, cut: Cut, given: Assignment
    ) -> Instr:
        """An operand in its cut, what lies past the end of summed dimensions filled."""
        source = instr.operands[index]
        local = self.need(source, cut)
        fill = plan.fills.get(index)
        if fill is None:
            return local
        self.b.order = cut.order
        for dim, factors in enumerate(plan.rule.operands[index]):
            for factor in factors:
                if plan.ways[factor] == "sum" and given.get(factor):
                    size, axes = source.array.dims[dim], given[factor]
                    if local.array.dims[dim] * self.grid.count(axes) != size:
                        local = self.b.masked(local, dim, size, axes, fill(self.b))
        return local

    def _best(self, instr: Instr, plan: FactorPlan) -> tuple[Assignment, int]:
        """The assignment with the least to send, and the order of devices that its axes are of."""
        hints = self._goals(instr)
        operands = [self.value(o) for o in instr.operands]
        lists = [*plan.rule.results, *plan.rule.operands]
        cuts: list[list[Cut]] = [[] if hint is None else [hint] for hint in hints]
        cuts += [list(v.cuts) + ([v.hint] if v.hint else []) for v in operands]
        best: tuple[float, Assignment, int] | None = None
        for order in sorted({c.order for found in cuts for c in found if c.used()} | {0}):
            sources = [
                plan.read(dims, cut, self.grid)
                for dims, found in zip(lists, cuts, strict=True)
                for cut in found
                if cut.order == order
            ]
            for given in candidates(plan, sources, self.grid):
                total = self._cost(instr, plan, given, order, hints, operands, best)
                if best is None or total < best[0]:
                    best = (total, given, order)
        assert best is not None
        return best[1], best[2]

    def _cost(
        self,
        instr: Instr,
        plan: FactorPlan,
        given: Assignment,
        order: int,
        hints: list[Cut | None],
        operands: list[PartitionedValue],
        best: tuple[float, Assignment, int] | None,
    ) -> float:
        total = plan.extra(given)
        most = math.inf if best is None else best[0] * (1 + _ROUNDING)
        work = 0.0
        seen: set[tuple[int, Cut]] = set()
        for at, (value, dims) in enumerate(zip(operands, plan.rule.operands, strict=True)):
            cut = Cut(plan.project(dims, given), order=order).normal()
            work += self._bytes(value.dims, width(value.dtype), cut)
            if (id(value), cut) not in seen:
                seen.add((id(value), cut))
                share = sharers(instr, at)
                total += cost_of(self.router, value, cut, (most - total) * share) / share
            if total > most:
                return total
        partial = plan.sums(given) if plan.combiner is not None else ()
        for shape, dims, hint in zip(leaves(instr.shape), plan.rule.results, hints, strict=True):
            start = Cut(plan.project(dims, given), partial, order).normal()
            goal = hint or Cut(start.dims, order=start.order).normal()
            size = width(shape.dtype)
            total += self.router.cost(shape.dims, size, (start,), goal, most - total)
            work += self._bytes(shape.dims, size, start, _read_in_order(instr))
        cut_by = math.prod(self.grid.count(axes) for axes in given.values())
        return total + (work + plan.work / cut_by) / _WORK_OF_A_BYTE

    def _bytes(
        self, dims: tuple[int, ...], size: int, cut: Cut, order: tuple[int, ...] | None = None
    ) -> float:
        """Bytes of an array where it lies, its dimensions in this order there (default: as they are)."""
        local = self.grid.local(dims, cut)
        lying = local if order is None else tuple(local[d] for d in order)
        return size * math.prod(local) + seen_padding(lying, size)


def _read_in_order(instr: Instr) -> tuple[int, ...] | None:
    """The order in which a transpose takes a result that nobody else reads: the kernel that makes the
    result writes it so."""
    user = next(iter(instr.users)) if len(instr.users) == 1 else None
    return None if user is None or user.opcode != "transpose" else user.dimensions
