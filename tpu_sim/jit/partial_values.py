"""Parts of a component that are computed beforehand, each in a loop of its own.

A loop over the chunks of many vregs reads from as many places, whole pages apart. A CPU follows few
such streams at once, and few lines so far apart stay in its first cache: sums of 32 vregs of a
matrix in memory come at half its speed. So where values of up to 8 vregs each are all that the
rest needs, they are made first.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tpu_sim.jit.component import Component, is_moving
from tpu_sim.jit.values import Role, Use

_MANY_STREAMS = 12
_MOST_STREAMS = 8
_FEWEST_STREAMS = 6


@dataclass(frozen=True)
class PartialValue:
    """A value and the operations that only it needs, in order, its own last."""

    value: int
    ops: tuple[int, ...]


def partial_values(component: Component, direct: Collection[int]) -> list[PartialValue]:
    """What to compute beforehand; nothing where few vregs are read. `direct`: values in memory."""
    ops = component.ops
    loads = [i for i, op in enumerate(ops) if op.role is Role.LOAD and i in direct]
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
    return op.role is Role.POINT and not is_moving(op)
