"""How an operation can be cut: its factors, and which axes of the grid each of them gets.

The factors of an opcode are those of its sharding rule (`compiler.sharding.rule`). Along a factor
an operation is done in one of three ways:

    pass    each tile of the result is made of the same tile of the operands
    sum     tiles of the operands make partial results, to be combined
    whole   all of it must be there

An `Assignment` gives factors axes of the grid. The one that is taken has the least to send: its
operands brought into their cuts, and the result into the cut that the program asks for.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import Shape, TupleShape, leaves
from compiler.partitioner.grid import Axes, Cut, Dims, Grid
from compiler.partitioner.local import Local
from compiler.sharding.op_rules import rule_of
from compiler.sharding.rule import DimFactors, FactorKind, ShardingRule

Instr = HloInstruction
Assignment = dict[int, Axes]


@dataclass
class Job:
    """One operation on a device: its local operands, and the dimensions that its results have."""

    b: Local
    instr: Instr
    operands: list[Instr]
    given: Assignment
    dims: list[Dims]

    def axes(self, factor: int | None) -> Axes:
        """The axes of a factor."""
        return () if factor is None else self.given.get(factor, ())

    def same(self, **attrs: object) -> list[Instr]:
        """The operation itself on the local operands, some attributes replaced."""
        kept = {k: v for k, v in self.instr.attrs.items() if k not in DROPPED}
        declared = local_shape_of(self.instr, self.dims)
        made = self.b.instruction(
            self.instr.opcode, self.operands, kept | attrs, declared, self.instr.name
        )
        return elements(self.b, made)


DROPPED = ("sharding", "metadata", "control-predecessors")
"""Attributes of the global instruction that its local form does not have, or gets otherwise."""

Emit = Callable[[Job], list[Instr]]


def _emit_same(job: Job) -> list[Instr]:
    return job.same()


@dataclass
class FactorPlan:
    """A rule, the way in which each factor is done, and how the local operation is made.

    `fills` gives, by operand, the scalar that stands for elements past the end of a summed
    dimension. `combiner` adds up partial results. `extra` is what the operation itself sends.
    """

    rule: ShardingRule
    ways: list[str]
    emit: Emit = _emit_same
    fills: dict[int, Callable[[Local], Instr]] = field(default_factory=dict)
    combiner: Callable[[Local], HloComputation] | None = None
    extra: Callable[[Assignment], float] = lambda _: 0.0
    variants: Callable[[Assignment], Iterable[Assignment]] = lambda _: ()
    work: float = 0.0

    @staticmethod
    def of(instr: Instr, *, sums: bool = False, makes: bool = False) -> FactorPlan:
        """The plan of a rule as it is: what it reduces is summed where the caller can do that.

        With `makes` dimensions that no operand has are computed in tiles.
        """
        rule = rule_of(instr)
        assert rule is not None, f"%{instr.name}: {instr.opcode} has no sharding rule"
        given, made = _members(rule.operands), _members(rule.results)
        ways = []
        for factor, kind in enumerate(rule.kinds):
            is_both = factor in given and factor in made
            is_pass = kind is FactorKind.PASS and (is_both or (makes and factor in made))
            is_sum = kind is FactorKind.REDUCE and sums
            ways.append("pass" if is_pass else "sum" if is_sum else "whole")
        return FactorPlan(rule, ways)

    def where(self, operand: int, dim: int) -> int:
        """The only factor of a dimension of an operand."""
        (factor,) = self.rule.operands[operand][dim]
        return factor

    def project(self, lists: DimFactors, given: Assignment) -> tuple[Axes, ...]:
        """The axes of each dimension."""
        return tuple(tuple(a for f in factors for a in given.get(f, ())) for factors in lists)

    def sums(self, given: Assignment) -> Axes:
        """The axes along which results are partial."""
        return tuple(sorted(a for f, axes in given.items() if self.ways[f] == "sum" for a in axes))

    def is_valid(self, given: Assignment, grid: Grid) -> bool:
        """Whether tiles of dimensions are tiles of their factors, and no axis is used twice."""
        used = [a for axes in given.values() for a in axes]
        if len(used) != len(set(used)) or any(
            self.ways[f] == "whole" for f, x in given.items() if x
        ):
            return False
        lists = itertools.chain(*self.rule.operands, *self.rule.results)
        return all(self._is_tiled(factors, given, grid) for factors in lists if len(factors) > 1)

    def _is_tiled(self, factors: tuple[int, ...], given: Assignment, grid: Grid) -> bool:
        """A minor factor may be cut only where the more major ones are cut into single elements."""
        is_cut_up = True
        for factor in factors:
            count = grid.count(given.get(factor, ()))
            if count > 1 and (not is_cut_up or self.rule.sizes[factor] % count):
                return False
            is_cut_up = is_cut_up and count == self.rule.sizes[factor]
        return True

    def read(self, lists: DimFactors, cut: Cut, grid: Grid) -> Assignment:
        """The axes of the factors that a cut of an operand or result gives."""
        found: Assignment = {}
        for factors, axes in zip(lists, cut.dims, strict=True):
            rest = list(axes)
            for factor in factors:
                if len(factors) == 1:
                    found[factor] = tuple(rest)
                    break
                taken: Axes = ()
                while rest and self.rule.sizes[factor] % grid.count((*taken, rest[0])) == 0:
                    taken += (rest.pop(0),)
                found[factor] = taken
                if grid.count(taken) != self.rule.sizes[factor]:
                    break
        return {f: axes for f, axes in found.items() if axes}


def _members(arrays: Iterable[DimFactors]) -> set[int]:
    return {factor for dims in arrays for factors in dims for factor in factors}


def merged(plan: FactorPlan, sources: Sequence[Assignment]) -> Assignment:
    """Several wishes in order: what an earlier one has taken is taken."""
    found: Assignment = {}
    used: set[int] = set()
    for source in sources:
        for factor, axes in source.items():
            if plan.ways[factor] == "whole":
                continue
            have = found.get(factor, ())
            if axes[: len(have)] != have:
                continue
            more = tuple(itertools.takewhile(lambda a: a not in used, axes[len(have) :]))
            if more:
                found[factor] = (*have, *more)
                used.update(more)
    return found


def candidates(plan: FactorPlan, sources: Sequence[Assignment], grid: Grid) -> Iterator[Assignment]:
    """Valid assignments worth a look: the sources merged in any order, and some variations."""
    seen: set[tuple[tuple[int, Axes], ...]] = set()
    distinct = list({tuple(sorted(s.items())): s for s in sources if s}.values())[:4]
    for count in range(len(distinct), -1, -1):
        for order in itertools.permutations(distinct, count):
            wished = merged(plan, order)
            blocked = _blocked(plan, order)
            for given in _varied(plan, wished, blocked, grid):
                key = tuple(sorted((f, a) for f, a in given.items() if a))
                if key not in seen:
                    seen.add(key)
                    if plan.is_valid(given, grid):
                        yield dict(key)


def _blocked(plan: FactorPlan, sources: Sequence[Assignment]) -> Axes:
    """Axes that cut what must be whole."""
    for source in sources:
        for factor, axes in source.items():
            if plan.ways[factor] == "whole":
                return axes
    return ()


def _varied(plan: FactorPlan, given: Assignment, blocked: Axes, grid: Grid) -> Iterator[Assignment]:
    yield given
    yield from plan.variants(given)
    for factor, axes in given.items():
        if plan.ways[factor] == "sum" or len(given) > 1:
            yield {f: a for f, a in given.items() if f != factor}
        if plan.ways[factor] == "sum":
            rest = {f: a for f, a in given.items() if f != factor}
            yield from _elsewhere(plan, rest, axes, grid)
    if blocked:
        yield from _elsewhere(plan, given, blocked, grid)


def _elsewhere(plan: FactorPlan, given: Assignment, axes: Axes, grid: Grid) -> Iterator[Assignment]:
    """The axes on any factor that they divide."""
    taken = {a for used in given.values() for a in used}
    free = tuple(a for a in axes if a not in taken)
    for factor, size in enumerate(plan.rule.sizes):
        if plan.ways[factor] == "pass" and free:
            have = given.get(factor, ())
            if size % grid.count((*have, *free)) == 0:
                yield {**given, factor: (*have, *free)}


def sharers(instr: Instr, at: int) -> int:
    """How many operations use an operand as this one does: products of the same with several weights.

    What moves it pays for all of them, as each of them would do it for a like price.
    """
    if not OPCODES[instr.opcode].has(Trait.CONTRACTION):
        return 1
    operand, kind = instr.operands[at], _kind(instr)
    return sum(
        user.operands[at] is operand and _kind(user) == kind
        for user in operand.users
        if len(user.operands) == len(instr.operands)
    )


def _kind(instr: Instr) -> tuple[str, dict[str, object]]:
    return instr.opcode, {k: v for k, v in instr.attrs.items() if k not in DROPPED}


def result_dims(instr: Instr) -> list[Dims]:
    """The dimensions of every array of the result."""
    return [leaf.dims for leaf in leaves(instr.shape)]


def local_shape_of(instr: Instr, dims: Sequence[Dims]) -> Shape:
    """The result's shape with other dimensions."""
    made = [leaf.with_dims(d) for leaf, d in zip(leaves(instr.shape), dims, strict=True)]
    return TupleShape(tuple(made)) if isinstance(instr.shape, TupleShape) else made[0]


def elements(b: Local, made: Instr) -> list[Instr]:
    """The arrays of a result."""
    if not isinstance(made.shape, TupleShape):
        return [made]
    return [b.get_tuple_element(made, i) for i in range(len(made.shape.elements))]
