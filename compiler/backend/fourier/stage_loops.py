"""One stage of a transform over blocks in VMEM: loops around a butterfly.

A block holds values of which each takes a row of 128 lanes; the lanes are a batch, and so are the
*units*, `unit_rows` rows apart. Eight butterflies run in the sublanes of a vreg: those of eight
neighbours along one axis of the stage (units, points done, values left), rows that lie evenly apart, which
loads and stores take with a stride. Where an axis is no multiple of eight its last eight
overlap those before, and compute the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from compiler.backend.column_blocks import ColumnPart
from compiler.backend.fourier.butterflies import Butterfly, Value
from compiler.backend.vector.ops import Ops
from compiler.hlo.fourier import FourierStage
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import MReg, SReg
from tpu_sim.isa.geometry import SUBLANES


@dataclass(frozen=True)
class Roots:
    """The window that holds root i, in all lanes, in row i."""

    window: int


@dataclass(frozen=True)
class AxisStrides:
    """How far apart neighbours lie, in rows of source, target and roots."""

    extent: int
    read: int
    write: int
    root: int


@dataclass(frozen=True)
class StageShape:
    """A stage over `units` units of `unit_rows` rows."""

    stage: FourierStage
    units: int
    unit_rows: int

    @property
    def axes(self) -> tuple[AxisStrides, AxisStrides, AxisStrides]:
        """Units, points done, values left."""
        s = self.stage
        return (
            AxisStrides(self.units, self.unit_rows, self.unit_rows, 0),
            AxisStrides(s.done, s.radix * s.left, s.left, 1),
            AxisStrides(s.left, 1, 1, 0),
        )

    @property
    def sublane_axis(self) -> int:
        """The axis along the sublanes: one of eight neighbours, else the longest."""
        extents = [axis.extent for axis in self.axes]
        for number in (2, 1, 0):
            if extents[number] % SUBLANES == 0:
                return number
        for number in (2, 1, 0):
            if extents[number] >= SUBLANES:
                return number
        return max((2, 1, 0), key=lambda number: extents[number])

    @property
    def guard_rows(self) -> int:
        """Rows past the last unit that accesses touch, without meaning."""
        axis = self.axes[self.sublane_axis]
        if axis.extent >= SUBLANES:
            return 0
        missing = SUBLANES - axis.extent
        return -(-missing * max(axis.read, axis.write) // SUBLANES) * SUBLANES


class StageLoops:
    """Emits stages. `scale` multiplies what the last one leaves."""

    def __init__(self, builder: LloBuilder, roots: Roots, sign: int) -> None:
        self._builder = builder
        self._ops = Ops(builder)
        self._roots = roots
        self._butterfly = Butterfly(self._ops, sign)

    def emit(
        self,
        shape: StageShape,
        source: Sequence[ColumnPart],
        target: Sequence[ColumnPart],
        scale: float,
    ) -> None:
        """All butterflies of a stage, from one block to another."""

        def body(places: list[SReg], valid: int) -> None:
            self._one(shape, source, target, places, valid, scale)

        self._nest(shape, 0, [], SUBLANES, body)
        self._builder.new_block()

    def _nest(
        self,
        shape: StageShape,
        number: int,
        places: list[SReg],
        valid: int,
        body: Callable[[list[SReg], int], None],
    ) -> None:
        """Loops over the axes from `number` on; `places` has the positions along those before."""
        axes = shape.axes
        if number == len(axes):
            body(places, valid)
            return
        extent = axes[number].extent
        if number != shape.sublane_axis:
            with self._loop(extent) as index:
                self._nest(shape, number + 1, [*places, index], valid, body)
            return
        b = self._builder
        if extent >= SUBLANES:
            with self._loop(extent // SUBLANES) as index:
                place = b.smuli(index, SUBLANES)
                self._nest(shape, number + 1, [*places, place], valid, body)
        if extent % SUBLANES:
            last = max(0, extent - SUBLANES)
            b.new_block()
            valid = min(SUBLANES, extent)
            self._nest(shape, number + 1, [*places, b.sconst(last)], valid, body)

    @contextmanager
    def _loop(self, trip: int) -> Iterator[SReg]:
        with self._builder.loop(trip, "butterflies", parallel=True) as index:
            yield index

    def _one(
        self,
        shape: StageShape,
        source: Sequence[ColumnPart],
        target: Sequence[ColumnPart],
        places: list[SReg],
        valid: int,
        scale: float,
    ) -> None:
        """Eight butterflies; `valid` of them count."""
        stage, axes, ops = shape.stage, shape.axes, self._ops
        along = axes[shape.sublane_axis]
        reads = self._sum(places, [axis.read for axis in axes])
        writes = self._sum(places, [axis.write for axis in axes])
        root = self._sum(places, [axis.root for axis in axes])
        values: list[Value] = []
        for t in range(stage.radix):
            parts = [self._load(p, reads, t * stage.left, along.read) for p in source]
            value: Value = (parts[0], parts[1] if len(parts) > 1 else None)
            values.append(self._rooted(stage, value, t, root, along.root))
        found = self._butterfly.transform(values)
        mask = None
        if valid < SUBLANES:
            mask = ops.emit("vcmp.lt.s32", ops.sublane(), ops.integer(valid))
        for u, value in enumerate(found):
            scaled = value if scale == 1 else self._butterfly.scaled(value, scale)
            offset = u * stage.done * stage.left
            im = scaled[1] if scaled[1] is not None else ops.real(0)
            for part, word in zip(target, (scaled[0], im), strict=False):  # im may not be wanted
                self._store(part, writes, offset, along.write, word, mask)

    def _rooted(self, stage: FourierStage, value: Value, t: int, root: SReg, stride: int) -> Value:
        if t == 0 or not stage.root_count:
            return value
        first = stage.first_root + (t - 1) * stage.done
        cosine, sine = (
            self._ops.emit("vld", self._roots.window, root, first + offset, stride)
            for offset in (0, stage.root_count)
        )
        return self._butterfly.times_root(value, cosine, sine)

    def _sum(self, places: Sequence[SReg], steps: Sequence[int]) -> SReg:
        b = self._builder
        total: SReg = 0
        for place, step in zip(places, steps, strict=True):
            if step:
                total = b.sadd(total, b.smuli(place, step))
        return total

    def _load(self, part: ColumnPart, row: SReg, offset: int, stride: int) -> int:
        base = self._builder.sadd(part.base, row)
        return self._ops.emit("vld", part.window, base, offset, stride)

    def _store(
        self, part: ColumnPart, row: SReg, offset: int, stride: int, word: int, mask: MReg | None
    ) -> None:
        base = self._builder.sadd(part.base, row)
        if mask is None:
            self._ops.emit("vst", part.window, base, offset, stride, word)
        else:
            self._ops.emit("vst.msk", part.window, base, offset, stride, word, mask)
