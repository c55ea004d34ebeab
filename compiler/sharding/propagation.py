"""Propagation: what the program says of some arrays' shardings decides all others.

Each operation's rule is applied again and again until nothing changes, from the most to the least
certain reason, in nested loops:

    user priority    the numbers that the program gives (``{"x"}p1``), lowest first
    operation        five rounds, each with all that the ones before had: elementwise operations,
                     reshapes, transposes and edges whose operands have one use; the same with any
                     use; pass-through factors of any operation; all factors, but broadcasts
                     only towards their operands; everything
    conflicts        where an axis could cut two factors of an array, the factor that has it from the
                     larger array, or the first of equal ones, takes it; a factor whose turn has not
                     come keeps the axes that cut it anywhere

An array that says otherwise keeps what it says: whoever partitions reshards there. Arrays over
different meshes do not influence each other.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.sharding.mesh import Axes
from compiler.sharding.op_rules import rule_of
from compiler.sharding.projection import (
    ArrayFactors,
    common_prefix,
    product,
    project,
    without_conflicts,
)
from compiler.sharding.rule import FactorKind, ShardingRule
from compiler.sharding.values import Edge, ShardedValue, Values


class Direction(enum.Flag):
    """Which way shardings go through an operation."""

    NONE = 0
    FORWARD = enum.auto()
    BACKWARD = enum.auto()
    BOTH = FORWARD | BACKWARD


class Round(enum.IntEnum):
    """Rounds of operation priority, each a union with the ones before."""

    SINGLE_USE = 1
    PASS_THROUGH = 2
    PASS_FACTORS = 3
    ALL_FACTORS = 4
    EVERYTHING = 5


_FORWARD_FIRST = with_trait(Trait.BOX)


@dataclass(eq=False)
class PropagationStep:
    """An operation or an edge, through which shardings go."""

    rule: ShardingRule
    operands: list[ShardedValue]
    results: list[ShardedValue]
    allowed: Direction = Direction.BOTH
    is_pass_through: bool = False
    is_single_use: bool = False
    is_broadcast: bool = False
    first: Direction = Direction.BOTH  # where it goes in the first two rounds
    shape: tuple[int, ...] = field(init=False)  # elements of each array
    _directions: dict[Round, list[Direction]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.shape = tuple(math.prod(v.dims) for v in (*self.operands, *self.results))

    def directions(self, now: Round) -> list[Direction]:
        """Which way each factor's axes may go in a round."""
        if now not in self._directions:
            factors = range(len(self.rule.sizes))
            self._directions[now] = [self.direction(factor, now) for factor in factors]
        return self._directions[now]

    def direction(self, factor: int, now: Round) -> Direction:
        """Which way a factor's axes may go in a round."""
        if factor in self.rule.blocked:
            return Direction.NONE
        if now is Round.EVERYTHING:
            return self.allowed
        if now <= Round.PASS_THROUGH:
            is_in = self.is_pass_through and (self.is_single_use or now is Round.PASS_THROUGH)
            return self.allowed & self.first if is_in else Direction.NONE
        if now is Round.PASS_FACTORS and self.rule.kinds[factor] is not FactorKind.PASS:
            return Direction.NONE
        return self.allowed & (Direction.BACKWARD if self.is_broadcast else Direction.BOTH)


def step_of(instr: HloInstruction, values: Values, allowed: Direction) -> PropagationStep | None:
    """The step of an instruction; None when it relates nothing."""
    rule = rule_of(instr)
    if rule is None:
        return None
    info = OPCODES[instr.opcode]
    is_forward = instr.opcode in _FORWARD_FIRST
    is_pass = info.has(Trait.ELEMENTWISE) or instr.opcode in ("reshape", "transpose", "copy")
    return PropagationStep(
        rule,
        list(values.operands(instr)),
        values.of[instr],
        allowed,
        is_pass_through=is_pass or is_forward,
        is_single_use=all(sum(o.users.values()) == 1 for o in instr.operands),
        is_broadcast=instr.opcode == "broadcast",
        first=Direction.FORWARD if is_forward else Direction.BOTH,
    )


def step_of_edge(edge: Edge) -> PropagationStep:
    """Sources and target are one array for all that matters here."""
    dims = edge.target.dims
    mapping = tuple((dim,) for dim in range(len(dims)))
    rule = ShardingRule(
        dims, (FactorKind.PASS,) * len(dims), (mapping,) * len(edge.sources), (mapping,)
    )
    return PropagationStep(
        rule, edge.sources, [edge.target], is_pass_through=True, is_single_use=True
    )


def propagate(steps: Sequence[PropagationStep], values: Sequence[ShardedValue]) -> int:
    """Spread shardings until nothing changes; returns how often a value gained some."""
    priorities = {0, *(priority for value in values for priority in value.waiting)}
    users: dict[int, list[PropagationStep]] = {}
    for step in steps:
        for value in {*step.operands, *step.results}:
            users.setdefault(value.number, []).append(step)
    changes = 0
    for priority in sorted(priorities):
        for value in values:
            value.take_turn(priority)
        unsettled, before = set(steps), Round.SINGLE_USE
        for now in Round:
            unsettled.update(s for s in steps if s.directions(now) != s.directions(before))
            changes += _to_fixed_point(steps, users, now, unsettled)
            before = now
    return changes


def _to_fixed_point(
    steps: Sequence[PropagationStep],
    users: dict[int, list[PropagationStep]],
    now: Round,
    unsettled: set[PropagationStep],
) -> int:
    """Go through all steps, and again through those whose values gained some; the `unsettled` ones alone may
    have anything to spread."""
    waiting = deque(steps)
    queued = set(steps)
    changes = 0
    while waiting:
        step = waiting.popleft()
        queued.discard(step)
        if step not in unsettled:
            continue
        unsettled.discard(step)
        for value in apply(step, now):
            changes += 1
            unsettled.update(users[value.number])
            fresh = [other for other in users[value.number] if other not in queued]
            waiting.extendleft(reversed(fresh))
            queued.update(fresh)
    return changes


def apply(step: PropagationStep, now: Round) -> list[ShardedValue]:
    """Spread shardings through one step; returns the values that gained axes."""
    values = (*step.operands, *step.results)
    cut = [value for value in values if any(value.axes)]
    if not cut or len({v.mesh for v in values if v.mesh is not None}) > 1:
        return []
    rule = step.rule
    directions = step.directions(now)
    if not any(directions):
        return []
    mappings = (*rule.operands, *rule.results)
    arrays = [project(v, m, rule.sizes) for v, m in zip(values, mappings, strict=True)]
    given = arrays[: len(step.operands)], arrays[len(step.operands) :]
    wanted = {
        factor: _compatible(_sources(given, direction), factor)
        for factor, direction in enumerate(directions)
        if direction
    }
    rivals = {f: _compatible(arrays, f) for f, direction in enumerate(directions) if not direction}
    changed: dict[int, ArrayFactors] = {}
    for factor in _preferred(wanted, arrays, step.shape):
        for array in _targets(given, directions[factor]):
            if factor not in array.axes:
                continue
            others = (rivals.get(f, ()) for f in array.axes if f != factor)
            axes = without_conflicts(wanted[factor], others)
            if array.update(factor, axes, rule.sizes[factor]):
                changed[id(array)] = array
    mesh = next((v.mesh for v in cut if v.mesh is not None), None)
    gained = [array.value for array in changed.values() if array.write_back(rule.sizes)]
    for value in gained:
        value.mesh = mesh
    return gained


Given = tuple[list[ArrayFactors], list[ArrayFactors]]


def _sources(given: Given, direction: Direction) -> list[ArrayFactors]:
    operands, results = given
    found = list(operands) if Direction.FORWARD in direction else []
    return found + (results if Direction.BACKWARD in direction else [])


def _targets(given: Given, direction: Direction) -> list[ArrayFactors]:
    operands, results = given
    if direction is Direction.BOTH:
        return [*operands, *results]
    return list(results) if direction is Direction.FORWARD else list(operands)


def _compatible(arrays: Sequence[ArrayFactors], factor: int) -> Axes:
    """The longest list of axes that contradicts no array's list for this factor."""
    found: Axes = ()
    can_grow = True
    for array in arrays:
        axes = array.axes.get(factor, ())
        if not axes:
            continue
        common = common_prefix(found, axes)
        if common == found:
            found = axes if can_grow else found
        elif common != axes:
            found, can_grow = common, False
    return found


def _preferred(
    wanted: dict[int, Axes], arrays: Sequence[ArrayFactors], elements: Sequence[int]
) -> list[int]:
    """The factors in the order in which they may take axes: those of larger arrays first."""

    def rank(factor: int) -> tuple[int, int, int]:
        best = (0, 0)
        for index, array in enumerate(arrays):
            axes = array.axes.get(factor, ())
            if axes and product(axes) >= product(wanted[factor]):
                best = min(best, (-elements[index], index))
        return (*best, factor)

    return sorted((f for f, axes in wanted.items() if axes), key=rank)
