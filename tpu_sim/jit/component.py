"""Components: connected vector operations with their memory accesses, and how they must be run.

Levels alternate: even ones hold lane-by-lane operations, odd ones operations that cross lanes or
sublanes. A rotation or broadcast of what lies in memory counts as lane by lane (`tpu_sim.jit.moves`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from tpu_sim.jit.moves import is_move, moved
from tpu_sim.jit.values import LANE_ROLES, Argument, OperationRole, Use

_CHEAP_COST = 4
"""Operations that are rather repeated in a later level than kept for it."""


class Shape(Enum):
    """Which loop is outermost."""

    FLAT = "flat"
    ROWS = "rows"
    COLUMNS = "columns"
    FULL = "full"


class LocalOp(NamedTuple):
    """An operation of a component; values, pointers and scalars are numbered within it.

    `name` is that of its row, "" for what lies in memory.

    `group` and `offset` (rows) give the address of a LOAD or STORE relative to pointer ``%g``;
    Where a window's data may lie in pieces of `piece_rows` rows (0: they do not), its first row is row
    `phase` of the piece `piece` behind that of ``%g``, and each piece lies ``%h`` bytes further off.
    `leaf` and `out` number the pointers ``%l`` it reads and ``%o`` it is also written to. Accesses
    `memory_before` it are of exactly the same rows.
    """

    role: OperationRole
    name: str
    arguments: tuple[Argument, ...]
    is_mask: bool
    group: int = -1
    offset: int = 0
    stride: int = 1
    piece: int = 0
    phase: int = 0
    piece_rows: int = 0
    leaf: int = -1
    out: int = -1
    memory_before: tuple[int, ...] = ()

    @property
    def crosses_pieces(self) -> bool:
        """Whether its rows lie in more than one piece."""
        return self.piece_rows > 0 and self.phase + 7 * self.stride >= self.piece_rows


@dataclass(frozen=True)
class Component:
    """A component ready to be emitted: operations in an order that respects all dependences."""

    ops: tuple[LocalOp, ...]
    group_windows: tuple[int, ...]  # alias class of each address group, numbered within

    @property
    def spread_groups(self) -> list[int]:
        """The groups whose windows' data may lie in pieces."""
        return sorted({op.group for op in self.ops if op.piece_rows})

    @property
    def stored_windows(self) -> frozenset[int]:
        """Alias classes stored to."""
        return frozenset(
            self.group_windows[op.group] for op in self.ops if op.role is OperationRole.STORE
        )


def direct_values(component: Component) -> frozenset[int]:
    """Values that lie in memory unchanged while the component runs: leaves, unwritten windows."""
    stored = component.stored_windows
    return frozenset(
        index
        for index, op in enumerate(component.ops)
        if (op.role is OperationRole.LOAD and component.group_windows[op.group] not in stored)
        or (op.role is OperationRole.LEAF and not op.is_mask)
    )


def is_moving(op: LocalOp) -> bool:
    """Whether an operation is emitted as a load from a shifted place."""
    return is_move(op.name, op.arguments)


def shape_of(component: Component) -> Shape:
    """The loop shape a component needs."""
    direct = direct_values(component)
    roles = {
        op.role for op in component.ops if not (is_moving(op) and moved(op.arguments) in direct)
    }
    if OperationRole.ROW in roles:
        return Shape.FULL if OperationRole.COLUMN in roles else Shape.ROWS
    return Shape.COLUMNS if OperationRole.COLUMN in roles else Shape.FLAT


def levels_of(component: Component) -> list[int]:
    """The level of each operation: even for lane operations, odd for crossing ones."""
    levels: list[int] = []
    direct = direct_values(component)
    for op in component.ops:
        is_moved = is_moving(op)
        is_lane = is_moved or op.role in LANE_ROLES
        level = 0 if is_lane else 1
        for argument in op.arguments:
            if not isinstance(argument, Use):
                continue
            source = levels[argument.value]
            if is_moved and argument.value not in direct:
                source += 1 - source % 2  # all of it must be kept before a part is read
            elif is_moved:
                source = 0
            level = max(level, _level_after(source, is_lane))
        for before in op.memory_before:
            level = max(level, levels[before])
        levels.append(level)
    return levels


def _level_after(source: int, is_lane: bool) -> int:
    if source % 2 == 0:
        return source if is_lane else source + 1
    return source + 1 if is_lane else source + 2


def rematerialized_values(component: Component, direct: frozenset[int]) -> frozenset[int]:
    """Values cheaper to recompute in each level than to keep: constants, leaves, loads."""
    moved_values = {moved(op.arguments) for op in component.ops if is_moving(op)}
    for op in component.ops:
        if op.role not in LANE_ROLES and not is_moving(op):
            moved_values.update(a.value for a in op.arguments if isinstance(a, Use))
    cost: dict[int, int] = {}
    for index, op in enumerate(component.ops):
        if index in direct or op.role is OperationRole.LEAF:
            cost[index] = 1
        elif is_moving(op):
            if moved(op.arguments) in direct and index not in moved_values:
                cost[index] = 2
        elif op.role is OperationRole.POINT and index not in moved_values:
            sources = {a.value for a in op.arguments if isinstance(a, Use)}
            if sources <= cost.keys():
                total = 1 + sum(cost[source] for source in sources)
                if total <= _CHEAP_COST:
                    cost[index] = total
    return frozenset(cost)


def scratch_slots(
    component: Component, level_ops: Mapping[int, Sequence[int]], rematerialized: Collection[int]
) -> dict[int, int]:
    """A slot for each value that crosses levels; slots of dead values are used again.

    `level_ops` are the operations by level; `rematerialized` are recomputed where they are needed.
    """
    last = _last_crossing_level(component, level_ops, rematerialized)
    slots: dict[int, int] = {}
    free: list[int] = []
    count = 0
    ending: dict[int, list[int]] = {}
    for level in sorted(level_ops):
        for end in [end for end in ending if end < level]:
            free.extend(slots[value] for value in ending.pop(end))
        for index in level_ops[level]:
            if index not in last:
                continue
            if not free:
                free.append(count)
                count += 1
            slots[index] = free.pop()
            ending.setdefault(last[index], []).append(index)
    return slots


def _last_crossing_level(
    component: Component, level_ops: Mapping[int, Sequence[int]], rematerialized: Collection[int]
) -> dict[int, int]:
    levels = {index: level for level, indices in level_ops.items() for index in indices}
    last: dict[int, int] = {}
    for index, level in levels.items():
        for argument in component.ops[index].arguments:
            if not isinstance(argument, Use) or argument.value in rematerialized:
                continue
            if levels.get(argument.value, level) != level:
                last[argument.value] = max(last.get(argument.value, 0), level)
    return last
