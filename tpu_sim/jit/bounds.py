"""Checks that the addresses of vector accesses and transfers are inside their windows and memories.

Vector code runs late, a whole segment at once, but the first fault of a block in the order of its
bundles is the one that ends a run. So checks are emitted in that order: of accesses to windows in
groups, one compare for each window and address root; of a transfer ahead of its copy where other
checks come between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tpu_sim.jit.scope import FunctionScope
from tpu_sim.jit.state_ops import check_transfer
from tpu_sim.jit.translated import FaultKind
from tpu_sim.jit.values import LAST_SUBLANE, ValueOp

Ranges = dict[tuple[int, str], tuple[int, int]]
"""By window and address root the lowest and the highest offset of a row."""


def row_ranges(ops: Sequence[ValueOp]) -> Ranges:
    """The rows that loads and stores touch."""
    offsets: dict[tuple[int, str], list[int]] = {}
    for op in ops:
        if op.address is not None:
            window, root, offset, stride = op.address
            found = offsets.setdefault((window, root), [])
            found.append(offset)
            found.append(offset + LAST_SUBLANE * stride)
    return {key: (min(found), max(found)) for key, found in offsets.items()}


class Bounds:
    """Emits the checks of one block."""

    def __init__(self, scope: FunctionScope, dma_function: Callable[[int], str]) -> None:
        self._scope = scope
        self._dma_function = dma_function
        self._checked = -1

    def check(self, ops: Sequence[ValueOp], more_follows: bool) -> None:
        """Check the operations, given in program order, that were not checked before.

        `more_follows`: another check comes before transfers check themselves.
        """
        waiting = [op for op in ops if op.index > self._checked and _may_fault(op)]
        if waiting:
            self._checked = waiting[-1].index
        group: list[ValueOp] = []
        for number, op in enumerate(waiting):
            if op.address is not None:
                group.append(op)
                continue
            self._check_rows(group)
            group = []
            if more_follows or number + 1 < len(waiting):
                check_transfer(self._scope, op, self._dma_function)
        self._check_rows(group)

    def _check_rows(self, group: Sequence[ValueOp]) -> None:
        for (window, root), (low, high) in row_ranges(group).items():
            self._check_range(window, root, low, high)

    def _check_range(self, window: int, root: str, low: int, high: int) -> None:
        e = self._scope.emitter
        rows = self._scope.kernel.windows[window].rows
        name = self._scope.kernel.windows[window].name
        message = f"rows {low}..{high} from the address are not all within window {name} ({rows})"
        if not root:
            if low >= 0 and high < rows:
                return
            outside = e.value("icmp eq i32 0, 0")
        elif high - low >= rows:
            outside = e.value("icmp eq i32 0, 0")
        else:
            wide = e.value(f"sext i32 {root} to i64")
            first = e.value(f"add i64 {wide}, {low}")
            outside = e.value(f"icmp ugt i64 {first}, {rows - 1 - (high - low)}")
        self._scope.fault_if(outside, FaultKind.WINDOW, message)


def _may_fault(op: ValueOp) -> bool:
    return op.address is not None or (op.row is not None and op.row.is_transfer)
