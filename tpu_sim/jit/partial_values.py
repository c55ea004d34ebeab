"""Parts of a component that are computed beforehand, each in a loop of its own.

A loop over the chunks of many vregs reads from as many places, whole pages apart. A CPU follows few
such streams at once, and few lines so far apart stay in its first cache: sums of 32 vregs of a
matrix in memory come at half its speed. So where values of up to 8 vregs each are all that the
rest needs, they are made first.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tpu_sim.jit.component import Component, is_moving
from tpu_sim.jit.values import OperationRole, Use, use

_MANY_STREAMS = 12
"""Vregs that a loop reads from memory: fewer are not taken apart (assumed; 32 came at half the
speed)."""
_MOST_STREAMS = 8
"""Of one partial value, so that a CPU follows them (assumed)."""
_FEWEST_STREAMS = 6
"""Fewer do not repay storing what they give (assumed)."""


@dataclass(frozen=True)
class PartialValue:
    """A value and the operations that only it needs, in order, its own last."""

    value: int
    ops: tuple[int, ...]


def partial_values(component: Component, direct: Collection[int]) -> list[PartialValue]:
    """What to compute beforehand; nothing where few vregs are read. `direct`: values in memory."""
    ops = component.ops
    loads = [i for i, op in enumerate(ops) if op.role is OperationRole.LOAD and i in direct]
    if len(loads) < _MANY_STREAMS:
        return []
    users: list[list[int]] = [[] for _ in ops]
    for index, op in enumerate(ops):
        for argument in op.arguments:
            if isinstance(argument, Use):
                users[argument.value].append(index)
    cones = _cones(component, frozenset(loads))
    found: list[PartialValue] = []
    covered: set[int] = set()
    for index in reversed(range(len(ops))):
        cone = cones.get(index)
        if cone is None or index in covered:
            continue
        inner = [i for i in cone if i not in direct]
        is_alone = all(user in cone for i in inner if i != index for user in users[i])
        streams = len(cone) - len(inner)
        is_read_here = all(_is_lane_operation(component, user) for user in users[index])
        if streams >= _FEWEST_STREAMS and is_alone and is_read_here and users[index]:
            found.append(PartialValue(index, tuple(sorted(cone))))
            covered |= cone
    return found[::-1] if len(found) > 1 else []


@dataclass(frozen=True)
class EqualRun:
    """Partial values that one loop can compute: the n-th is the first one, of vregs ``n * step_rows``
    rows further on."""

    first: PartialValue
    count: int
    step_rows: int


def equal_runs(component: Component, parts: Sequence[PartialValue]) -> list[EqualRun]:
    """`parts` in order, neighbours joined where they are equal at equal distances."""
    found: list[EqualRun] = []
    for part in parts:
        last = found[-1] if found else None
        distance = None if last is None else _distance(component, last.first, part)
        if last is not None and distance is not None:
            step = last.step_rows if last.count > 1 else distance
            if distance == last.count * step:
                found[-1] = EqualRun(last.first, last.count + 1, step)
                continue
        found.append(EqualRun(part, 1, 0))
    return found


def _distance(component: Component, first: PartialValue, second: PartialValue) -> int | None:
    """Rows by which all loads of one value lie behind those of another that is equal to it."""
    if len(first.ops) != len(second.ops):
        return None
    numbers = dict(zip(first.ops, second.ops, strict=True))
    distances: set[int] = set()
    groups: set[int] = set()
    for a, b in ((component.ops[i], component.ops[j]) for i, j in numbers.items()):
        arguments = tuple(use(numbers[x.value]) if isinstance(x, Use) else x for x in a.arguments)
        if a.role is OperationRole.LOAD:
            distances.add(b.offset - a.offset)
            groups.add(a.group)
        if b != a._replace(arguments=arguments, offset=b.offset):
            return None
        if a.piece_rows:
            return None
    return distances.pop() if len(distances) == len(groups) == 1 else None


def _cones(component: Component, loads: frozenset[int]) -> dict[int, frozenset[int]]:
    """All that a value is computed from, for those that read few vregs and nothing else."""
    cones: dict[int, frozenset[int]] = {}
    for index, op in enumerate(component.ops):
        if index in loads:
            cones[index] = frozenset((index,))
        elif _is_lane_operation(component, index) and not op.is_mask and op.out < 0:
            sources = [a.value for a in op.arguments if isinstance(a, Use)]
            if all(source in cones for source in sources):
                cone = frozenset((index,)).union(*[cones[source] for source in sources])
                if len(cone & loads) <= _MOST_STREAMS:
                    cones[index] = cone
    return cones


def _is_lane_operation(component: Component, index: int) -> bool:
    op = component.ops[index]
    return op.role is OperationRole.POINT and not is_moving(op)
