"""Which operands an instruction may have in a given kernel: registers, tables, immediates."""

from __future__ import annotations

from typing import NamedTuple

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.encoding import operand_range
from tpu_sim.isa.geometry import SUBLANES
from tpu_sim.isa.instruction import Kind, Operand, Row, Slot
from tpu_sim.isa.program import Kernel
from tpu_sim.isa.timing import occupancy_cycles


class RowFacts(NamedTuple):
    """What the checker asks of an instruction's row.

    `bounds` are the least legal value of each operand and the one behind the greatest; `refusal` says why
    the row may not stand here at all, "" if it may. `window` is the position of the window id of an
    access whose rows its operands say, else -1.

    `reads` are positions of operands and their register classes; `writes` is the class of operand 0,
    "" if the row writes no register, and `latency` the cycles until it may be read. `mxu` is the position
    of the unit whose MXU's slot it takes, else -1; `held` how many cycles it holds its slot.
    """

    bounds: tuple[tuple[int, int], ...]
    refusal: str
    window: int
    reads: tuple[tuple[int, str], ...]
    writes: str
    latency: int
    pops: str
    pushes: str
    slot: str
    mxu: int
    held: int
    is_unit_step: bool


class OperandLimits:
    """The ranges for one chip and kernel (None in main), worked out once per row."""

    def __init__(self, chip: Chip, kernel: Kernel | None) -> None:
        self._chip = chip
        self._kernel = kernel
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
        """What is to be known of a row."""
        found = self._facts.get(row)
        if found is None:
            found = self._facts[row] = self._found(row)
        return found

    def _found(self, row: Row) -> RowFacts:
        is_refused = self._kernel is None and row.slot is not Slot.SCALAR
        writes = "" if row.write is None else row.write.register_class
        return RowFacts(
            bounds=tuple((legal.start, legal.stop) for legal in self._row_ranges(row)),
            refusal=f"{row.name} in main: want scalar instructions only" if is_refused else "",
            window=-1 if row.is_indexed else row.window_index,
            reads=tuple((operand.index, operand.register_class) for operand in row.reads),
            writes=writes,
            latency=self._chip.latencies[row.latency] if writes else 0,
            pops=row.pops,
            pushes=row.pushes,
            slot=row.slot_name,
            mxu=row.unit_index if row.is_mxu else -1,
            held=occupancy_cycles(row, self._chip),
            is_unit_step=row.is_unit_step,
        )

    def complaint(self, row: Row, operands: tuple[int, ...], facts: RowFacts) -> str:
        """What is wrong with an instruction's operands, "" if nothing."""
        bounds = facts.bounds
        if len(operands) != len(bounds):
            return f"{row.name} has {len(bounds)} operands, found {len(operands)}"
        for value, (start, stop) in zip(operands, bounds, strict=True):
            if not start <= value < stop:
                return self._out_of_range(row, operands)
        window = facts.window
        if window >= 0 and operands[window + 1] == 0 and self._kernel is not None:
            return self._constant_address(operands[window : window + 4], self._kernel)
        return facts.refusal

    def _row_ranges(self, row: Row) -> tuple[range, ...]:
        return tuple(self._range(operand) for operand in row.operands)

    def _range(self, operand: Operand) -> range:
        if operand.limit:
            return range(operand.limit)
        legal = self._kinds.get(operand.kind)
        return operand_range(operand.kind) if legal is None else legal

    def _out_of_range(self, row: Row, operands: tuple[int, ...]) -> str:
        legal_ranges = self._row_ranges(row)
        for value, legal, operand in zip(operands, legal_ranges, row.operands, strict=True):
            if value not in legal:
                if operand.kind is Kind.SD and value == 0:
                    return "s0 always reads 0 and cannot be written"
                bounds = f"{legal.start}..{legal.stop - 1}" if legal else "none"
                return f"{row.name}: operand {operand.name} is {value}, want {bounds}"
        raise AssertionError

    def _constant_address(self, address: tuple[int, ...], kernel: Kernel) -> str:
        """A window access at a constant address is inside its window."""
        window_id, _, k, stride = address
        window = kernel.windows[window_id]
        last = k + (SUBLANES - 1) * stride
        if min(k, last) >= 0 and max(k, last) < window.rows:
            return ""
        return f"rows {k}..{last} of window {window.name}, which has {window.rows}"
