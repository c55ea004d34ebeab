"""One block of bundles to native code.

Bundles are read in order: all reads of a bundle come before its writes, so physical registers and
the EUP and XLU queues are renamed to single definitions here. Scalar instructions become native
code at once; vector instructions are collected and emitted as segments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from tpu_sim.isa.causes import Counts
from tpu_sim.isa.errors import ProgramError
from tpu_sim.isa.geometry import VREG_BYTES
from tpu_sim.isa.instruction import SREG, VMASK, Instr, Row
from tpu_sim.isa.program import NO_ROUTE, SMEM, Block, Bundle
from tpu_sim.isa.resources import FLAG, LANE_QUEUES, MRF, TRANSPOSED
from tpu_sim.isa.rows.misc import DMA_START
from tpu_sim.jit.bounds import Bounds
from tpu_sim.jit.clock import BlockClock
from tpu_sim.jit.renaming import Renaming
from tpu_sim.jit.roles import is_timed, phase_of, role_of
from tpu_sim.jit.scalar_code import RowAccesses, ScalarCode
from tpu_sim.jit.scope import FunctionScope
from tpu_sim.jit.segment import Segment
from tpu_sim.jit.smem_code import SmemCode
from tpu_sim.jit.state_ops import emit_transfer
from tpu_sim.jit.translated import FaultKind
from tpu_sim.jit.values import (
    OPERATIONS,
    Argument,
    OperationRole,
    RowAddress,
    Scalar,
    Use,
    ValueOp,
    constant_scalar,
    use,
)

_ROW_ACCESSES = RowAccesses()


def _row_access(row: Row, arguments: tuple[Argument, ...]) -> tuple[RowAddress, tuple[Use, ...]]:
    """The address of a load or store, and the values that it stores."""
    return cast(tuple[RowAddress, tuple[Use, ...]], row.does(_ROW_ACCESSES, *arguments))


def _phase(instr: Instr) -> int:
    return phase_of(instr.row)


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
        self._smem = SmemCode(scope, self._check_pending)
        self._names = Renaming(scope, self._add, self._error)
        self._new_sregs: list[tuple[int, Scalar]] = []
        self._words: list[tuple[int, int]] = []
        self._has_values = scope.module.values
        self._number = 0
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
            if bundle:
                self._number = number
                self._bundle(bundle)
            else:
                self._clock.issue(bundle)
        self._flush(frozenset())
        for number in sorted(self._written):
            self._scope.write_sreg(number, self._sregs[number].text)
        return self._clock.finish(self._issued)

    def _bundle(self, bundle: Bundle) -> None:
        """All reads come before all writes: what the bundle defines is known after it."""
        self._scope.place = f"{self._block.name or 'block'}, bundle {self._number}"
        if self._has_indexed and any(self._is_checked(instr) for instr in bundle):
            self._flush_pending()  # whether indexed accesses fault shows only when they run
        timed = [instr for instr in bundle if is_timed(instr.row)]
        if timed:
            self._clock.stall(timed, self._wait_flags(timed))
        transfers = [(i.row, self._operands(i)[0]) for i in bundle if i.row.is_transfer]
        for instr in sorted(bundle, key=_phase) if len(bundle) > 1 else bundle:
            role = role_of(instr.row)
            if role is OperationRole.SCALAR:
                self._scalar(instr)
            elif role is OperationRole.WORD:
                self._word(instr)
            elif not self._has_values:
                continue
            elif role is OperationRole.RENAME:
                self._rename(instr)
            elif role in OPERATIONS:
                self._operation(instr, role)
        self._commit()
        if self._words:
            self._read_words()
        for row, arguments in transfers:
            row.does(self, *arguments)
        self._clock.issue(timed)

    def _commit(self) -> None:
        """Make what the bundle defines visible."""
        self._names.commit()
        for d, scalar in self._new_sregs:
            self._sregs[d] = scalar
            self._written.add(d)
        self._new_sregs.clear()
        self._smem.commit()

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
        row = instr.row
        if row.is_state:
            result = row.does(self._smem, *self._operands(instr)[0])
        else:
            result = self._scalars.value(instr)
        if isinstance(result, Scalar):
            self._new_sregs.append((instr.operands[0], result))

    def _is_checked(self, instr: Instr) -> bool:
        """Whether a scalar instruction or a wait is checked where it stands."""
        row = instr.row
        if FLAG in row.uses:
            at, count = row.flag_index, self._scope.kernel.flags
            base, k = instr.operands[at + 1], instr.operands[at]
        elif role_of(row) is OperationRole.SCALAR and row.is_state:
            at, count = row.offset_index, self._scope.chip.smem_words
            base, k = instr.operands[at - 1], instr.operands[at]
        else:
            return False
        scalar = self._read(base)
        return bool(scalar.root) or not 0 <= scalar.offset + k < count

    def _check_pending(self) -> None:
        """Let what comes before fault before what is checked next."""
        self._bounds.check([*self._ops.values()], more_follows=True)

    # from the vector unit to the scalar unit

    def _word(self, instr: Instr) -> None:
        """Note which value's word an sreg gets; without values it is 0."""
        if self._has_values:
            value = cast(int, instr.row.does(self, *self._operands(instr)[0]))
            self._words.append((instr.operands[0], value))
        else:
            self._new_sregs.append((instr.operands[0], constant_scalar(0)))

    def first_word(self, a: Use) -> int:
        """See `tpu_sim.isa.effects.CorePrimitives`: the value that has the word."""
        return a.value

    def _read_words(self) -> None:
        """Scalar code is emitted at once, so what makes the words may no longer be pending."""
        places = self._flush_pending(frozenset(value for _, value in self._words))
        for d, value in self._words:
            pointer = self._emitter.offset("%carry", places[value] * VREG_BYTES)
            loaded = self._emitter.load("i32", pointer, 4)
            self._sregs[d] = Scalar(loaded, loaded, 0)
            self._written.add(d)
        self._words.clear()

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
            position: self._flag(instr.operands[at], self._read(instr.operands[at + 1]))
            for position, instr in enumerate(bundle)
            if FLAG in instr.row.uses and (at := instr.row.flag_index) >= 0
        }

    def start(
        self, number: int, src: Scalar, dst: Scalar, flag: int, f: Scalar, c0: Scalar, c1: Scalar
    ) -> None:
        """See `tpu_sim.isa.effects.CorePrimitives`: a transfer becomes a plain ``dma.start``."""
        descriptor = self._scope.kernel.descriptors[number]
        if self._has_indexed:
            self._flush_pending()
        flag_text = self._flag(flag, f)
        if self._has_values:
            arguments = (number, src, dst, flag, f, c0, c1)
            op = ValueOp(self._next, OperationRole.STATE, DMA_START, arguments, bundle=self._number)
            self._next += 1
            is_exchange = descriptor.route != NO_ROUTE
            if is_exchange or SMEM in (descriptor.src_space, descriptor.dst_space):
                # scalar code reads SMEM in order, so nothing before may still be pending; what goes
                # to another core is there before its flag is raised
                self._flush_pending()
                emit_transfer(self._scope, op, self._dma_function)
            else:
                self._ops[op.index] = op
        self._clock.transfer(descriptor, flag_text, (c0.text, c1.text))

    # vector unit

    def _operands(self, instr: Instr) -> tuple[tuple[Argument, ...], tuple[int, ...]]:
        """Operands with registers resolved, but for the destination; and the values among them."""
        arguments: list[Argument] = []
        uses: list[int] = []
        operands = instr.operands
        for index, register_class in instr.row.sources:
            operand = operands[index]
            if not register_class:
                arguments.append(operand)
            elif register_class == SREG:
                arguments.append(self._read(operand))
            else:
                value = self._names.value(register_class, operand)
                arguments.append(use(value))
                uses.append(value)
        return tuple(arguments), tuple(uses)

    def _rename(self, instr: Instr) -> None:
        """Follow a value from a queue or register to another, or to or from a spill slot."""
        row = instr.row
        value = row.does(self._names, *self._operands(instr)[0])
        if row.write is not None:
            assert isinstance(value, int)
            self._names.define(row.write.register_class, instr.operands[0], value)

    def _add(
        self,
        row: Row,
        arguments: tuple[Argument, ...],
        address: RowAddress | None,
        is_mask: bool,
    ) -> int:
        """An operation that no instruction stands for."""
        index = self._next
        self._next += 1
        uses = tuple(a.value for a in arguments if isinstance(a, Use))
        self._ops[index] = ValueOp(
            index, role_of(row), row, arguments, is_mask, address, self._number, uses
        )
        return index

    def _operation(self, instr: Instr, role: OperationRole) -> None:
        """Record a vector instruction that makes something."""
        row = instr.row
        arguments, uses = self._operands(instr)
        address: RowAddress | None = None
        if role is OperationRole.LOAD or role is OperationRole.STORE:
            address, stored = _row_access(row, arguments)
            arguments, uses = stored, tuple([value.value for value in stored])
        result = "" if row.write is None else row.write.register_class
        index = self._next
        self._next += 1
        op = ValueOp(index, role, row, arguments, result == VMASK, address, self._number, uses)
        if row.is_state:
            self._has_indexed |= row.is_indexed
            self._place_in_queues(op)
        self._ops[index] = op
        if result:
            self._names.define(result, instr.operands[0], index)
        elif row.pushes in LANE_QUEUES:
            self._names.push(row.pushes, index)

    def _place_in_queues(self, op: ValueOp) -> None:
        """Number queue accesses, and tie each pop to what pushed its entry in this segment."""
        assert op.row is not None
        unit = op.arguments[0] if op.arguments and isinstance(op.arguments[0], int) else 0
        row = op.row
        if row.pushes == MRF:
            pushed = self._muls.setdefault(unit, [])
            op.queue_number = len(pushed)
            pushed.append(op.index)
            self._occupancy[unit] = self._occupancy.get(unit, 0) + 2
            if self._occupancy[unit] > self._scope.chip.mrf_entries:
                raise self._error(
                    f"MXU {unit} has more than {self._scope.chip.mrf_entries} results"
                )
        elif row.pops == MRF:
            op.queue_number = self._pops.get(unit, 0)
            self._pops[unit] = op.queue_number + 1
            if self._occupancy.get(unit, 0) <= 0:
                raise self._error(f"vpop.mrf: MXU {unit} has no result")
            self._occupancy[unit] -= 1
            own = op.queue_number - self._entry.get(unit, 0)
            if own >= 0:
                op.producer = self._muls[unit][own // 2]
        elif TRANSPOSED in row.defines:
            self._swaps.setdefault(unit, []).append(op.index)
        elif TRANSPOSED in row.uses:
            swaps = self._swaps.get(unit, [])
            op.queue_number = len(swaps)
            op.producer = swaps[-1] if swaps else -1

    # segments

    def _flush_pending(self, read: frozenset[int] = frozenset()) -> dict[int, int]:
        """End the segment, keeping the values that registers and queues still hold, and those in `read`;
        returns the carry slots of all."""
        if not self._ops:
            return {}
        live = self._names.live()
        masks = {value: self._ops[value].is_mask for value in live}
        self._flush(read.union(live))
        places = self._carry
        renamed: dict[int, int] = {}
        for value, is_mask in masks.items():
            slot = self._carry[value]
            leaf = ValueOp(self._next, OperationRole.LEAF, None, (), is_mask, carried=slot)
            self._next += 1
            renamed[value] = leaf.index
            self._ops[leaf.index] = leaf
        self._carry = {}
        self._names.replace(renamed)
        return places

    def _flush(self, live: frozenset[int]) -> None:
        if self._ops:
            self._scope.place = self._block.name or "block"
            Segment(
                self._scope, self._ops, self._carry, live, self._entry, self._dma_function,
                self._bounds,
            ).emit()  # fmt: skip
        self._start_segment()
