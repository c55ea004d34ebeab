"""Random LLO kernels: loops, branches, aliasing stores, queues, masks, variables, SMEM."""

from __future__ import annotations

import random

from compiler.llo.builder import LloBuilder
from compiler.llo.ir import LloKernel, SReg
from tpu_sim.isa.chips import Chip

WINDOW_ROWS = 512
WINDOWS = 3


class _Random:
    def __init__(self, seed: int, chip: Chip, pressure: int) -> None:
        self.random = random.Random(seed)
        self.b = LloBuilder(f"random{seed}", chip)
        self.pressure = pressure
        self.windows = [self.b.window(name, WINDOW_ROWS) for name in "xyz"]
        self.variable = self.b.variable(constant=8)
        self.values: list[int] = []
        self.masks: list[int] = []

    def any_value(self) -> int:
        return self.random.choice(self.values[-self.pressure :])

    def any_mask(self) -> int:
        return self.random.choice(self.masks[-self.pressure :])

    def address(self, base: SReg) -> tuple[SReg, int, int]:
        chosen = self.random.choice([base, base, base, 0, self.variable])
        return chosen, self.random.randrange(100), self.random.choice([0, 1, 1, 1, 2])

    def region(self, base: SReg, count: int) -> None:
        b, rnd = self.b, self.random
        self.values = [b.emit("vld", 0, base, rnd.randrange(100), 1) for _ in range(3)]
        self.masks = [b.emit("vcmp.lt.f32", self.values[0], self.values[1])]
        for _ in range(count):
            self.step(base)
        for value in self.values[-self.pressure :]:
            b.emit("vst", 2, base, rnd.randrange(100), 1, value)

    def step(self, base: SReg) -> None:
        rnd = self.random
        kinds = [self.arithmetic, self.memory, self.select, self.queue, self.scalar]
        rnd.choices(kinds, [30, 25, 18, 17, 10])[0](base)

    def arithmetic(self, base: SReg) -> None:
        name = self.random.choice(["vadd.f32", "vmul.f32", "vmax.f32", "vsub.s32", "vxor"])
        self.values.append(self.b.emit(name, self.any_value(), self.any_value()))

    def memory(self, base: SReg) -> None:
        b, rnd = self.b, self.random
        kind = rnd.random()
        window = rnd.choice(self.windows)
        sreg, row, stride = self.address(base)
        if kind < 0.5:
            self.values.append(b.emit("vld", window, sreg, row, stride))
        elif kind < 0.9:
            b.emit("vst", window, sreg, row, max(1, stride), self.any_value())
        else:
            b.emit("vst.msk", window, sreg, row, 1, self.any_value(), self.any_mask())

    def select(self, base: SReg) -> None:
        b, kind = self.b, self.random.random()
        if kind < 0.5:
            self.values.append(b.emit("vsel", self.any_mask(), self.any_value(), self.any_value()))
        elif kind < 0.9:
            self.masks.append(b.emit("vcmp.gt.s32", self.any_value(), self.any_value()))
        else:
            self.masks.append(b.emit("mand", self.any_mask(), self.any_mask()))

    def queue(self, base: SReg) -> None:
        rnd = self.random
        row = rnd.choice(["vrcp.f32", "vsqrt.f32", "vlanefold.max.f32", "vsublanefold.add.s32"])
        if rnd.random() < 0.2:
            value = self.b.emit("vrot.lane", self.any_value(), base, rnd.randrange(5))
        else:
            value = self.b.emit(row, self.any_value())
        self.values.append(value)

    def scalar(self, base: SReg) -> None:
        b, rnd = self.b, self.random
        kind = rnd.random()
        if kind < 0.4:
            total = b.sadd(base, b.saddi(self.variable, rnd.randrange(3)))
            self.values.append(b.emit("vsplat", total))
        elif kind < 0.7:
            b.assign(self.variable, b.sandi(b.saddi(self.variable, rnd.randrange(100)), 127))
        else:
            b.emit("sst", 0, 128 + rnd.randrange(8), b.sadd(base, self.variable))
            self.values.append(b.emit("vsplat", b.emit("sld", 0, 128 + rnd.randrange(8))))


def random_kernel(seed: int, chip: Chip, count: int = 150, pressure: int = 20) -> LloKernel:
    """A kernel of about 2 * `count` operations with about `pressure` live values."""
    maker = _Random(seed, chip, pressure)
    b = maker.b
    with b.loop(3) as index:
        base = b.smuli(index, 13)
        maker.region(base, count)
        with b.if_(b.scmp("eq", "s32", index, b.sconst(1))):
            maker.region(b.saddi(base, 5), count // 4)
        with b.else_():
            maker.region(b.sshli(base, 1), count // 4)
    return b.finish()
