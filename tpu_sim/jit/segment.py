"""Vector operations of a segment to native code: bounds checks, component calls, state operations.

A segment is a block, or the part of one up to a transfer that touches SMEM. For each stage its
components are run, then its state operations in program order, grouped by MXU: as far as they can
be, both are commands (`tpu_sim.jit.command_kernels`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tpu_sim.isa.geometry import ROW_BYTES, VREG_BYTES
from tpu_sim.jit.bounds import Bounds, Ranges, row_ranges
from tpu_sim.jit.command_kernels import CommandKind
from tpu_sim.jit.commands import AnyPlace, CommandList, PiecePlace, Pointer
from tpu_sim.jit.outline import OutlinedComponent, outline
from tpu_sim.jit.scope import FunctionScope
from tpu_sim.jit.staging import Staging
from tpu_sim.jit.state_ops import StateOps
from tpu_sim.jit.values import OperationRole, RowAddress, Use, ValueOp
from tpu_sim.jit.window_kernels import RESOLVE, SETTLE, entry_offset

_WORK_TO_SHARE = 160
"""Vreg operations (some ten nanoseconds each) from which waking other threads pays."""
_LISTS = 24
"""Tasks of about equal work that the components of a stage are cut into."""


class Segment:
    """Emits one segment. `live_out` are values that a later segment of the block reads."""

    def __init__(
        self,
        scope: FunctionScope,
        ops: dict[int, ValueOp],
        carry: dict[int, int],
        live_out: frozenset[int],
        waiting: Mapping[int, int],
        dma_function: Callable[[int], str],
        bounds: Bounds,
    ) -> None:
        """`waiting`: results in each MXU's queue before the segment."""
        self._bounds = bounds
        self._scope = scope
        self._emitter = scope.emitter
        self._commands = scope.commands
        self._staging = Staging(ops, scope.kernel)
        self._carry = carry
        self._live_out = live_out
        self._free_slot = 1 + max((op.carried for op in ops.values()), default=-1)
        self._bases: dict[tuple[int, str], tuple[str, int]] = {}
        self._gaps: dict[tuple[int, str], str] = {}
        self._pieces = {
            window: in_place.pieces
            for window, in_place in scope.in_place.items()
            if in_place.pieces.gap_bytes
        }
        self._ranges: Ranges = {}
        self._state = StateOps(
            scope, ops.values(), waiting, self.operand_place, self.result_place, dma_function
        )

    def emit(self) -> None:
        """Append the segment's code."""
        self._commands.begin_segment()
        self._check_bounds()
        outputs = self._carried_values()
        # a cheap value belongs to no component: one that must lie in memory gets its own
        alone: dict[int, list[list[int]]] = {}
        for value in sorted(outputs & self._staging.cheap):
            alone.setdefault(self._staging.ops[value].stage, []).append([value])
        self._state.begin()
        for stage in range(self._staging.stage_count):
            groups = self._staging.components(stage) + alone.get(stage, [])
            self._components(stage, groups, outputs)
            self._state.emit_stage(self._staging.state_ops(stage))
        self._state.end()
        self._commands.flush()

    # what crosses stages

    def _carried_values(self) -> frozenset[int]:
        """Give carry slots to values that leave their stage or feed a state operation."""
        carried = set(self._live_out)
        ops, cheap = self._staging.ops, self._staging.cheap
        for user in ops.values():
            for value in user.uses:
                op = ops.get(value)
                if op is None or value in carried:
                    continue
                if user.role is OperationRole.STATE:
                    needed = self._direct_pointer(op) is None
                else:
                    needed = user.stage != op.stage and value not in cheap
                if needed or op.role is OperationRole.STATE:
                    carried.add(value)
        for value in sorted(carried):
            op = self._staging.ops[value]
            if op.carried >= 0:
                self._carry[value] = op.carried
                carried.discard(value)
            elif op.role is not OperationRole.LEAF or value in self._live_out:
                self._carry[value] = self._new_slot()
        return frozenset(carried)

    def _new_slot(self) -> int:
        slot = self._free_slot
        self._free_slot += 1
        module = self._scope.module
        module.carry_slots = max(module.carry_slots, self._free_slot)
        return slot

    def _components(self, stage: int, groups: list[list[int]], outputs: frozenset[int]) -> None:
        found = [
            outline(self._staging, stage, members, outputs, self._pieces) for members in groups
        ]
        outlined = [component for component in found if component is not None]
        work = sum(len(component.component.ops) for component in outlined)
        is_shared = self._scope.module.threads > 1 and len(outlined) > 1 and work >= _WORK_TO_SHARE
        lists = [CommandList()]
        for component in outlined:
            number = self._scope.module.components.number(component)
            if is_shared and lists[-1].work > work // _LISTS:
                lists.append(CommandList())
            cost = len(component.component.ops)
            lists[-1].add(CommandKind.COMPONENT, self._arguments(component), number, cost)
        if is_shared:
            self._commands.fork(lists)
        else:
            self._commands.append(lists[0])

    def _arguments(self, outlined: OutlinedComponent) -> list[int]:
        """A component's arguments here: groups, leaves, outputs, gaps of groups, scalars."""
        commands = self._commands
        places: list[AnyPlace] = [self._pointer(first) for first in outlined.groups]
        places += [self._input_pointer(value) for value in outlined.leaves]
        places += [self._carry_pointer(self._carry[value]) for value in outlined.outs]
        spread = outlined.component.spread_groups if self._pieces else ()
        gaps = [self._gap(outlined.groups[group]) for group in spread]
        arguments = [commands.pointer(place) for place in places]
        arguments += [commands.integer("i64", gap) for gap in gaps]
        return arguments + [commands.integer("i32", scalar.text) for scalar in outlined.scalars]

    # addresses

    def _check_bounds(self) -> None:
        """All of them before anything runs."""
        ops = [*self._staging.ops.values()]
        self._bounds.check(ops, more_follows=False)
        self._ranges = row_ranges(ops)
        stored = {op.address.window for op in self._staging.ops.values()
                  if op.address is not None and op.role is OperationRole.STORE}  # fmt: skip
        for window in sorted(stored & self._scope.in_place.keys()):
            self._emitter.do(f"call void @{SETTLE}(ptr %ctx, ptr {self._entry(window)})")

    def _wide(self, root: str) -> str:
        return self._emitter.value(f"sext i32 {root} to i64") if root else "0"

    def _pointer(self, address: RowAddress) -> Pointer | PiecePlace:
        window, root, row, _ = address
        base = self._bases.get((window, root))
        if base is None:
            base = self._bases[window, root] = self._base(address)
        name, first = base
        pieces = self._pieces.get(window)
        number = 0 if pieces is None else pieces.number(row - self._anchor(address))
        if number == 0:
            return Pointer(name, (first + row) * ROW_BYTES)
        return PiecePlace(name, self._gap(address), number, first + row)

    def _anchor(self, address: RowAddress) -> int:
        """The row that pieces are counted from: what starts the first one that is touched. Of a root that
        is far from the window every row is far, but not from this one."""
        pieces = self._pieces.get(address.window)
        if pieces is None:
            return 0
        low, _ = self._ranges[address.window, address.root]
        return pieces.number(low) * pieces.rows

    def _base(self, address: RowAddress) -> tuple[str, int]:
        """Where row 0 of a window's root lies, or its anchor: a pointer, and rows from there to row 0."""
        e = self._emitter
        start = self._scope.kernel.windows[address.window].base_row
        if not address.root and address.window not in self._scope.in_place:
            return "%vmem", start
        base = "%vmem"
        if address.root:
            base = e.offset(base, e.value(f"mul i64 {self._wide(address.root)}, {ROW_BYTES}"))
        anchor = self._anchor(address)
        if anchor:
            base = e.offset(base, anchor * ROW_BYTES)
        if address.window in self._scope.in_place:
            base = e.offset(base, self._distance(address))
        return base, start - anchor

    def _gap(self, address: RowAddress) -> str:
        """Bytes between the pieces of a window where this address finds them."""
        key = (address.window, address.root)
        if key not in self._gaps:
            self._pointer(address._replace(offset=0))
        return self._gaps[key]

    def _entry(self, window: int) -> str:
        return self._emitter.offset("%ctx", entry_offset(self._scope.in_place[window].entry))

    def _distance(self, address: RowAddress) -> str:
        """Bytes from VMEM to where all rows of this address and its neighbours lie."""
        e = self._emitter
        key = (address.window, address.root)
        low, high = self._ranges[key]
        pieces = self._pieces.get(address.window)
        low = low if pieces is None else self._anchor(address)
        first = e.value(f"add i64 {self._wide(address.root)}, {low}")
        arguments = f"ptr %ctx, ptr {self._entry(address.window)}, i64 {first}, i64 {high - low}"
        distance = e.value(f"call i64 @{RESOLVE}({arguments})")
        if pieces is None:
            return distance
        is_dense = e.value(f"icmp eq i64 {distance}, 0")
        self._gaps[key] = e.value(f"select i1 {is_dense}, i64 0, i64 {pieces.gap_bytes}")
        return distance

    def _direct_pointer(self, op: ValueOp) -> Callable[[], AnyPlace] | None:
        """How to find a value in memory without computing it: a leaf, or an unwritten window."""
        if op.role is OperationRole.LEAF:
            return lambda: self._leaf_pointer(op)
        address = op.address
        if address is None or not self._staging.is_free_load(op) or address.stride != 1:
            return None
        pieces = self._pieces.get(address.window)
        if pieces is not None and pieces.number(address.low) != pieces.number(address.high):
            return None
        return lambda: self._pointer(address)

    def _input_pointer(self, value: int) -> AnyPlace:
        """Where a component finds a leaf, or a value of an earlier stage."""
        op = self._staging.ops[value]
        return self._leaf_pointer(op) if op.role is OperationRole.LEAF else self._carry_of(value)

    def _carry_of(self, value: int) -> Pointer:
        return self._carry_pointer(self._carry[value])

    def operand_place(self, operand: Use) -> AnyPlace:
        """Where the vreg or mask a state operation reads lies."""
        if operand.value in self._carry:
            return self._carry_pointer(self._carry[operand.value])
        direct = self._direct_pointer(self._staging.ops[operand.value])
        assert direct is not None, "a state operand has neither a slot nor a place in memory"
        return direct()

    def result_place(self, op: ValueOp) -> Pointer:
        """Where a state operation writes its vreg; unused results go to a slot of their own."""
        if op.index not in self._carry:
            self._carry[op.index] = self._new_slot()
        return self._carry_pointer(self._carry[op.index])

    def _carry_pointer(self, slot: int) -> Pointer:
        return Pointer("%carry", slot * VREG_BYTES)

    def _leaf_pointer(self, op: ValueOp) -> AnyPlace:
        if op.carried >= 0:
            return self._carry_pointer(op.carried)
        return self._state.leaf_place(op)
