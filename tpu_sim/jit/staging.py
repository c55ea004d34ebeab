"""Dependences of a segment: stages between machine-state operations, and connected components.

Within a stage all lane components come first, then the state operations in program order. A lane
operation that needs the result of a state operation moves to a later stage, and so does one that touches
some of the rows of an access before it, not exactly the same ones. Inside a stage, lane operations
joined by values or by accesses of the same rows form a component; components are independent of each
other, so that unrolled copies of a loop body fall apart into equal small pieces.

A cheap value that many operations share (a constant, a load of data nothing here overwrites, a
short chain of such) does not join components: each computes its own copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tpu_sim.isa import resources
from tpu_sim.isa.program import VMEM, Kernel
from tpu_sim.jit.values import Argument, OperationRole, RowAddress, ValueOp

_MANY_LOADS = 8
"""Common loads from which two components become one."""
_CHEAP_OPERATIONS = 8
"""Of a shared value that joins no components: each computes it again (assumed)."""
_CHEAP_OPERATIONS_WITH_LOAD = 4
"""The same where computing it loads as well (assumed)."""


class _History:
    """Accesses of one kind to one window so far; accesses anywhere have the root None.

    Those of a root are found by eights of rows, of which an access of neighbouring rows touches one
    or two.
    """

    def __init__(self) -> None:
        self._by_root: dict[str | None, list[ValueOp]] = {}
        self._by_eight: dict[tuple[str, int], list[ValueOp]] = {}

    def add(self, op: ValueOp, address: RowAddress | None) -> None:
        """Remember an access."""
        self._by_root.setdefault(None if address is None else address.root, []).append(op)
        if address is not None:
            for eight in _eights(address):
                self._by_eight.setdefault((address.root, eight), []).append(op)

    def conflicts(self, address: RowAddress | None) -> dict[int, bool]:
        """Operations that may touch `address`, and whether they touch exactly it."""
        found: dict[int, bool] = {}
        by_root, by_eight = self._by_root, self._by_eight
        for root, ops in by_root.items():
            if address is None or root != address.root:
                found.update((op.index, False) for op in ops)
        if address is not None and address.root in by_root:
            for eight in _eights(address):
                for op in by_eight.get((address.root, eight), ()):
                    if op.index not in found and _overlap(op.address, address):
                        # a stride of 0 writes one row eight times: its sublanes depend on each other
                        found[op.index] = op.address == address and address.stride != 0
        return found


def _eights(address: RowAddress) -> Sequence[int]:
    """The eights of rows in which an access has rows."""
    if address.stride == 1:
        first, last = address.offset >> 3, address.offset + 7 >> 3
        return (first,) if first == last else (first, last)
    return sorted({row >> 3 for row in address.rows()})


def _overlap(a: RowAddress | None, b: RowAddress) -> bool:
    """Whether two accesses with one root have a row in common."""
    assert a is not None, "an access anywhere has no root"
    if a.stride == b.stride == 1:
        return -8 < a.offset - b.offset < 8
    return not set(a.rows()).isdisjoint(b.rows())


class WindowAccess(NamedTuple):
    """What an operation does to a window; `address` None means anywhere in it."""

    window: int
    is_store: bool
    address: RowAddress | None


_NONE: tuple[WindowAccess, ...] = ()


def accesses_of(op: ValueOp, kernel: Kernel) -> Sequence[WindowAccess]:
    """The VMEM accesses of an operation."""
    if op.address is None and op.role is not OperationRole.STATE:
        return _NONE
    if op.role is OperationRole.LOAD or op.role is OperationRole.STORE:
        assert op.address is not None
        return [WindowAccess(op.address.window, op.role is OperationRole.STORE, op.address)]
    if op.row is None:
        return []
    if op.row.is_indexed:
        return [WindowAccess(_int(op.arguments[0]), resources.VMEM in op.row.defines, None)]
    if op.row.is_transfer:
        descriptor = kernel.descriptors[_int(op.arguments[0])]
        sides = ((descriptor.src_space, False), (descriptor.dst_space, True))
        return [WindowAccess(descriptor.window, store, None) for s, store in sides if s == VMEM]
    return []


def _int(argument: Argument) -> int:
    assert isinstance(argument, int)
    return argument


def _unit(op: ValueOp) -> str:
    """The unit whose steps a state operation is one of."""
    assert op.row is not None
    return f"mxu {op.arguments[0]}" if op.row.is_mxu else op.row.slot_name


class Staging:
    """The analysis of one segment's operations (in program order), in `stage_count` stages."""

    def __init__(self, ops: dict[int, ValueOp], kernel: Kernel) -> None:
        self.ops = ops
        accesses = {i: some for i, op in ops.items() if (some := accesses_of(op, kernel))}
        self.stored_windows = {a.window for some in accesses.values() for a in some if a.is_store}
        self._histories: dict[tuple[int, bool], _History] = {}
        self._unit_stages: dict[str, int] = {}
        for index, op in ops.items():
            found = accesses.get(index)
            if found is not None:
                self._order_memory(op, found)
            op.stage = self._stage(op)
        self.cheap = self._find_cheap()
        self.stage_count = 1 + max((op.stage for op in ops.values()), default=0)
        self._lane_ops: list[list[ValueOp]] = [[] for _ in range(self.stage_count)]
        self._state_ops: list[list[ValueOp]] = [[] for _ in range(self.stage_count)]
        for op in ops.values():
            (self._state_ops if op.role is OperationRole.STATE else self._lane_ops)[
                op.stage
            ].append(op)

    # memory order

    def _order_memory(self, op: ValueOp, accesses: Sequence[WindowAccess]) -> None:
        """Record earlier conflicting accesses in `op.memory_before`."""
        found: dict[int, bool] = {}
        for window, is_store, address in accesses:
            if window not in self.stored_windows:
                continue
            stores = self._history(window, True)
            loads = self._history(window, False)
            found.update(stores.conflicts(address))
            if is_store:
                found.update(loads.conflicts(address))
        for window, is_store, address in accesses:
            if window in self.stored_windows:
                self._history(window, is_store).add(op, address)
        if found:
            op.memory_before = sorted(found.items())

    def _history(self, window: int, is_store: bool) -> _History:
        history = self._histories.get((window, is_store))
        if history is None:
            history = self._histories[window, is_store] = _History()
        return history

    # stages

    def _stage(self, op: ValueOp) -> int:
        ops, is_state = self.ops, op.role is OperationRole.STATE
        sources = [*op.uses, op.producer] if op.producer >= 0 else op.uses
        stage = 0
        for before, is_exact in op.memory_before:
            earlier = ops[before]
            is_apart = earlier.role is OperationRole.STATE or not is_exact
            stage = max(stage, earlier.stage + (is_apart and not is_state))
        for index in sources:
            source = ops.get(index)
            if source is not None:
                least = source.stage
                if source.role is OperationRole.STATE and not is_state:
                    least += 1
                if least > stage:
                    stage = least
        unit = _unit(op) if is_state else ""
        if unit:  # the steps of one unit keep their order
            stage = self._unit_stages[unit] = max(stage, self._unit_stages.get(unit, 0))
        return stage

    # sharing

    def is_free_load(self, op: ValueOp) -> bool:
        """A load of a window that this segment does not write."""
        if op.role is not OperationRole.LOAD:
            return False
        assert op.address is not None
        return op.address.window not in self.stored_windows

    def _find_cheap(self) -> set[int]:
        """Values that every component may compute for itself."""
        cost: dict[int, int] = {}
        reading: set[int] = set()
        for index, op in self.ops.items():
            role = op.role
            if role is OperationRole.LEAF or (role is OperationRole.LOAD and self.is_free_load(op)):
                cost[index] = 1
                reading.add(index)
            elif role is OperationRole.POINT and op.row is not None and not op.row.pushes:
                sources = set(op.uses)
                if not sources <= cost.keys():
                    continue
                total = 1 + sum([cost[source] for source in sources])
                reads = not reading.isdisjoint(sources)
                if total <= (_CHEAP_OPERATIONS_WITH_LOAD if reads else _CHEAP_OPERATIONS):
                    cost[index] = total
                    if reads:
                        reading.add(index)
        return set(cost)

    def components(self, stage: int) -> list[list[int]]:
        """Connected lane operations of a stage, cheap values left out, in program order.

        Those that read many vregs alike, as the sums and the differences of the same values do, go
        together too: memory is read once for all.
        """
        members = [op.index for op in self._lane_ops[stage] if op.index not in self.cheap]
        parent = {i: i for i in members}

        def find(i: int) -> int:
            while parent[i] != i:
                parent[i] = parent[parent[i]]
                i = parent[i]
            return i

        for i in members:
            op = self.ops[i]
            for j in op.uses:
                if j in parent:
                    parent[find(i)] = find(j)
            for j, _ in op.memory_before:
                if j in parent:
                    parent[find(i)] = find(j)
        groups: dict[int, list[int]] = {}
        for i in members:
            groups.setdefault(find(i), []).append(i)
        return self._with_common_loads(list(groups.values()))

    def _with_common_loads(self, groups: list[list[int]]) -> list[list[int]]:
        """Join each group to the one before it where most of its many loads are that one's too."""
        found: list[list[int]] = []
        loads: set[int] = set()
        for group in groups:
            own = self._free_loads(group)
            common = len(own & loads)
            if found and common >= _MANY_LOADS and 2 * common >= len(own):
                found[-1] = sorted(found[-1] + group)
                loads |= own
            else:
                found.append(group)
                loads = own
        return found

    def _free_loads(self, group: list[int]) -> set[int]:
        """The free loads that a group reads, through cheap values too."""
        pending = [j for i in group for j in self.ops[i].uses if j in self.cheap]
        seen = set(pending)
        while pending:
            for j in self.ops[pending.pop()].uses:
                if j not in seen and j in self.cheap:
                    seen.add(j)
                    pending.append(j)
        return {j for j in seen if self.ops[j].role is OperationRole.LOAD}

    def state_ops(self, stage: int) -> list[ValueOp]:
        """The state operations of a stage, in program order."""
        return self._state_ops[stage]
