"""One block of bundles to native code.

Bundles are read in order: all reads of a bundle come before its writes, so physical registers and
the EUP and XLU queues are renamed to single definitions here. Scalar instructions become native
code at once; vector instructions are collected and emitted as segments.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from tpu_sim.isa.causes import Counts
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.facts import SREG, row_facts
from tpu_sim.isa.instruction import Crossing, Instr, Row, Slot
from tpu_sim.isa.program import NO_ROUTE, SMEM, SPILL_ROWS, Block, Bundle
from tpu_sim.isa.rows.memory import VLD, VST
from tpu_sim.isa.rows.valu import VCMP, VMOVI, VSEL
from tpu_sim.jit.bounds import Bounds
from tpu_sim.jit.clock import BlockClock
from tpu_sim.jit.dma_functions import note_smem_end
from tpu_sim.jit.scalar_code import ScalarCode, row_address
from tpu_sim.jit.scope import FaultKind, FunctionScope
from tpu_sim.jit.segment import Segment
from tpu_sim.jit.state_ops import emit_transfer
from tpu_sim.jit.values import (
    Address,
    Argument,
    Role,
    Scalar,
    Use,
    ValueOp,
    constant_scalar,
    use,
)

_CROSSING_ROLES = {
    Crossing.NONE: Role.POINT,
    Crossing.LANES: Role.ROW,
    Crossing.SUBLANES: Role.COLUMN,
}
_NONE = -1
"""Instead of a value: the register or slot holds none of this kind."""
_INDEXED = frozenset({"load_indexed", "store_indexed"})
_LEAF_EFFECTS = frozenset({"pop_mrf", "xpose_read"})
_FIRST = frozenset({"load", "load_indexed", "pop_mrf", "xpose_read", "fill", "fill_mask"})
_LAST = frozenset({"store", "store_masked", "store_indexed"})


_QUEUED = frozenset({"eup", "xlu"})
_NUMBER = ""
"""Instead of a register class: an operand that is itself meant."""
_NO_OPERATION = frozenset(
    {"pop_eup", "pop_xlu", "spill", "spill_mask", "fill", "fill_mask", "dma_wait", "dma_start"}
)
"""Vector instructions and transfers that name values or wait, and make none."""
_TIMED = frozenset({"pop_mrf", "matmul", "dma_wait"})


@dataclass(frozen=True, slots=True)
class _Plan:
    """A row as the translator reads it.

    `sources` are operands with their register classes. `phase` is the order within a bundle: what
    reads memories and queues sees them as they were before it. `role` is that of its operations;
    `is_timed`: the clock looks at it; `queue` holds what it pushes, the EUP's or XLU's.
    """

    sources: tuple[tuple[int, str], ...]
    result_class: str
    result_index: int
    phase: int
    is_scalar: bool
    is_operation: bool
    is_start: bool
    is_timed: bool
    role: Role
    queue: str


def _phase_of(planned: tuple[_Plan, Instr]) -> int:
    return planned[0].phase


@cache
def _plan(row: Row) -> _Plan:
    facts = row_facts(row)
    index = -1 if facts.write is None else facts.write.index
    classes = {operand.index: operand.register_class for operand in facts.reads}
    positions = [i for i in range(len(row.operands)) if i != index]
    is_scalar = row.slot is Slot.SCALAR
    return _Plan(
        sources=tuple((i, classes.get(i, _NUMBER)) for i in positions),
        result_class="" if facts.write is None else facts.write.register_class,
        result_index=index,
        phase=0 if row.effect in _FIRST else 2 if row.effect in _LAST else 1,
        is_scalar=is_scalar,
        is_operation=not is_scalar and row.effect not in _NO_OPERATION,
        is_start=row.effect == "dma_start",
        is_timed=row.effect in _TIMED,
        role=_role(row),
        queue=row.pushes if row.pushes in _QUEUED else "",
    )


def _role(row: Row) -> Role:
    match row.effect:
        case "":
            return _CROSSING_ROLES.get(row.crossing, Role.STATE)
        case "load":
            return Role.LOAD
        case "store" | "store_masked":
            return Role.STORE
    return Role.LEAF if row.effect in _LEAF_EFFECTS else Role.STATE


class BlockTranslator:
    """Translates one block.

    `occupancy` counts the results waiting in each MXU's queue, `issued` the bundles by cause.
    """

    def __init__(
        self,
        scope: FunctionScope,
        block: Block,
        issued: Counts,
        occupancy: dict[int, int],
        dma_function: Callable[[int], str],
    ) -> None:
        self._scope = scope
        self._emitter = scope.emitter
        self._block = block
        self._issued = issued
        self._occupancy = occupancy
        self._dma_function = dma_function
        self._scalars = ScalarCode(scope.emitter, self._read)
        self._bounds = Bounds(scope, dma_function)
        self._clock = BlockClock(scope)
        self._sregs: dict[int, Scalar] = {0: constant_scalar(0)}
        self._written: set[int] = set()
        self._values: dict[str, dict[int, int]] = {
            registers: {} for registers in ("v", "m", "spill", "spill_mask")
        }
        self._results: list[tuple[dict[int, int], int, int]] = []
        self._pushes: list[tuple[deque[int], int]] = []
        self._new_sregs: list[tuple[int, Scalar]] = []
        self._smem_stores: list[tuple[str, str]] = []
        self._queues: dict[str, deque[int]] = {"eup": deque(), "xlu": deque()}
        self._next = 0
        self._carry: dict[int, int] = {}
        self._start_segment()

    def _start_segment(self) -> None:
        self._ops: dict[int, ValueOp] = {}
        self._muls: dict[int, list[int]] = {}
        self._entry = dict(self._occupancy)
        self._pops: dict[int, int] = {}
        self._swaps: dict[int, list[int]] = {}
        self._has_indexed = False

    def translate(self) -> str:
        """Append the block's code; returns the time after it."""
        for number, bundle in enumerate(self._block.bundles):
            self._bundle(number, bundle)
        self._flush(frozenset())
        for number in sorted(self._written):
            self._scope.write_sreg(number, self._sregs[number].text)
        return self._clock.finish(self._issued)

    def _bundle(self, number: int, bundle: Bundle) -> None:
        """All reads come before all writes: what the bundle defines is known after it."""
        self._scope.place = f"{self._block.name or 'block'}, bundle {number}"
        if self._has_indexed and any(self._is_checked(instr) for instr in bundle):
            self._flush_pending()  # whether indexed accesses fault shows only when they run
        planned = [(_plan(instr.row), instr) for instr in bundle]
        timed = [instr for plan, instr in planned if plan.is_timed]
        if timed:
            self._clock.stall(timed, self._wait_flags(timed))
        transfers = [(i, self._operands(i, plan)[0]) for plan, i in planned if plan.is_start]
        if len(planned) > 1:
            planned.sort(key=_phase_of)
        has_values = self._scope.module.values
        for plan, instr in planned:
            if plan.is_scalar:
                self._scalar(instr)
            elif has_values and plan.is_operation:
                self._operation(number, instr, plan)
            elif has_values:
                self._rename(number, instr)
        self._commit()
        for instr, arguments in transfers:
            self._transfer(number, instr, arguments)
        self._clock.issue(timed)

    def _commit(self) -> None:
        """Make what the bundle defines visible."""
        for registers, register, value in self._results:
            if value == _NONE:
                registers.pop(register, None)
            else:
                registers[register] = value
        self._results.clear()
        for queue, value in self._pushes:
            queue.append(value)
        self._pushes.clear()
        for d, scalar in self._new_sregs:
            self._sregs[d] = scalar
            self._written.add(d)
        self._new_sregs.clear()
        for stored, pointer in self._smem_stores:
            self._emitter.store("i32", stored, pointer, 4)
        self._smem_stores.clear()

    def _error(self, message: str) -> ProgramError:
        return ProgramError(message, f"{self._scope.kernel.name}, {self._scope.place}")

    # scalar unit

    def _read(self, number: int) -> Scalar:
        scalar = self._sregs.get(number)
        if scalar is None:
            text = self._scope.read_sreg(number)
            scalar = self._sregs[number] = Scalar(text, text, 0)
        return scalar

    def _scalar(self, instr: Instr) -> None:
        """Emit a scalar instruction."""
        match instr.row.effect:
            case "scalar_load":
                d, a, k = instr.operands
                loaded = self._emitter.load("i32", self._smem_pointer(self._read(a), k), 4)
                self._new_sregs.append((d, Scalar(loaded, loaded, 0)))
            case "scalar_store":
                a, k, b = instr.operands
                pointer = self._smem_pointer(self._read(a), k)
                self._smem_stores.append((self._read(b).text, pointer))
                self._note_smem_end(self._read(a), k)
            case _:
                self._new_sregs.append((instr.operands[0], self._scalars.value(instr)))

    def _smem_pointer(self, base: Scalar, k: int) -> str:
        e = self._emitter
        words = self._scope.chip.smem_words
        if not base.root and 0 <= base.offset + k < words:
            return e.offset("%smem", 4 * (base.offset + k))
        wide = e.value(f"sext i32 {base.text} to i64")
        word = e.value(f"add i64 {wide}, {k}")
        self._check_pending()
        outside = e.value(f"icmp uge i64 {word}, {words}")
        self._scope.fault_if(outside, FaultKind.MEMORY, f"SMEM word outside 0..{words - 1}")
        return e.offset("%smem", e.value(f"shl i64 {word}, 2"))

    def _is_checked(self, instr: Instr) -> bool:
        """Whether a scalar instruction or a wait is checked where it stands."""
        match instr.row.effect:
            case "scalar_load":
                base, k, count = instr.operands[1], instr.operands[2], self._scope.chip.smem_words
            case "scalar_store":
                base, k, count = instr.operands[0], instr.operands[1], self._scope.chip.smem_words
            case "dma_wait":
                base, k, count = instr.operands[1], instr.operands[0], self._scope.kernel.flags
            case _:
                return False
        scalar = self._read(base)
        return bool(scalar.root) or not 0 <= scalar.offset + k < count

    def _check_pending(self) -> None:
        """Let what comes before fault before what is checked next."""
        self._bounds.check([*self._ops.values()], more_follows=True)

    def _note_smem_end(self, base: Scalar, k: int) -> None:
        """A store that may be behind the words that the program owns is taken note of."""
        owned = self._scope.module.smem_words
        if base.root:
            wide = self._emitter.value(f"sext i32 {base.text} to i64")
            note_smem_end(self._emitter, self._emitter.value(f"add i64 {wide}, {k + 1}"))
        elif base.offset + k >= owned:
            note_smem_end(self._emitter, str(base.offset + k + 1))

    # transfers

    def _flag(self, flag: int, base: Scalar) -> str:
        """The number of a sync flag as i64, checked against what the kernel owns."""
        e = self._emitter
        count = self._scope.kernel.flags
        if not base.root and 0 <= base.offset + flag < count:
            return str(base.offset + flag)
        wide = e.value(f"sext i32 {base.text} to i64")
        number = e.value(f"add i64 {wide}, {flag}")
        self._check_pending()
        outside = e.value(f"icmp uge i64 {number}, {count}")
        self._scope.fault_if(outside, FaultKind.FLAG, f"sync flag outside 0..{count - 1}")
        return number

    def _wait_flags(self, bundle: Sequence[Instr]) -> dict[int, str]:
        """By position the flags of waits."""
        return {
            position: self._flag(instr.operands[0], self._read(instr.operands[1]))
            for position, instr in enumerate(bundle)
            if instr.row.effect == "dma_wait"
        }

    def _transfer(self, number: int, instr: Instr, arguments: tuple[Argument, ...]) -> None:
        descriptor = self._scope.kernel.descriptors[instr.operands[0]]
        scalars = [a for a in arguments if isinstance(a, Scalar)]  # src, dst, f, c0, c1
        if self._has_indexed:
            self._flush_pending()
        flag = self._flag(instr.operands[3], scalars[2])
        if self._scope.module.values:
            op = ValueOp(self._next, Role.STATE, instr.row, arguments, bundle=number)
            self._next += 1
            is_exchange = descriptor.route != NO_ROUTE
            if is_exchange or SMEM in (descriptor.src_space, descriptor.dst_space):
                # scalar code reads SMEM in order, so nothing before may still be pending; what goes
                # to another core is there before its flag is raised
                self._flush_pending()
                emit_transfer(self._scope, op, self._dma_function)
            else:
                self._ops[op.index] = op
        self._clock.transfer(descriptor, flag, (scalars[3].text, scalars[4].text))

    # vector unit

    def _operands(self, instr: Instr, plan: _Plan) -> tuple[tuple[Argument, ...], tuple[int, ...]]:
        """Operands with registers resolved, but for the destination; and the values among them."""
        arguments: list[Argument] = []
        uses: list[int] = []
        operands = instr.operands
        for index, register_class in plan.sources:
            operand = operands[index]
            if register_class == _NUMBER:
                arguments.append(operand)
            elif register_class == SREG:
                arguments.append(self._read(operand))
            else:
                value = self._value(register_class, operand)
                arguments.append(use(value))
                uses.append(value)
        return tuple(arguments), tuple(uses)

    def _value(self, register_class: str, number: int) -> int:
        value = self._values[register_class].get(number)
        if value is None:
            name = f"{register_class}{number}"
            raise self._error(f"{name} is read before anything in its block defines it")
        return value

    def _rename(self, number: int, instr: Instr) -> None:
        """Follow a value from a queue or register to another, or to or from a spill slot."""
        row = instr.row
        match row.effect:
            case "pop_eup" | "pop_xlu":
                queue = self._queues[row.pops]
                if not queue:
                    raise self._error(f"{row.name}: the queue is empty")
                self._results.append((self._values["v"], instr.operands[0], queue.popleft()))
            case "spill" | "spill_mask":
                spilled = self._value("m" if row.effect == "spill_mask" else "v", instr.operands[1])
                self._results.append((self._values[row.effect], instr.operands[0], spilled))
                other = "spill" if row.effect == "spill_mask" else "spill_mask"
                self._results.append((self._values[other], instr.operands[0], _NONE))
                if instr.operands[0] in self._scope.carried_slots:
                    self._keep(number, instr.operands[0], spilled, row.effect == "spill_mask")
            case "fill" | "fill_mask":
                self._fill(number, instr)

    def _fill(self, number: int, instr: Instr) -> None:
        is_mask = instr.row.effect == "fill_mask"
        d, slot = instr.operands
        value = self._values["spill_mask" if is_mask else "spill"].get(slot)
        other = self._values["spill" if is_mask else "spill_mask"].get(slot)
        if value is None:
            if other is None:
                other = self._add(number, VLD, (), self._slot_address(slot))
                value = self._as_mask(number, other) if is_mask else other
            else:
                convert = self._as_mask if is_mask else self._as_words
                value = convert(number, other)
        self._results.append((self._values["m" if is_mask else "v"], d, value))

    # spill slots between blocks: masks lie there as words 0 and 1

    def _slot_address(self, slot: int) -> Address:
        return Address(len(self._scope.kernel.windows) - 1, "", slot * SPILL_ROWS, 1)

    def _keep(self, number: int, slot: int, value: int, is_mask: bool) -> None:
        """Write a value to a slot's memory."""
        if is_mask:
            value = self._as_words(number, value)
        self._add(number, VST, (Use(value),), self._slot_address(slot))

    def _as_words(self, number: int, mask: int) -> int:
        one, zero = (self._add(number, VMOVI, (k,)) for k in (1, 0))
        return self._add(number, VSEL, (Use(mask), Use(one), Use(zero)))

    def _as_mask(self, number: int, words: int) -> int:
        zero = self._add(number, VMOVI, (0,))
        return self._add(number, VCMP["ne", "s32"], (Use(words), Use(zero)), is_mask=True)

    def _add(
        self,
        number: int,
        row: Row,
        arguments: tuple[Argument, ...],
        address: Address | None = None,
        is_mask: bool = False,
    ) -> int:
        """An operation that no instruction stands for, in bundle `number`."""
        index = self._next
        self._next += 1
        uses = tuple(a.value for a in arguments if isinstance(a, Use))
        self._ops[index] = ValueOp(
            index, _plan(row).role, row, arguments, is_mask, address, number, uses
        )
        return index

    def _operation(self, number: int, instr: Instr, plan: _Plan) -> None:
        """Record a vector instruction that makes something."""
        row, role = instr.row, plan.role
        arguments, uses = self._operands(instr, plan)
        address: Address | None = None
        if role is Role.LOAD or role is Role.STORE:
            address = row_address(arguments)
            arguments = arguments[4:]
        is_mask = plan.result_class == "m"
        index = self._next
        self._next += 1
        op = ValueOp(index, role, row, arguments, is_mask, address, number, uses)
        if row.effect:
            self._has_indexed |= row.effect in _INDEXED
            self._place_in_queues(op)
        self._ops[index] = op
        if plan.queue:
            self._pushes.append((self._queues[plan.queue], index))
        elif plan.result_class:
            register = instr.operands[plan.result_index]
            self._results.append((self._values[plan.result_class], register, index))

    def _place_in_queues(self, op: ValueOp) -> None:
        """Number queue accesses, and tie each pop to what pushed its entry in this segment."""
        assert op.row is not None
        unit = op.arguments[0] if op.arguments and isinstance(op.arguments[0], int) else 0
        match op.row.effect:
            case "matmul":
                pushed = self._muls.setdefault(unit, [])
                op.queue_number = len(pushed)
                pushed.append(op.index)
                self._occupancy[unit] = self._occupancy.get(unit, 0) + 2
                if self._occupancy[unit] > self._scope.chip.mrf_entries:
                    raise self._error(
                        f"MXU {unit} has more than {self._scope.chip.mrf_entries} results"
                    )
            case "pop_mrf":
                op.queue_number = self._pops.get(unit, 0)
                self._pops[unit] = op.queue_number + 1
                if self._occupancy.get(unit, 0) <= 0:
                    raise self._error(f"vpop.mrf: MXU {unit} has no result")
                self._occupancy[unit] -= 1
                own = op.queue_number - self._entry.get(unit, 0)
                if own >= 0:
                    op.producer = self._muls[unit][own // 2]
            case "xpose_swap" | "xpose_swap16":
                self._swaps.setdefault(unit, []).append(op.index)
            case "xpose_read":
                swaps = self._swaps.get(unit, [])
                op.queue_number = len(swaps)
                op.producer = swaps[-1] if swaps else -1

    # segments

    def _flush_pending(self) -> None:
        """End the segment, keeping the values that registers and queues still hold."""
        if not self._ops:
            return
        live = [v for registers in self._values.values() for v in registers.values()]
        live += [v for queue in self._queues.values() for v in queue]
        masks = {value: self._ops[value].is_mask for value in live}
        self._flush(frozenset(live))
        renamed: dict[int, int] = {}
        for value, is_mask in masks.items():
            slot = self._carry[value]
            leaf = ValueOp(self._next, Role.LEAF, None, (), is_mask, carried=slot)
            self._next += 1
            renamed[value] = leaf.index
            self._ops[leaf.index] = leaf
        self._carry = {}
        for registers in self._values.values():
            registers.update({register: renamed[v] for register, v in registers.items()})
        for name, queue in self._queues.items():
            self._queues[name] = deque(renamed[v] for v in queue)

    def _flush(self, live: frozenset[int]) -> None:
        if self._ops:
            self._scope.place = self._block.name or "block"
            Segment(
                self._scope, self._ops, self._carry, live, self._entry, self._dma_function,
                self._bounds,
            ).emit()  # fmt: skip
        self._start_segment()
