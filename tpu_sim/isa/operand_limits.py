"""Which operands an instruction may have in a given kernel: registers, tables, immediates."""

from __future__ import annotations

from typing import NamedTuple

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.encoding import operand_range
from tpu_sim.isa.instruction import Instr, Kind, Operand, Row, Slot
from tpu_sim.isa.program import Kernel

_SUBLANES = 8


class RowFacts(NamedTuple):
    """What the checker asks of an instruction's row.

    `reads` are positions of operands and their register classes; `writes` is the class of operand 0,
    "" if the row writes no register, and `latency` the cycles until it may be read.
    """

    reads: tuple[tuple[int, str], ...]
    writes: str
    latency: int
    pops: str
    pushes: str
    is_unit_step: bool


class OperandLimits:
    """The ranges for one chip and kernel (None in main), worked out once per row."""

    def __init__(self, chip: Chip, kernel: Kernel | None) -> None:
        self._chip = chip
        self._kernel = kernel
        self._ranges: dict[Row, tuple[range, ...]] = {}
        self._bounds: dict[Row, tuple[tuple[int, int], ...]] = {}
        self._facts: dict[Row, RowFacts] = {}
        vregs, vmasks, sregs = range(chip.vregs), range(chip.vmasks), range(chip.sregs)
        self._kinds = {
            Kind.VD: vregs,
            Kind.VS: vregs,
            Kind.MD: vmasks,
            Kind.MS: vmasks,
            Kind.SD: sregs[1:],
            Kind.SS: sregs,
            Kind.UNIT: range(chip.mxu_units),
            Kind.XPOSE: range(chip.transpose_units),
        }
        if kernel is not None:
            self._kinds[Kind.WIN] = range(len(kernel.windows))
            self._kinds[Kind.DESC] = range(len(kernel.descriptors))
            self._kinds[Kind.FLAG] = range(kernel.flags)
            self._kinds[Kind.SPILL] = range(kernel.spill_slots)

    def facts(self, row: Row) -> RowFacts:
        """What else is to be known of a row."""
        found = self._facts.get(row)
        if found is None:
            reads = tuple((operand.index, operand.register_class) for operand in row.reads)
            writes = "" if row.write is None else row.write.register_class
            latency = self._chip.latencies[row.latency] if writes else 0
            found = RowFacts(reads, writes, latency, row.pops, row.pushes, row.is_unit_step)
            self._facts[row] = found
        return found

    def complaint(self, instr: Instr) -> str:
        """What is wrong with the instruction's operands, "" if nothing."""
        row = instr.row
        bounds = self._bounds.get(row)
        if bounds is None:
            ranges = self._ranges[row] = self._row_ranges(row)
            bounds = self._bounds[row] = tuple((legal.start, legal.stop) for legal in ranges)
        if len(instr.operands) != len(bounds):
            return f"{row.name} has {len(bounds)} operands, found {len(instr.operands)}"
        for value, (start, stop) in zip(instr.operands, bounds, strict=True):
            if not start <= value < stop:
                return self._out_of_range(instr, self._ranges[row])
        if self._kernel is None:
            is_scalar = row.slot is Slot.SCALAR
            return "" if is_scalar else f"{row.name} in main: want scalar instructions only"
        is_address = row.window_index >= 0 and not row.is_indexed
        return self._constant_address(instr, self._kernel) if is_address else ""

    def _row_ranges(self, row: Row) -> tuple[range, ...]:
        return tuple(self._range(operand) for operand in row.operands)

    def _range(self, operand: Operand) -> range:
        if operand.limit:
            return range(operand.limit)
        legal = self._kinds.get(operand.kind)
        return operand_range(operand.kind) if legal is None else legal

    def _out_of_range(self, instr: Instr, ranges: tuple[range, ...]) -> str:
        for value, legal, operand in zip(instr.operands, ranges, instr.row.operands, strict=True):
            if value not in legal:
                if operand.kind is Kind.SD and value == 0:
                    return "s0 always reads 0 and cannot be written"
                bounds = f"{legal.start}..{legal.stop - 1}" if legal else "none"
                return f"{instr.row.name}: operand {operand.name} is {value}, want {bounds}"
        raise AssertionError

    def _constant_address(self, instr: Instr, kernel: Kernel) -> str:
        """A window access at a constant address is inside its window."""
        first = instr.row.window_index
        window_id, s, k, stride = instr.operands[first : first + 4]
        if s != 0:
            return ""
        window = kernel.windows[window_id]
        last = k + (_SUBLANES - 1) * stride
        if min(k, last) >= 0 and max(k, last) < window.rows:
            return ""
        return f"rows {k}..{last} of window {window.name}, which has {window.rows}"
