"""Vector operations of a segment to native code: bounds checks, component calls, state operations.

A segment is a block, or the part of one up to a transfer that touches SMEM. For each stage its
components are called, then its state operations run in program order, grouped by MXU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tpu_sim.jit.context import ROW_BYTES, VREG_BYTES
from tpu_sim.jit.hbm_windows import RESOLVE, SETTLE, entry_offset
from tpu_sim.jit.outline import OutlinedComponent, component_arguments, outline
from tpu_sim.jit.scope import FaultKind, FunctionScope
from tpu_sim.jit.staging import Staging
from tpu_sim.jit.state_ops import StateOps
from tpu_sim.jit.values import Address, Role, Use, ValueOp

_WORK_TO_SHARE = 160
"""Vreg operations (some ten nanoseconds each) from which waking other threads pays."""


class Segment:
    """Emits one segment. `live_out` are values that a later segment of the block reads."""

    def __init__(
        self,
        scope: FunctionScope,
        ops: dict[int, ValueOp],
        carry: dict[int, int],
        live_out: frozenset[int],
        dma_function: Callable[[int], str],
    ) -> None:
        self._scope = scope
        self._emitter = scope.emitter
        self._staging = Staging(ops, scope.kernel)
        self._carry = carry
        self._live_out = live_out
        self._free_slot = 1 + max((op.carried for op in ops.values()), default=-1)
        self._bases: dict[tuple[int, str], str] = {}
        self._gaps: dict[tuple[int, str], str] = {}
        self._pieces = {
            window: in_place.pieces
            for window, in_place in scope.in_place.items()
            if in_place.pieces.gap_bytes
        }
        self._ranges: dict[tuple[int, str], tuple[int, int]] = {}
        self._state = StateOps(
            scope, ops.values(), self.operand_pointer, self.result_pointer, dma_function
        )

    def emit(self) -> None:
        """Append the segment's code."""
        self._check_bounds()
        outputs = self._carried_values()
        self._state.begin()
        for stage in range(self._staging.stage_count):
            self._components(stage, outputs)
            self._state.emit_stage(self._staging.state_ops(stage))
        self._state.end()

    # what crosses stages

    def _carried_values(self) -> frozenset[int]:
        """Give carry slots to values that leave their stage or feed a state operation."""
        carried = set(self._live_out)
        for value, users in self._staging.uses_of().items():
            op = self._staging.ops.get(value)
            if op is None:
                continue
            for user in users:
                if user.role is Role.STATE:
                    needed = self._direct_pointer(op) is None
                else:
                    needed = user.stage != op.stage and value not in self._staging.cheap
                if needed or op.role is Role.STATE:
                    carried.add(value)
        for value in sorted(carried):
            op = self._staging.ops[value]
            if op.carried >= 0:
                self._carry[value] = op.carried
                carried.discard(value)
            elif op.role is not Role.LEAF or value in self._live_out:
                self._carry[value] = self._new_slot()
        return frozenset(carried)

    def _new_slot(self) -> int:
        slot = self._free_slot
        self._free_slot += 1
        module = self._scope.module
        module.carry_slots = max(module.carry_slots, self._free_slot)
        return slot

    def _components(self, stage: int, outputs: frozenset[int]) -> None:
        groups = self._staging.components(stage)
        # a cheap value belongs to no component: one that must lie in memory gets its own
        cheap = self._staging.cheap
        groups += [[v] for v in sorted(outputs & cheap) if self._staging.ops[v].stage == stage]
        found = [
            outline(self._staging, stage, members, outputs, self._pieces) for members in groups
        ]
        outlined = [component for component in found if component is not None]
        work = sum(len(component.component.ops) for component in outlined)
        if self._scope.module.threads > 1 and len(outlined) > 1 and work >= _WORK_TO_SHARE:
            table = self._scope.task_table()
            for component in outlined:
                table.add_call(*self._call(component))
            table.run()
            return
        for component in outlined:
            name, arguments = self._call(component)
            self._emitter.do(f"call void @{name}({', '.join(['ptr %scratch', *arguments])})")

    def _call(self, outlined: OutlinedComponent) -> tuple[str, list[str]]:
        """A component's function and its arguments here."""
        pointers = [self._pointer(first) for first in outlined.groups]
        pointers += [self._input_pointer(value) for value in outlined.leaves]
        pointers += [self._carry_pointer(self._carry[value]) for value in outlined.outs]
        gaps = [self._gap(outlined.groups[group]) for group in outlined.component.spread_groups]
        name = self._scope.module.components.function(outlined)
        return name, component_arguments(pointers, gaps, outlined.scalars)

    # addresses

    def _check_bounds(self) -> None:
        """One compare for each window and address root."""
        ranges: dict[tuple[int, str], tuple[int, int]] = {}
        for op in self._staging.ops.values():
            if op.address is not None:
                key = (op.address.window, op.address.root)
                low, high = ranges.get(key, (op.address.low, op.address.high))
                ranges[key] = (min(low, op.address.low), max(high, op.address.high))
        for (window, root), (low, high) in ranges.items():
            self._check_range(window, root, low, high)
        self._ranges = ranges
        stored = {op.address.window for op in self._staging.ops.values()
                  if op.address is not None and op.role is Role.STORE}  # fmt: skip
        for window in sorted(stored & self._scope.in_place.keys()):
            self._emitter.do(f"call void @{SETTLE}(ptr %ctx, ptr {self._entry(window)})")

    def _check_range(self, window: int, root: str, low: int, high: int) -> None:
        e = self._emitter
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
            first = e.value(f"add i64 {self._wide(root)}, {low}")
            outside = e.value(f"icmp ugt i64 {first}, {rows - 1 - (high - low)}")
        self._scope.fault_if(outside, FaultKind.WINDOW, message)

    def _wide(self, root: str) -> str:
        return self._emitter.value(f"sext i32 {root} to i64") if root else "0"

    def _pointer(self, address: Address) -> str:
        key = (address.window, address.root)
        base = self._bases.get(key)
        if base is None:
            e = self._emitter
            window = self._scope.kernel.windows[address.window]
            base = e.offset("%vmem", window.base_row * ROW_BYTES)
            if address.root:
                base = e.offset(base, e.value(f"mul i64 {self._wide(address.root)}, {ROW_BYTES}"))
            if address.window in self._scope.in_place:
                base = e.offset(base, self._distance(address))
            self._bases[key] = base
        pointer = self._emitter.offset(base, address.offset * ROW_BYTES)
        pieces = self._pieces.get(address.window)
        number = 0 if pieces is None else pieces.number(address.offset)
        if number:
            gaps = self._emitter.value(f"mul i64 {self._gap(address)}, {number}")
            pointer = self._emitter.offset(pointer, gaps)
        return pointer

    def _gap(self, address: Address) -> str:
        """Bytes between the pieces of a window where this address finds them."""
        key = (address.window, address.root)
        if key not in self._gaps:
            self._pointer(replace(address, offset=0))
        return self._gaps[key]

    def _entry(self, window: int) -> str:
        return self._emitter.offset("%ctx", entry_offset(self._scope.in_place[window].entry))

    def _distance(self, address: Address) -> str:
        """Bytes from VMEM to where all rows of this address and its neighbours lie."""
        e = self._emitter
        key = (address.window, address.root)
        low, high = self._ranges[key]
        pieces = self._pieces.get(address.window)
        number = 0 if pieces is None else pieces.number(low)
        low = low if pieces is None else number * pieces.rows
        first = e.value(f"add i64 {self._wide(address.root)}, {low}")
        arguments = f"ptr %ctx, ptr {self._entry(address.window)}, i64 {first}, i64 {high - low}"
        distance = e.value(f"call i64 @{RESOLVE}({arguments})")
        if pieces is None:
            return distance
        is_dense = e.value(f"icmp eq i64 {distance}, 0")
        gap = e.value(f"select i1 {is_dense}, i64 0, i64 {pieces.gap_bytes}")
        self._gaps[key] = gap
        # pieces are counted from the root, which lies `number` of them before what was asked for
        return e.value(f"sub i64 {distance}, {e.value(f'mul i64 {gap}, {number}')}")

    def _direct_pointer(self, op: ValueOp) -> Callable[[], str] | None:
        """How to find a value in memory without computing it: a leaf, or an unwritten window."""
        if op.role is Role.LEAF:
            return lambda: self._leaf_pointer(op)
        address = op.address
        if address is None or not self._staging.is_free_load(op) or address.stride != 1:
            return None
        pieces = self._pieces.get(address.window)
        if pieces is not None and pieces.number(address.low) != pieces.number(address.high):
            return None
        return lambda: self._pointer(address)

    def _input_pointer(self, value: int) -> str:
        """Where a component finds a leaf, or a value of an earlier stage."""
        op = self._staging.ops[value]
        return self._leaf_pointer(op) if op.role is Role.LEAF else self._carry_of(value)

    def _carry_of(self, value: int) -> str:
        return self._carry_pointer(self._carry[value])

    def operand_pointer(self, operand: Use) -> str:
        """Where the vreg or mask a state operation reads lies."""
        if operand.value in self._carry:
            return self._carry_pointer(self._carry[operand.value])
        direct = self._direct_pointer(self._staging.ops[operand.value])
        assert direct is not None, "a state operand has neither a slot nor a place in memory"
        return direct()

    def result_pointer(self, op: ValueOp) -> str:
        """Where a state operation writes its vreg; unused results go to a slot of their own."""
        if op.index not in self._carry:
            self._carry[op.index] = self._new_slot()
        return self._carry_pointer(self._carry[op.index])

    def _carry_pointer(self, slot: int) -> str:
        return self._emitter.offset("%carry", slot * VREG_BYTES)

    def _leaf_pointer(self, op: ValueOp) -> str:
        if op.carried >= 0:
            return self._carry_pointer(op.carried)
        return self._state.leaf_pointer(op)
