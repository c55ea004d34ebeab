"""Random valid programs: instructions issued in order, each as soon as its operands are ready."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from tpu_sim.isa.chips import Chip
from tpu_sim.isa.control_flow import Call, If, Loop
from tpu_sim.isa.instruction import ROWS, Crossing, Instr, Kind, Slot
from tpu_sim.isa.program import (
    HBM,
    VMEM,
    Block,
    Bundle,
    DmaDescriptor,
    Kernel,
    Node,
    Program,
    Window,
)
from tpu_sim.isa.resources import MRF, SPILL
from tpu_sim.isa.timing import occupancy_cycles, result_latency
from tpu_sim.isa.unit_steps import leaves, needs

FLOATS, INTEGERS, PACKED = 0, 1, 2
"""Windows by what they hold; values never move between floats and integers but by conversion,
because NaN payloads may differ between machines."""
WINDOW_ROWS = 96
SPILL_SLOTS = 4


@dataclass
class BlockBuilder:
    """Issues instructions in order into bundles, waiting as the chip's latencies ask."""

    chip: Chip
    bundles: list[list[Instr]] = field(default_factory=list)
    ready: dict[tuple[str, int], int] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    queues: dict[str, list[int]] = field(default_factory=lambda: {"eup": [], "xlu": []})
    cycle: int = 0

    def emit(self, name: str, *operands: int) -> None:
        """Issue one instruction at the first cycle that the rules allow."""
        instr = Instr(ROWS[name], operands)
        cycle = max(self.cycle, self._earliest(instr))
        while self._is_full(instr, cycle):
            cycle += 1
        while len(self.bundles) <= cycle:
            self.bundles.append([])
        self.bundles[cycle].append(instr)
        self.cycle = cycle
        self._account(instr, cycle)

    def _names(self, instr: Instr) -> tuple[list[str], list[tuple[str, int]]]:
        """Unit steps an instruction waits for, and those it delays, with their latency."""
        row = instr.row
        before, after = [*needs(instr)], [*leaves(instr, self.chip)]
        latency = result_latency(instr, self.chip)
        unit = instr.operands[row.unit_index] if row.unit_index >= 0 else -1
        if row.pushes == MRF:
            before.append(f"mxu {unit}")
            after += [(f"mxu {unit}", self.chip.matmul_cycles), (f"results {unit}", latency)]
        elif row.pops == MRF:
            before.append(f"results {unit}")
        elif SPILL in row.defines:
            after.append((f"slot {instr.operands[row.slot_index]}", latency))
        elif SPILL in row.uses:
            before.append(f"slot {instr.operands[row.slot_index]}")
        return before, after

    def _earliest(self, instr: Instr) -> int:
        row = instr.row
        needs = [self.ready.get((r.register_class, instr.operands[r.index]), 0) for r in row.reads]
        if row.write is not None:
            register = (row.write.register_class, instr.operands[row.write.index])
            needs.append(self.ready.get(register, 0))
        if instr.row.pops in self.queues:
            needs.append(self.queues[instr.row.pops][0])
        needs += [self.busy.get(name, 0) for name in self._names(instr)[0]]
        return max([0, *needs, self.busy.get(instr.row.slot.value, 0)])

    def _is_full(self, instr: Instr, cycle: int) -> bool:
        if cycle >= len(self.bundles):
            return False
        same = [other for other in self.bundles[cycle] if other.row.slot is instr.row.slot]
        if instr.row.slot is Slot.MXU:
            return self._mxu(instr) in [self._mxu(other) for other in same]
        return len(same) >= self.chip.slot_count(instr.row.slot) or (
            instr.row.is_unit_step and bool(same)
        )

    def _mxu(self, instr: Instr) -> int:
        return instr.operands[instr.row.unit_index] // self.chip.units_per_mxu

    def _account(self, instr: Instr, cycle: int) -> None:
        row = instr.row
        latency = result_latency(instr, self.chip)
        if row.write is not None:
            register = (row.write.register_class, instr.operands[row.write.index])
            self.ready[register] = cycle + latency
        if instr.row.pushes in self.queues:
            self.queues[instr.row.pushes].append(cycle + latency)
        if instr.row.pops in self.queues:
            self.queues[instr.row.pops].pop(0)
        for name, delay in self._names(instr)[1]:
            self.busy[name] = max(self.busy.get(name, 0), cycle + delay)
        hold = occupancy_cycles(instr.row, self.chip)
        if hold > 1:
            self.busy[instr.row.slot.value] = cycle + hold

    def finish(self, name: str) -> Block:
        """The block, long enough for everything under way to land."""
        end = max([len(self.bundles), *self.ready.values(), *self.busy.values()])
        bundles: list[Bundle] = [tuple(bundle) for bundle in self.bundles]
        bundles += [()] * (end - len(bundles))
        return Block(bundles, name)


LANE_ROWS = [
    row
    for row in ROWS.values()
    if row.slot in (Slot.VALU, Slot.EUP, Slot.XLU) and row.crossing is not Crossing.STATE
]
"""Every row that computes vregs or vmasks from vregs, vmasks and sregs."""

_FLOAT_SOURCES = ("f32",)


def is_float_row(name: str) -> bool:
    """Whether a row's vreg sources are floats."""
    if name.startswith("vcvt."):
        return name.endswith(".f32")
    return name.endswith(".f32") or name == "vpack.bf16"


def result_type(name: str) -> int:
    """FLOATS, INTEGERS or PACKED for a row's vreg result."""
    if name.startswith("vcvt."):
        return FLOATS if name.startswith("vcvt.f32") else INTEGERS
    if name == "vpack.bf16":
        return PACKED
    return FLOATS if name.endswith(".f32") else INTEGERS


class RandomKernel:
    """Builds the body of one random kernel on windows of floats, integers and packed bf16."""

    def __init__(self, chip: Chip, seed: int) -> None:
        self._chip = chip
        self._random = random.Random(seed)
        self._rows = [row for row in LANE_ROWS if row.name not in ("vsel",)]
        self._blocks = 0

    def kernel(self, name: str, blocks: int, size: int) -> Kernel:
        """A kernel of `blocks` straight or looped blocks of about `size` instructions."""
        windows = [Window(f"w{i}", i * WINDOW_ROWS, WINDOW_ROWS) for i in range(3)]
        descriptors = [DmaDescriptor(HBM, VMEM, WINDOW_ROWS, (), i) for i in range(3)]
        descriptors += [DmaDescriptor(VMEM, HBM, WINDOW_ROWS, (), i) for i in range(3)]
        body: list[Node] = [self._copies("in", 0, 0)]
        for _ in range(blocks):
            body.append(self._node(size))
        body.append(self._copies("out", 3, 3 * WINDOW_ROWS))
        base = 3 * WINDOW_ROWS
        return Kernel(
            name, 2, windows, descriptors, body, spill_slots=SPILL_SLOTS, spill_base_row=base
        )

    def _copies(self, name: str, first: int, granule: int) -> Block:
        builder = BlockBuilder(self._chip)
        for i in range(3):
            builder.emit("smovi", 1 + i, granule + i * WINDOW_ROWS)
            addresses = (1 + i, 0) if first == 0 else (0, 1 + i)
            builder.emit("dma.start", first + i, *addresses, i, 0, 0, 0)
        for i in range(3):
            builder.emit("dma.wait", i, 0)
        return builder.finish(name)

    def _node(self, size: int) -> Node:
        kind = self._random.choice(["block", "block", "loop", "if"])
        block = self._block(size, in_loop=kind == "loop")
        if kind == "loop":
            return Loop(self._random.randrange(1, 4), 10, [block])
        if kind == "if":
            builder = BlockBuilder(self._chip)
            builder.emit("sld", 11, 0, self._random.randrange(2))
            test = builder.finish("test")
            return Loop(1, 10, [test, If(11, [block], [self._block(size, in_loop=False)])])
        return block

    def _block(self, size: int, in_loop: bool) -> Block:
        self._blocks += 1
        writer = _BlockWriter(self._chip, self._random, in_loop)
        for _ in range(size):
            writer.step(self._random.choice(self._rows).name)
        return writer.finish(f"b{self._blocks}")


class _BlockWriter:
    """Random instructions of one block, with typed pools of live registers."""

    def __init__(self, chip: Chip, source: random.Random, in_loop: bool) -> None:
        self._builder = BlockBuilder(chip)
        self._random = source
        self._chip = chip
        self._next_vreg = 0
        self._next_mask = 0
        self._pools: dict[int, list[int]] = {FLOATS: [], INTEGERS: [], PACKED: []}
        self._masks: list[int] = []
        self._bases = [0]
        self._spilled: dict[int, int] = {}
        self._results = 0
        self._has_weights = False
        if in_loop:
            self._builder.emit("smuli.s32", 20, 10, 3)
            self._builder.emit("saddi.s32", 21, 20, 5)
            self._bases += [10, 20, 21]
        for kind in (FLOATS, INTEGERS, PACKED):
            self._load(kind)
        self._builder.emit("vcmp.gt.s32", self._new_mask(), *self._pick(INTEGERS, 2))

    def _new_vreg(self, kind: int) -> int:
        number = self._next_vreg % (self._chip.vregs - 4)
        self._next_vreg += 1
        for pool in self._pools.values():
            if number in pool:
                pool.remove(number)
        self._pools[kind].append(number)
        return number

    def _new_mask(self) -> int:
        number = self._next_mask % self._chip.vmasks
        self._next_mask += 1
        if number not in self._masks:
            self._masks.append(number)
        return number

    def _pick(self, kind: int, count: int = 1) -> list[int]:
        if not self._pools[kind]:
            self._load(kind)
        return [self._random.choice(self._pools[kind]) for _ in range(count)]

    def _place(self) -> tuple[int, int, int]:
        """Base sreg, offset and stride that stay inside a window for every loop trip."""
        stride = self._random.choice([1, 1, 1, 2, 0, -1, 3])
        offset = self._random.randrange(0, 40) // self._random.choice([1, 8]) + 24
        return self._random.choice(self._bases), offset, stride

    def _load(self, kind: int) -> None:
        place = self._place()
        self._builder.emit("vld", self._new_vreg(kind), kind, *place)

    def step(self, name: str) -> None:
        """Issue a random memory or unit step, or the lane row `name`."""
        action = self._random.random()
        if action < 0.15:
            self._load(self._random.choice([FLOATS, INTEGERS]))
        elif action < 0.3:
            self._store()
        elif action < 0.34:
            self._spill()
        elif action < 0.38:
            self._matrix()
        elif action < 0.40:
            self._transpose()
        elif action < 0.42:
            self._indexed()
        else:
            self._lane(name)

    def _store(self) -> None:
        kind = self._random.choice([FLOATS, INTEGERS])
        (value,) = self._pick(kind)
        base, offset, stride = self._place()
        if self._random.random() < 0.4:
            mask = self._random.choice(self._masks)
            self._builder.emit("vst.msk", kind, base, offset, stride, value, mask)
        else:
            self._builder.emit("vst", kind, base, offset, stride, value)

    def _spill(self) -> None:
        slot = self._random.randrange(SPILL_SLOTS)
        if slot in self._spilled and self._random.random() < 0.5:
            kind = self._spilled[slot]
            if kind < 0:
                self._builder.emit("mld.fill", self._new_mask(), slot)
            else:
                self._builder.emit("vld.fill", self._new_vreg(kind), slot)
            return
        kind = self._random.choice([FLOATS, INTEGERS, -1])
        self._spilled[slot] = kind
        if kind < 0:
            self._builder.emit("mst.spill", slot, self._random.choice(self._masks))
        else:
            self._builder.emit("vst.spill", slot, *self._pick(kind))

    def _matrix(self) -> None:
        unit = self._random.randrange(self._chip.mxu_units)
        kinds = ["bf16", "s8", "u8"] if self._chip.int8_rate else ["bf16"]
        kind = self._random.choice(kinds)
        source, result = (PACKED, FLOATS) if kind == "bf16" else (INTEGERS, INTEGERS)
        for _ in range(self._random.randrange(1, 4)):
            name = self._random.choice(["vmatpush.bf16", "vmatpush.t.bf16"])
            self._builder.emit(name, unit, *self._pick(source), self._random.randrange(8))
        self._builder.emit("vmatswap", unit)
        passes = self._random.randrange(1, 3)
        for _ in range(passes):
            self._builder.emit(f"vmatmul.{kind}", unit, *self._pick(source))
        for _ in range(2 * passes):
            self._builder.emit("vpop.mrf", self._new_vreg(result), unit)

    def _transpose(self) -> None:
        for _ in range(self._random.randrange(1, 3)):
            unit = self._random.randrange(self._chip.transpose_units)
            for row in range(16):
                self._builder.emit("vxpose.push", unit, *self._pick(INTEGERS), row)
            self._builder.emit(self._random.choice(["vxpose.swap", "vxpose.swap.b16"]), unit)
            for _ in range(3):
                row = self._random.randrange(16)
                self._builder.emit("vxpose.read", self._new_vreg(INTEGERS), unit, row)

    def _indexed(self) -> None:
        (source,) = self._pick(INTEGERS)
        index = self._new_vreg(INTEGERS)
        self._builder.emit("vandi", index, source, 2047)
        if self._random.random() < 0.5:
            self._builder.emit("vld.idx", self._new_vreg(INTEGERS), INTEGERS, 0, index)
            return
        mask = self._random.choice(self._masks)
        self._builder.emit("vst.idx", INTEGERS, 0, index, *self._pick(INTEGERS), mask)

    def _lane(self, name: str) -> None:
        row = ROWS[name]
        source_type = FLOATS if is_float_row(name) else INTEGERS
        if name.startswith("vunpack"):
            source_type = PACKED
        operands: list[int] = []
        for operand in row.operands:
            match operand.kind:
                case Kind.VS if operand.name == "i":
                    operands += self._pick(INTEGERS)
                case Kind.VS:
                    operands += self._pick(source_type)
                case Kind.MS:
                    operands.append(self._random.choice(self._masks))
                case Kind.SS:
                    operands.append(self._random.choice(self._bases))
                case Kind.F32:
                    operands.append(self._random.choice([0x3F800000, -0x3FC00000, 0x3DCCCCCD]))
                case Kind.I32:
                    operands.append(self._random.choice([0, 1, 7, 31, 32, -1, 12345, -(2**31)]))
                case Kind.IMM:
                    operands.append(self._random.choice([0, 1]))
        self._finish_lane(name, operands)

    def _finish_lane(self, name: str, operands: list[int]) -> None:
        row = ROWS[name]
        kind = FLOATS if name.startswith("vunpack") else result_type(name)
        if row.pushes:
            self._builder.emit(name, *operands)
            self._builder.emit(f"vpop.{row.pushes}", self._new_vreg(kind))
        elif row.operands[0].kind is Kind.MD:
            self._builder.emit(name, self._new_mask(), *operands)
        else:
            self._builder.emit(name, self._new_vreg(kind), *operands)

    def finish(self, name: str) -> Block:
        """Store every live value, so that nothing computed goes unseen."""
        for kind in (FLOATS, INTEGERS):
            for number, value in enumerate(self._pools[kind]):
                self._builder.emit("vst", kind, 0, number % (WINDOW_ROWS - 8), 1, value)
        for number, mask in enumerate(self._masks):
            zero, one = self._new_vreg(INTEGERS), self._new_vreg(INTEGERS)
            self._builder.emit("vmovi", zero, 0)
            self._builder.emit("vmovi", one, 1)
            result = self._new_vreg(INTEGERS)
            self._builder.emit("vsel", result, mask, one, zero)
            self._builder.emit("vst", INTEGERS, 0, number, 1, result)
        return self._builder.finish(name)


def random_program(chip: Chip, seed: int, blocks: int = 3, size: int = 24) -> Program:
    """A program of one random kernel, called twice with different arguments."""
    kernel = RandomKernel(chip, seed).kernel("random", blocks, size)
    main: list[Node] = []
    for argument in (0, 1):
        builder = BlockBuilder(chip)
        builder.emit("smovi", 1, argument)
        builder.emit("sst", 0, 0, 1)
        builder.emit("sst", 0, 1, 0)
        main += [builder.finish("arguments"), Call("random", f"call {argument}")]
    return Program(chip.name, {"random": kernel}, main, [], [], 1 << 20, 1024)
