"""Random blocks: every row of the instruction set, with operands of all forms and limits."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import numpy as np

from benchmarks.machine_fuzz.flow import (
    FLAGS,
    SMEM_WORDS,
    SPACE_UNITS,
    SPILL_SLOTS,
    Flow,
    Range,
    Tables,
    side_reach,
    spill_is_mask,
)
from benchmarks.machine_fuzz.issue import Issue
from benchmarks.machine_fuzz.sources import BlockUse
from tpu_sim.interp.numpy_lanes import NumpyLanes
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.instruction import ROWS, Crossing, Kind, Row, Slot
from tpu_sim.isa.program import VMEM, Block, DmaDescriptor
from tpu_sim.isa.rows.mxu import PASS_FORMATS

LANE_ROWS = [
    row
    for row in ROWS.values()
    if row.slot in (Slot.VALU, Slot.EUP, Slot.XLU) and row.crossing is not Crossing.STATE
]
SCALAR_ROWS = [row for row in ROWS.values() if row.slot is Slot.SCALAR and not row.is_state]
NUMBERS = (0, 1, 2, 3, 5, 7, 8, 16, 31, 32, 33, 63, 127, 128, 255, 1000, -1, -2, -7, -128,
           2**31 - 1, -(2**31), 2**30, 12345678, -(2**31) + 5, 2**31 - 8)  # fmt: skip
FLOAT_BITS = (0, -(2**31), 0x3F800000, -0x3FC00000, 0x3DCCCCCD, 0x7F800000, -0x00800000,
              0x7FC00000, 0x7F800001, -0x003EDCBB, 1, 0x00800000, 0x7F7FFFFF, 0x4B000001)  # fmt: skip

_STRIDES = (1, 1, 1, 1, 1, 0, 2, 3, -1, -2, 4)


@dataclass
class Style:
    """What the blocks of one program are like; `wild` is how often an access may leave its range."""

    wild: float = 0.0
    size: int = 16
    vregs: list[int] = field(default_factory=list)
    masks: list[int] = field(default_factory=list)
    sregs: list[int] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)


_ACTIONS = {
    "lane": 40, "load": 9, "store": 11, "indexed": 2, "spill": 6, "matrix": 9, "transpose": 4,
    "scalar": 14, "smem": 5, "transfer": 6, "wait": 3, "pop": 6, "address": 5,
    "word": 3,
}  # fmt: skip


def random_style(chip: Chip, source: random.Random) -> Style:
    """Few or many registers, some kinds of instructions more often than others."""
    vregs = source.sample(range(chip.vregs), source.choice([5, 8, 16]))
    masks = source.sample(range(chip.vmasks), source.choice([2, 4]))
    sregs = source.sample(range(1, chip.sregs), source.choice([6, 10, 16]))
    actions: list[str] = []
    for name, weight in _ACTIONS.items():
        actions += [name] * round(weight * source.choice([0, 0.5, 1, 1, 1, 3]))
    wild = source.choice([0, 0, 0, 0, 0, 0.03, 0.15])
    return Style(wild, source.choice([4, 12, 30]), vregs, masks, sregs, actions or ["lane"])


class BlockWriter:
    """Writes one block of a kernel, or of main where `tables` is None.

    `writable`: the sregs it may write. `flow` becomes what holds behind the block.
    """

    def __init__(
        self,
        chip: Chip,
        source: random.Random,
        style: Style,
        flow: Flow,
        tables: Tables | None,
        writable: list[int],
        use: BlockUse,
    ) -> None:
        self.issue = Issue(chip, source, flow)
        self.flow = flow
        self._chip = chip
        self._random = source
        self._style = style
        self._tables = tables
        self._writable = writable
        self._use = use
        self._vregs: list[int] = []
        self._masks: list[int] = []
        self._scalars = NumpyLanes((1,))

    # registers

    def _vreg(self) -> int:
        """A vreg that holds a value."""
        if not self._vregs or self._random.random() < 0.05:
            number = self._random.choice(self._style.vregs)
            self._load(number)
            return number
        return self._random.choice(self._vregs)

    def _new_vreg(self) -> int:
        return self._random.choice(self._style.vregs)

    def _has_vreg(self, number: int) -> None:
        if number not in self._vregs:
            self._vregs.append(number)

    def _mask(self) -> int:
        if not self._masks:
            number = self._random.choice(self._style.masks)
            if self._random.random() < 0.3:
                self.issue.emit("mmovi", number, self._random.choice([0, 1, -1, 2]))
            else:
                name = f"vcmp.{self._random.choice(['lt', 'ne'])}.s32"
                self.issue.emit(name, number, self._vreg(), self._vreg())
            self._masks.append(number)
        return self._random.choice(self._masks)

    def sreg(self) -> int:
        """An sreg that holds a value."""
        return self._random.choice(sorted(self.flow.sregs))

    def set_sreg(self, name: str, number: int, *operands: int) -> None:
        """Emit a scalar instruction that writes `number`, and note the range of its result."""
        self.issue.emit(name, number, *operands)
        self.flow.sregs[number] = self._result_range(ROWS[name], operands)

    def _result_range(self, row: Row, operands: tuple[int, ...]) -> Range:
        if row.is_state:
            return None
        arguments: list[object] = []
        for operand, value in zip(row.operands[1:], operands, strict=True):
            if operand.kind is not Kind.SS:
                arguments.append(value)
                continue
            known = self.flow.sregs[value]
            if known is None or known[0] != known[1]:
                return self._bounded(row, operands)
            arguments.append(np.array([known[0] & 0xFFFFFFFF], np.uint32))
        with np.errstate(all="ignore"):
            result = row.does(self._scalars, *arguments)
        number = int(np.asarray(result).view(np.int32)[0])
        return number, number

    def _bounded(self, row: Row, operands: tuple[int, ...]) -> Range:
        """The range of a result of operands that are no constants."""
        if row.name == "sandi" and operands[1] >= 0:
            return 0, operands[1]
        if row.name.startswith("scmp."):
            return 0, 1
        known = self.flow.sregs[operands[0]] if operands else None
        if known is None:
            return None
        if row.name == "smov":
            return known
        if row.name in ("saddi.s32", "smuli.s32"):
            k = operands[1]
            ends = sorted([v + k if row.name == "saddi.s32" else v * k for v in known])
            return (ends[0], ends[1]) if ends[0] >= -(2**31) and ends[1] < 2**31 else None
        return None

    def constant(self, value: int) -> int:
        """An sreg that holds a number."""
        if value == 0 and self._random.random() < 0.5:
            return 0
        for number, known in self.flow.sregs.items():
            if known == (value, value) and self._random.random() < 0.5:
                return number
        number = self._random.choice(self._writable)
        self.set_sreg("smovi", number, value)
        return number

    # what a step may be

    def step(self) -> None:
        """Emit something."""
        action = self._random.choice(self._style.actions)
        if self._tables is None:
            action = self._random.choice(["scalar", "scalar", "smem", "address"])
        getattr(self, f"_do_{action}")()

    def _do_lane(self) -> None:
        row = self._random.choice(LANE_ROWS)
        operands: list[int] = []
        for operand in row.operands:
            match operand.kind:
                case Kind.VS:
                    operands.append(self._vreg())
                case Kind.MS:
                    operands.append(self._mask())
                case Kind.SS:
                    operands.append(self.sreg())
                case Kind.F32:
                    operands.append(self._random.choice(FLOAT_BITS))
                case Kind.I32:
                    operands.append(self._random.choice(NUMBERS))
                case Kind.IMM:
                    operands.append(self._random.choice([0, 1, -1, 3, 64, 127, 128, 200, -32768]))
        if row.pushes:
            entries = {"eup": self._chip.eup_entries, "xlu": self._chip.xlu_entries}[row.pushes]
            if self.issue.waiting(row.pushes) >= entries:
                self._pop_queue(row.pushes)
            self.issue.emit(row.name, *operands)
        elif row.operands[0].kind is Kind.MD:
            number = self._random.choice(self._style.masks)
            self.issue.emit(row.name, number, *operands)
            if number not in self._masks:
                self._masks.append(number)
        else:
            number = self._new_vreg()
            self.issue.emit(row.name, number, *operands)
            self._has_vreg(number)

    def _do_pop(self) -> None:
        queues = [name for name in ("eup", "xlu") if self.issue.waiting(name)]
        units = [unit for unit, level in self.flow.levels.items() if level]
        if queues and (not units or self._random.random() < 0.6):
            self._pop_queue(self._random.choice(queues))
        elif units:
            self._pop_unit(self._random.choice(units))

    def _pop_queue(self, queue: str) -> None:
        number = self._new_vreg()
        self.issue.emit(f"vpop.{queue}", number)
        self._has_vreg(number)

    def _pop_unit(self, unit: int) -> None:
        number = self._new_vreg()
        self.issue.emit("vpop.mrf", number, unit)
        self._has_vreg(number)
        self.flow.levels[unit] -= 1
        if not self.flow.levels[unit]:
            del self.flow.levels[unit]

    def _is_wild(self) -> bool:
        return self._random.random() < self._style.wild

    def _place(self, window: int) -> tuple[int, int, int]:
        """An sreg, an offset and a stride; inside the window, unless it is to be wild."""
        assert self._tables is not None
        rows = self._tables.windows[window].rows
        stride = self._use.stride(window, _STRIDES)
        if self._is_wild():
            number = self.sreg()
            ends = self.flow.sregs[number]
            near = 0 if ends is None else -ends[self._random.randrange(2)]
            k = self._random.choice([near, near + rows - 1, near - 1, near + rows, *NUMBERS])
            if number and -(2**31) <= k < 2**31:
                return (
                    number,
                    k,
                    self._random.choice(
                        [stride, 32767, stride if window in self._use.sources else -32768]
                    ),
                )
        below, above = min(0, 7 * stride), max(0, 7 * stride)
        if above - below >= rows:
            stride, below, above = 1, 0, 7
        candidates = self._random.sample(sorted(self.flow.sregs), min(4, len(self.flow.sregs)))
        for number in candidates:
            known = self.flow.sregs[number]
            if known is None:
                continue
            low, high = -below - known[0], rows - 1 - above - known[1]
            low, high = max(low, -(2**31)), min(high, 2**31 - 1)
            if low <= high:
                return number, self._random.randint(low, high), stride
        return 0, self._random.randint(-below, rows - 1 - above), stride

    def _load(self, number: int) -> None:
        assert self._tables is not None
        kind = self._random.random()
        if kind < 0.1:
            self.issue.emit("vmovi", number, self._random.choice([*NUMBERS, *FLOAT_BITS]))
        elif kind < 0.2:
            self.issue.emit("vsplat", number, self.sreg())
        else:
            window = self._use.to_read()
            self.issue.emit("vld", number, window, *self._place(window))
        self._has_vreg(number)

    def _do_load(self) -> None:
        self._load(self._new_vreg())

    def _do_store(self) -> None:
        assert self._tables is not None
        window = self._use.to_write()
        place = self._place(window)
        if self._random.random() < 0.4:
            self.issue.emit("vst.msk", window, *place, self._vreg(), self._mask())
        else:
            self.issue.emit("vst", window, *place, self._vreg())

    def _do_indexed(self) -> None:
        """Word numbers are cut to a power of two that fits the window."""
        assert self._tables is not None
        window = self._use.to_read(indexed=True)
        words = self._tables.windows[window].rows * 128
        index = self._new_vreg()
        mask = (1 << (words.bit_length() - 1)) - 1
        self.issue.emit("vandi", index, self._vreg(), mask)
        base = 0
        if self._is_wild():
            base = self.sreg()
        self._has_vreg(index)
        if self._random.random() < 0.5:
            number = self._new_vreg()
            self.issue.emit("vld.idx", number, window, base, index)
            self._has_vreg(number)
        else:
            mask_register = self._mask()
            self.issue.emit("vst.idx", window, base, index, self._vreg(), mask_register)

    def _do_spill(self) -> None:
        slot = self._random.randrange(SPILL_SLOTS)
        is_mask = spill_is_mask(slot)
        if slot in self.flow.spills and self._random.random() < 0.5:
            if is_mask:
                number = self._random.choice(self._style.masks)
                self.issue.emit("mld.fill", number, slot)
                if number not in self._masks:
                    self._masks.append(number)
            else:
                number = self._new_vreg()
                self.issue.emit("vld.fill", number, slot)
                self._has_vreg(number)
            return
        if is_mask:
            self.issue.emit("mst.spill", slot, self._mask())
        else:
            self.issue.emit("vst.spill", slot, self._vreg())
        self.flow.spills.add(slot)

    # matrix and transpose units

    def _do_matrix(self) -> None:
        unit = self._random.randrange(min(self._chip.mxu_units, 5))
        kind = self._random.random()
        if kind < 0.35:
            name = self._random.choice(["vmatpush.bf16", "vmatpush.t.bf16"])
            for _ in range(self._random.choice([1, 2, 8])):
                self.issue.emit(name, unit, self._vreg(), self._random.randrange(8))
        elif kind < 0.55:
            self.issue.emit("vmatswap", unit)
        else:
            self._multiply(unit)

    def _multiply(self, unit: int) -> None:
        if self.flow.levels.get(unit, 0) + 2 > min(self._chip.mrf_entries, 8):
            self._pop_unit(unit)
            return
        rows = PASS_FORMATS.values()
        kinds = [r.name for r in rows if not r.required or getattr(self._chip, r.required)]
        self.issue.emit(self._random.choice(kinds), unit, self._vreg())
        self.flow.levels[unit] = self.flow.levels.get(unit, 0) + 2

    def _do_transpose(self) -> None:
        unit = self._random.randrange(self._chip.transpose_units)
        kind = self._random.random()
        if kind < 0.4:
            rows = self._random.sample(range(16), self._random.choice([1, 3, 16]))
            for row in rows:
                self.issue.emit("vxpose.push", unit, self._vreg(), row)
        elif kind < 0.65:
            self.issue.emit(self._random.choice(["vxpose.swap", "vxpose.swap.b16"]), unit)
        else:
            number = self._new_vreg()
            self.issue.emit("vxpose.read", number, unit, self._random.randrange(16))
            self._has_vreg(number)

    # scalar unit, SMEM

    def _do_scalar(self) -> None:
        row = self._random.choice(SCALAR_ROWS)
        operands: list[int] = []
        for operand in row.operands[1:]:
            is_register = operand.kind is Kind.SS
            operands.append(self.sreg() if is_register else self._random.choice(NUMBERS))
        self.set_sreg(row.name, self._random.choice(self._writable), *operands)

    def _do_word(self) -> None:
        """A word of a vreg in an sreg."""
        self.set_sreg("vtos", self._random.choice(self._writable), self._vreg())

    def _do_address(self) -> None:
        """An sreg of a small range, by constants or from anything, and sums that wrap."""
        number = self._random.choice(self._writable)
        kind = self._random.random()
        if kind < 0.4:
            self.set_sreg("smovi", number, self._random.choice([0, 1, 8, 24, -5, *NUMBERS]))
        elif kind < 0.6:
            self.set_sreg("sandi", number, self.sreg(), self._random.choice([1, 7, 15]))
        elif kind < 0.9:
            k = self._random.choice([1, 8, -3, 2**31 - 1, -(2**31)])
            self.set_sreg("saddi.s32", number, self.sreg(), k)
        else:
            self.set_sreg("sadd.s32", number, self.sreg(), self.sreg())

    def _do_smem(self) -> None:
        base, k = 0, self._random.randrange(SMEM_WORDS)
        known = sorted(number for number, ends in self.flow.sregs.items() if ends is not None)
        if self._is_wild():
            base, k = self.sreg(), self._random.choice([*NUMBERS, SMEM_WORDS - 1, SMEM_WORDS])
        elif self._random.random() < 0.5:
            number = self._random.choice(known)
            ends = self.flow.sregs[number]
            assert ends is not None
            low = max(-ends[0], -(2**31))
            high = min(SMEM_WORDS - 1 - ends[1], 2**31 - 1)
            if low <= high:
                base, k = number, self._random.randint(low, high)
        if self._random.random() < 0.5:
            self.set_sreg("sld", self._random.choice(self._writable), base, k)
        else:
            self.issue.emit("sst", base, k, self.sreg())

    # transfers

    def _flag(self) -> tuple[int, int]:
        if self._is_wild():
            return self._random.randrange(FLAGS), self.sreg()
        if self._random.random() < 0.3:
            number = self._random.choice(sorted(self.flow.sregs))
            ends = self.flow.sregs[number]
            if ends is not None and ends[0] >= 0 and ends[1] < FLAGS:
                return self._random.randrange(FLAGS - ends[1]), number
        return self._random.randrange(FLAGS), 0

    def _do_wait(self) -> None:
        self.issue.emit("dma.wait", *self._flag())

    def _do_transfer(self) -> None:
        assert self._tables is not None
        number = self._random.randrange(len(self._tables.descriptors))
        counts = (self._random.randrange(4), self._random.randrange(3))
        if self._is_wild():
            counts = (self._random.choice([-1, 2**26, 2**26 + 1, 65536]), counts[1])
        self.transfer(number, counts)

    def transfer(self, number: int, counts: tuple[int, int] = (0, 0)) -> None:
        """Start a transfer at addresses where it fits, if there are any and the block may."""
        assert self._tables is not None
        descriptor = self._tables.descriptors[number]
        if not self._use.allows(descriptor):
            return
        addresses: list[int] = []
        for is_source in (True, False):
            space = descriptor.src_space if is_source else descriptor.dst_space
            units = self._units(space, descriptor)
            reach = side_reach(descriptor, is_source, counts)
            low, high = (0, units) if reach is None else (-reach[0], units - reach[1])
            if self._is_wild():
                addresses.append(self._random.choice([*NUMBERS, low - 1, high + 1]))
            elif low > high:
                return
            else:
                addresses.append(self._random.randint(low, high))
        flag, f = self._flag()
        if len(set(self._writable)) < 6:
            return
        numbers: list[int] = []
        kept = self._writable
        for value in (*addresses, *counts):
            numbers.append(self.constant(value))
            self._writable = [n for n in self._writable if n not in (*numbers, f)]
        self._writable = kept
        self.issue.emit("dma.start", number, numbers[0], numbers[1], flag, f, *numbers[2:])

    def _units(self, space: int, descriptor: DmaDescriptor) -> int:
        assert self._tables is not None
        if space == VMEM:
            return self._tables.windows[descriptor.window].rows
        return SPACE_UNITS[space]

    # the end

    def finish(self, name: str, levels: dict[int, int] | None = None, lands: bool = True) -> Block:
        """Empty the queues of the block; bring those of the MXUs to `levels` where given."""
        for queue in ("eup", "xlu"):
            while self.issue.waiting(queue):
                self._pop_queue(queue)
        if levels is not None:
            for unit in sorted(self.flow.levels.keys() | levels.keys()):
                while self.flow.levels.get(unit, 0) < levels.get(unit, 0):
                    self.issue.emit("vmatmul.bf16", unit, self._vreg())
                    self.flow.levels[unit] = self.flow.levels.get(unit, 0) + 2
                while self.flow.levels.get(unit, 0) > levels.get(unit, 0):
                    self._pop_unit(unit)
        return self.issue.finish(name, lands)
