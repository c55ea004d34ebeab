"""`LloBuilder`: emits one kernel's operations, numbering values as it goes.

A pure operation already emitted with the same operands is not emitted again: vector operations
within their block, loads until something may have written their window, scalar operations within
their block or, when they can move out of it, within the loops that enclose them: a scalar operation
is placed in the outermost loop that has its operands, so loop-invariant address arithmetic costs
nothing inside.

    b = LloBuilder("double", chip)
    x = b.window("x", 64)
    with b.loop(8) as i:
        row = b.smuli(i, 8)
        b.emit("vst", x, row, 0, 1, b.emit("vmuli.f32", b.emit("vld", x, row, 0, 1), f32_bits(2.0)))
    kernel = b.finish()
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from compiler.llo.ir import LloBlock, LloKernel, LloNode, LloWindow, MReg, SReg, VReg
from compiler.llo.row_plan import Action, RowPlan, row_plan
from compiler.llo.scalar_builder import ScalarBuilder
from compiler.llo.walk import rewrite
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop, While, bodies
from tpu_sim.isa.instruction import Instr, Row
from tpu_sim.isa.program import SMEM, DmaDescriptor


def f32_bits(value: float) -> int:
    """The bit pattern of an f32 as a signed 32-bit immediate.

    >>> hex(f32_bits(1.0))
    '0x3f800000'
    """
    return int(struct.unpack("<i", struct.pack("<f", value))[0])


@dataclass(slots=True)
class _Scope:
    """An open list of nodes, its open block, and the scalar values numbered in it."""

    nodes: list[LloNode]
    block: LloBlock
    scalars: dict[tuple[object, ...], SReg] = field(default_factory=dict)


class WhileScope:
    """Handle of an open `LloBuilder.while_`: `condition` ends the test part."""

    def __init__(self, builder: LloBuilder, node: While[LloBlock]) -> None:
        self._builder = builder
        self._node = node
        self.tested = False

    def condition(self, sreg: SReg) -> None:
        """Leave the loop when `sreg` is 0; what follows is the body."""
        self._node.condition = sreg
        self._builder.end_test(self._node)
        self.tested = True


class LloBuilder(ScalarBuilder):
    """Builds one `LloKernel`. `source` names the HLO instruction that operations come from.

    `calls` says that kernels are called from this code (main): then nothing is kept in a register
    across blocks unless the caller does so.
    """

    def __init__(self, name: str, chip: Chip, calls: bool = False) -> None:
        """Start kernel `name`; `chip` is kept for emitters that ask for its sizes."""
        super().__init__()
        self.name = name
        self.chip = chip
        self.source = ""
        self.arg_count = 0
        self.flops = 0
        self.cores = 1
        self.note = ""
        self.remarks: list[str] = []
        self._calls = calls
        self._windows: list[LloWindow] = []
        self._touched: dict[tuple[int, int], None] = {}
        self._descriptors: list[DmaDescriptor] = []
        self._descriptor_ids: dict[DmaDescriptor, int] = {}
        self._flags = 0
        self._vregs = 0
        self._masks = 0
        self._sregs = 1
        self._depth_of: list[int] = [0]
        self._versions: dict[SReg, int] = {}
        self.assignments = 0
        self._values: dict[tuple[object, ...], int] = {}
        self._loads: dict[int, dict[tuple[object, ...], int]] = {}
        self._scopes: list[_Scope] = []
        self._open_scope([])

    # tables of the kernel

    def window(self, name: str, rows: int) -> int:
        """A new window of `rows` VMEM rows; returns its id."""
        self._windows.append(LloWindow(name, rows))
        return len(self._windows) - 1

    def window_at(self, place: int, name: str, rows: int) -> int:
        """The window of `rows` VMEM rows at row `place`, the same for all who ask for that place."""
        for number, window in enumerate(self._windows):
            if window.place == place:
                return number
        self._windows.append(LloWindow(name, rows, place))
        return len(self._windows) - 1

    def window_rows(self, window: int) -> int:
        """Rows of a window."""
        return self._windows[window].rows

    def needs_rows(self, window: int, first: int, count: int) -> None:
        """Give `count` rows of a window a value before anything else: loads touch them in vain."""
        for row in range(first, first + count, 8):
            self._touched[window, row] = None

    def descriptor(self, descriptor: DmaDescriptor) -> int:
        """The id of a DMA descriptor, the same for equal ones."""
        found = self._descriptor_ids.setdefault(descriptor, len(self._descriptors))
        if found == len(self._descriptors):
            self._descriptors.append(descriptor)
        return found

    def flag(self, n: int = 1) -> int:
        """The first of `n` new consecutive sync flags."""
        self._flags += n
        return self._flags - n

    # operations

    @property
    def block(self) -> LloBlock:
        """The block that operations are appended to; vregs of others cannot be read."""
        return self._scopes[-1].block

    def emit(self, row: Row | str, *operands: int) -> int:
        """Append `row` with its operands except the destination; returns the destination.

        For a row that pushes the EUP or XLU queue the pop is appended too and its vreg returned.
        Rows without a result return -1.
        """
        plan = row_plan(row if type(row) is str else row.name)  # type: ignore[union-attr]
        if len(operands) != plan.operand_count:
            raise TypeError(f"{plan.name}: {len(operands)} operands, want {plan.operand_count}")
        if plan.is_lanes_only:
            key: tuple[object, ...] = (plan.name, operands)
            found = self._values.get(key)
            if found is None:
                ops = self._scopes[-1].block.ops
                found = self._values[key] = self._append(ops, plan, operands)
            return found
        action = plan.action
        if action is Action.SCALAR:
            return self._emit_scalar(plan, operands)
        if plan.window >= 0 and plan.base >= 0:
            operands = self._fold_address(plan, operands)
        if action is Action.EFFECT:
            return self._emit_effect(plan, operands)
        if plan.scalar_operands and self._versions:
            key = (plan.name, operands, self._versions_of(plan, operands))
        else:
            key = (plan.name, operands)
        table = self._values
        if action is Action.LOAD:
            where = operands[plan.window] if plan.window >= 0 else -SMEM
            table = self._loads.setdefault(where, {})
        found = table.get(key)
        if found is None:
            found = table[key] = self._append(self._scopes[-1].block.ops, plan, operands)
        return found

    @contextmanager
    def coming_from(self, source: str) -> Iterator[None]:
        """What is emitted inside comes from another HLO instruction."""
        outer, self.source = self.source, source
        yield
        self.source = outer

    def _append(self, ops: list[Instr], plan: RowPlan, operands: tuple[int, ...]) -> int:
        result = -1
        if plan.pop is not None:
            ops.append(Instr(plan.row, operands, self.source))
            plan, operands = plan.pop, ()
        if plan.result == "v":
            result = self._vregs
            self._vregs = result + 1
        elif plan.result == "m":
            result = self._masks
            self._masks = result + 1
        elif plan.result == "s":
            result = self.new_sreg()
        ops.append(Instr(plan.row, (result, *operands) if plan.result else operands, self.source))
        return result

    def _versions_of(self, plan: RowPlan, operands: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([self._versions.get(operands[i], 0) for i in plan.scalar_operands])

    def _emit_effect(self, plan: RowPlan, operands: tuple[int, ...]) -> int:
        result = self._append(self._scopes[-1].block.ops, plan, operands)
        if plan.window >= 0:
            self._loads.pop(operands[plan.window], None)
        elif plan.writes_smem:
            self._loads.pop(-SMEM, None)
        elif plan.is_dma:
            self._loads.clear()
        return result

    def _emit_scalar(self, plan: RowPlan, operands: tuple[int, ...]) -> SReg:
        read = plan.scalar_operands
        mutable = False
        if self._versions:
            for i in read:
                if operands[i] in self._versions:
                    mutable = True
        if mutable or self._calls:
            key: tuple[object, ...] = (plan.name, operands, self._versions_of(plan, operands))
            found = self._values.get(key)
            if found is None:
                found = self._values[key] = self._append(self._scopes[-1].block.ops, plan, operands)
            return found
        key = (plan.name, operands)
        depths = self._depth_of
        depth = -1
        for i in read:
            if depths[operands[i]] > depth:
                depth = depths[operands[i]]
        if depth < 0:  # a constant: reuse an enclosing one, else put it here
            for scope in self._scopes:
                if key in scope.scalars:
                    return scope.scalars[key]
            depth = len(self._scopes) - 1
        # not numbered across blocks where it stands: that would keep a sreg busy between them
        is_here = depth == len(self._scopes) - 1 and bool(read)
        scope = self._scopes[depth]
        table = self._values if is_here else scope.scalars
        found = table.get(key)
        if found is None:
            found = table[key] = self._append(scope.block.ops, plan, operands)
            depths[found] = depth
        return found

    def _fold_address(self, plan: RowPlan, operands: tuple[int, ...]) -> tuple[int, ...]:
        """Move a constant part of the base sreg into the immediate."""
        base, offset = self.affine(operands[plan.base])
        if offset == 0 or plan.offset < 0:
            return operands
        changed = list(operands)
        changed[plan.base] = base
        changed[plan.offset] += offset
        return tuple(changed)

    # scalars that are not operations

    def new_sreg(self) -> SReg:
        """A fresh sreg, available in the current scope."""
        self._depth_of.append(len(self._scopes) - 1)
        self._sregs += 1
        return self._sregs - 1

    def argument(self, index: int) -> SReg:
        """The kernel argument in SMEM word `index`; read once, at the kernel's start."""
        self.arg_count = max(self.arg_count, index + 1)
        if self._calls:
            return self.emit("sld", 0, index)
        key = ("argument", index)
        outer = self._scopes[0]
        if key not in outer.scalars:
            register = self._append(outer.block.ops, row_plan("sld"), (0, index))
            self._depth_of[register] = 0
            outer.scalars[key] = register
        return outer.scalars[key]

    def variable(self, *, constant: int | None = None, sreg: SReg | None = None) -> SReg:
        """A sreg that `assign` may change; starts as a constant (0 if not given) or as `sreg`."""
        register = self.new_sreg()
        self._versions[register] = 0
        if sreg is None:
            self._write("smovi", register, constant or 0)
        else:
            self._write("smov", register, sreg)
        return register

    def assign(self, variable: SReg, value: SReg) -> None:
        """Set a variable to the value of a sreg."""
        known = self.constant(value)
        if known is None:
            self._write("smov", variable, value)
        else:
            self._write("smovi", variable, known)

    def assign_add(self, variable: SReg, amount: int) -> None:
        """Add a constant to a variable."""
        self._write("saddi.s32", variable, variable, amount)

    def _write(self, row: str, variable: SReg, *operands: int) -> None:
        if variable not in self._versions:
            raise ValueError(f"s{variable} is not a variable")
        self._versions[variable] += 1
        self.assignments += 1
        instr = Instr(row_plan(row).row, (variable, *operands), self.source)
        self._scopes[-1].block.ops.append(instr)

    def is_variable(self, sreg: SReg) -> bool:
        """Whether `sreg` may be assigned to."""
        return sreg in self._versions

    # control flow

    def new_block(self, name: str = "") -> LloBlock:
        """Start a new block; vregs and vmasks of the one before are gone."""
        scope = self._scopes[-1]
        scope.block = LloBlock(name=name)
        scope.nodes.append(scope.block)
        self._forget()
        return scope.block

    def _forget(self) -> None:
        self._values.clear()
        self._loads.clear()

    def _open_scope(self, nodes: list[LloNode]) -> None:
        block = LloBlock()
        nodes.append(block)
        self._scopes.append(_Scope(nodes, block))
        self._forget()

    def _close_scope(self) -> None:
        self._scopes.pop()
        self.new_block()

    @contextmanager
    def loop(self, trip: int, name: str = "", parallel: bool = False) -> Iterator[SReg]:
        """A loop of `trip` iterations; yields the sreg that counts 0 .. trip-1.

        One iteration is no loop, and none is no code at all.
        """
        if trip == 1:
            self.new_block(name)
            yield 0
            self.new_block()
            return
        body: list[LloNode] = []
        if trip > 0:
            self._scopes[-1].nodes.append(Loop(trip, -1, body, -1, parallel, name))
        with self._loop_body(body, self._scopes[-1].nodes[-1]) as index:
            yield index

    @contextmanager
    def loop_dynamic(self, trip: SReg, name: str = "", parallel: bool = False) -> Iterator[SReg]:
        """A loop whose trip count is in sreg `trip` (none below 1)."""
        known = self.constant(trip)
        if known is not None:
            with self.loop(max(known, 0), name, parallel) as index:
                yield index
            return
        body: list[LloNode] = []
        self._scopes[-1].nodes.append(Loop(-1, -1, body, trip, parallel, name))
        with self._loop_body(body, self._scopes[-1].nodes[-1]) as index:
            yield index

    @contextmanager
    def _loop_body(self, body: list[LloNode], node: LloNode) -> Iterator[SReg]:
        self._open_scope(body)
        index = self.new_sreg()
        if isinstance(node, Loop) and node.body is body:
            node.index = index
        yield index
        self._close_scope()

    @contextmanager
    def if_(self, condition: SReg) -> Iterator[None]:
        """What follows runs if `condition` is not 0."""
        node: If[LloBlock] = If(condition, [])
        self._scopes[-1].nodes.append(node)
        self._open_scope(node.then)
        yield
        self._close_scope()

    @contextmanager
    def else_(self) -> Iterator[None]:
        """The other branch of the `if_` that has just ended."""
        scope = self._scopes[-1]
        node = scope.nodes[-2] if len(scope.nodes) > 1 else None
        if not isinstance(node, If) or scope.block.ops:
            raise ValueError("else_ must follow if_ at once")
        scope.nodes.pop()
        before = scope.nodes[-2]  # where invariant scalars of the branch go
        assert isinstance(before, LloBlock)
        scope.block = before
        self._open_scope(node.orelse)
        yield
        self._close_scope()

    @contextmanager
    def while_(self, name: str = "", expected_trips: int = -1) -> Iterator[WhileScope]:
        """A while loop: emit the test, call `condition` of the yielded handle, emit the body."""
        node: While[LloBlock] = While([], 0, [], name, expected_trips)
        self._scopes[-1].nodes.append(node)
        self._open_scope(node.test)
        handle = WhileScope(self, node)
        yield handle
        if not handle.tested:
            raise ValueError("while_ without a condition")
        self._close_scope()

    def end_test(self, node: While[LloBlock]) -> None:
        """Close the test part of `node` and open its body; called by `WhileScope.condition`."""
        self._scopes.pop()
        self._open_scope(node.body)

    def call(self, kernel: str, site: str = "") -> None:
        """Call a kernel; only in main, whose builder has `calls` set."""
        if not self._calls:
            raise ValueError("calls are for main: LloBuilder(..., calls=True)")
        self._scopes[-1].nodes.append(Call(kernel, site))
        self.new_block()

    def finish(self) -> LloKernel:
        """The kernel, without empty blocks."""
        assert len(self._scopes) == 1, "a loop or branch is still open"
        self._clear_touched()
        return LloKernel(
            name=self.name,
            arg_count=self.arg_count,
            windows=list(self._windows),
            descriptors=list(self._descriptors),
            body=rewrite(self._scopes[0].nodes, _unless_empty),
            flags=self._flags,
            variables=set(self._versions),
            cores=self.cores,
            flops=self.flops,
            note=self.note,
            remarks=tuple(self.remarks),
        )

    def _clear_touched(self) -> None:
        """The stores that `needs_rows` asked for, in front of the first block."""
        if not self._touched:
            return
        self.source = ""
        ops: list[Instr] = []
        zero = self._append(ops, row_plan("vmovi"), (0,))
        for window, row in self._touched:
            self._append(ops, row_plan("vst"), (window, 0, row, 1, zero))
        first = self._scopes[0].nodes[0]
        assert isinstance(first, LloBlock)
        first.ops[:0] = ops


def _unless_empty(node: LloNode) -> list[LloNode]:
    """The node, or nothing for one that does nothing; a while loop's test may never end."""
    match node:
        case LloBlock():
            is_empty = not node.ops
        case Loop() | If():
            held: tuple[list[LloNode], ...] = bodies(node)
            is_empty = not any(held)
        case _:
            is_empty = False
    return [] if is_empty else [node]


__all__ = ["LloBuilder", "MReg", "SReg", "VReg", "WhileScope", "f32_bits"]
