"""Dependences of a segment: stages between machine-state operations, and connected components.

Within a stage all lane components come first, then the state operations in program order. A lane
operation that needs the result of a state operation moves to a later stage. Inside a stage, lane
operations joined by values or by memory conflicts form a component; components are independent of
each other, so that unrolled copies of a loop body fall apart into equal small pieces.

A cheap value that many operations share (a constant, a load of data nothing here overwrites, a
short chain of such) does not join components: each computes its own copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tpu_sim.isa.program import VMEM, Kernel
from tpu_sim.jit.values import Address, Argument, Role, ValueOp

_CHEAP_OPERATIONS = 8
_CHEAP_OPERATIONS_WITH_LOAD = 4


class _History:
    """Accesses of one kind to one window so far; accesses anywhere have the root None."""

    def __init__(self) -> None:
        self._by_root: dict[str | None, list[ValueOp]] = {}
        self._by_row: dict[tuple[str, int], list[ValueOp]] = {}

    def add(self, op: ValueOp, address: Address | None) -> None:
        """Remember an access."""
        self._by_root.setdefault(None if address is None else address.root, []).append(op)
        if address is not None:
            for row in address.rows():
                self._by_row.setdefault((address.root, row), []).append(op)

    def conflicts(self, address: Address | None) -> dict[int, bool]:
        """Operations that may touch `address`, and whether they touch exactly it."""
        found: dict[int, bool] = {}
        for root, ops in self._by_root.items():
            if address is None or root != address.root:
                found.update((op.index, False) for op in ops)
        if address is not None:
            for row in address.rows():
                for op in self._by_row.get((address.root, row), ()):
                    # a stride of 0 writes one row eight times: its sublanes depend on each other
                    found[op.index] = op.address == address and address.stride != 0
        return found


class Access(NamedTuple):
    """What an operation does to a window; `address` None means anywhere in it."""

    window: int
    is_store: bool
    address: Address | None


_NONE: tuple[Access, ...] = ()


def accesses_of(op: ValueOp, kernel: Kernel) -> Sequence[Access]:
    """The VMEM accesses of an operation."""
    if op.address is None and op.role is not Role.STATE:
        return _NONE
    if op.role is Role.LOAD or op.role is Role.STORE:
        assert op.address is not None
        return [Access(op.address.window, op.role is Role.STORE, op.address)]
    if op.row is None:
        return []
    match op.row.effect:
        case "load_indexed" | "store_indexed":
            return [Access(_int(op.arguments[0]), op.row.effect == "store_indexed", None)]
        case "dma_start":
            descriptor = kernel.descriptors[_int(op.arguments[0])]
            sides = ((descriptor.src_space, False), (descriptor.dst_space, True))
            return [Access(descriptor.window, store, None) for s, store in sides if s == VMEM]
    return []


def _int(argument: Argument) -> int:
    assert isinstance(argument, int)
    return argument


def _unit(op: ValueOp) -> str:
    """The unit whose steps a state operation is one of."""
    assert op.row is not None
    effect = op.row.effect
    if effect.startswith("mat"):
        return f"mxu {op.arguments[0]}"
    return "dma" if effect == "dma_start" else effect.partition("_")[0]


class Staging:
    """The analysis of one segment's operations (in program order)."""

    def __init__(self, ops: dict[int, ValueOp], kernel: Kernel) -> None:
        self.ops = ops
        self._kernel = kernel
        self._accesses = {i: accesses_of(op, kernel) for i, op in ops.items()}
        self.stored_windows = {
            a.window for accesses in self._accesses.values() for a in accesses if a.is_store
        }
        self._histories: dict[tuple[int, bool], _History] = {}
        self._unit_stages: dict[str, int] = {}
        for op in ops.values():
            self._order_memory(op)
            op.stage = self._stage(op)
        self.cheap = self._find_cheap()

    # memory order

    def _order_memory(self, op: ValueOp) -> None:
        """Record earlier conflicting accesses in `op.memory_before`."""
        if not self._accesses[op.index]:
            return
        found: dict[int, bool] = {}
        written = [a for a in self._accesses[op.index] if a.window in self.stored_windows]
        for access in written:
            found.update(self._history(access.window, True).conflicts(access.address))
            if access.is_store:
                found.update(self._history(access.window, False).conflicts(access.address))
        for access in written:
            self._history(access.window, access.is_store).add(op, access.address)
        op.memory_before = sorted(found.items())

    def _history(self, window: int, is_store: bool) -> _History:
        return self._histories.setdefault((window, is_store), _History())

    # stages

    def _stage(self, op: ValueOp) -> int:
        is_state = op.role is Role.STATE
        stage = 0
        sources = [*op.uses, *(before for before, _ in op.memory_before)]
        if op.producer >= 0:
            sources.append(op.producer)
        for index in sources:
            source = self.ops.get(index)
            if source is not None:
                stage = max(stage, source.stage + (source.role is Role.STATE and not is_state))
        unit = _unit(op) if is_state else ""
        if unit:  # the steps of one unit keep their order
            stage = self._unit_stages[unit] = max(stage, self._unit_stages.get(unit, 0))
        return stage

    # sharing

    def is_free_load(self, op: ValueOp) -> bool:
        """A load of a window that this segment does not write."""
        if op.role is not Role.LOAD:
            return False
        assert op.address is not None
        return op.address.window not in self.stored_windows

    def _find_cheap(self) -> set[int]:
        """Values that every component may compute for itself."""
        cost: dict[int, tuple[int, bool]] = {}
        for index, op in self.ops.items():
            if op.role is Role.LEAF or self.is_free_load(op):
                cost[index] = (1, True)
            elif op.role is Role.POINT and op.row is not None and not op.row.pushes:
                costs = [cost.get(source) for source in set(op.uses)]
                known = [found for found in costs if found is not None]
                if len(known) < len(costs):
                    continue
                total = 1 + sum([count for count, _ in known])
                reads = any(has_load for _, has_load in known)
                if total <= (_CHEAP_OPERATIONS_WITH_LOAD if reads else _CHEAP_OPERATIONS):
                    cost[index] = (total, reads)
        return set(cost)

    def components(self, stage: int) -> list[list[int]]:
        """Connected lane operations of a stage, cheap values left out, in program order."""
        members = [
            i
            for i, op in self.ops.items()
            if op.stage == stage and op.role is not Role.STATE and i not in self.cheap
        ]
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
        return list(groups.values())

    def state_ops(self, stage: int) -> list[ValueOp]:
        """The state operations of a stage, in program order."""
        return [op for op in self.ops.values() if op.stage == stage and op.role is Role.STATE]

    @property
    def stage_count(self) -> int:
        """Number of stages."""
        return 1 + max((op.stage for op in self.ops.values()), default=0)

    def uses_of(self) -> dict[int, list[ValueOp]]:
        """The users of each value."""
        users: dict[int, list[ValueOp]] = {}
        for op in self.ops.values():
            for value in op.uses:
                users.setdefault(value, []).append(op)
        return users
