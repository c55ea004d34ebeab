"""Random programs of every structure that the checker accepts."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np

from benchmarks.machine_fuzz.blocks import BlockWriter, Style, random_style
from benchmarks.machine_fuzz.flow import (
    FLAGS,
    HBM_BYTES,
    SMEM_WORDS,
    SPILL_SLOTS,
    Flow,
    Tables,
    join,
    random_kept_windows,
    random_tables,
    spill_is_mask,
)
from benchmarks.machine_fuzz.sources import BlockUse
from tpu_sim.isa.chips import Chip, load_chip
from tpu_sim.isa.control_flow import Call, If, Loop, While
from tpu_sim.isa.program import SMEM, Block, Kernel, Node, Program, Window

_CHIPS = ("v5e", "v5e", "v5e", "v2", "v3", "v4", "v5p", "v6e", "7x")
_DEPTH = 3


@dataclass(frozen=True)
class Case:
    """A program, what HBM holds before it runs, and what is known of it.

    `is_static`: the cycles depend on no data, so that an estimate must count the same.
    """

    seed: int
    program: Program
    contents: bytes
    is_static: bool


def random_case(seed: int) -> Case:
    """The case of a seed."""
    source = random.Random(seed)
    chip = load_chip(source.choice(_CHIPS))
    kernels: dict[str, Kernel] = {}
    is_static = True
    kept = random_kept_windows(source)
    for number in range(source.choice([2, 2, 3] if kept else [1, 1, 2, 3])):
        writer = _KernelWriter(chip, source, f"k{number}", kept)
        kernels[f"k{number}"] = writer.kernel()
        is_static &= writer.is_static
    main = _MainWriter(chip, source, list(kernels))
    nodes = main.main()
    program = Program(chip.name, kernels, nodes, [], [], HBM_BYTES, SMEM_WORDS)
    return Case(seed, program, random_contents(seed), is_static and main.is_static)


def random_contents(seed: int) -> bytes:
    """HBM of special words, random bits, floats of all sizes, small integers."""
    source = np.random.default_rng(seed)
    words = HBM_BYTES // 4
    special = np.array(
        [0, 1 << 31, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC12345,
         0x7F800001, 1, 0x007FFFFF, 0x00800000, 0xFFFFFFFF, 31, 32, 5, 0x4F000000, 0x7F7FFFFF],
        np.uint32,
    )  # fmt: skip
    kind = np.repeat(source.integers(0, 5, words // 128), 128)
    floats = (source.standard_normal(words) * 4).astype(np.float32).view(np.uint32)
    halves = source.standard_normal(2 * words).astype(np.float32).view(np.uint32) >> 16
    packed = halves[::2] | halves[1::2] << np.uint32(16)
    bits = source.integers(0, 2**32, words, np.uint32)
    small = source.integers(0, 200, words, np.uint32)
    picked = np.choose(kind, [source.choice(special, words), bits, floats, small, packed])
    return picked.astype(np.uint32).tobytes()


class _BodyWriter:
    """Nodes of a body; `flow` follows them."""

    def __init__(
        self, chip: Chip, source: random.Random, style: Style, tables: Tables | None
    ) -> None:
        self.chip = chip
        self.random = source
        self.style = style
        self.tables = tables
        self.flow = Flow()
        self.is_static = True
        self._count = 0
        self._loops = 0
        unused = sorted(set(range(1, chip.sregs)) - set(style.sregs))
        self._indices = source.sample(unused, 8)

    def writer(self, writable: list[int], reads_sources: bool = True) -> BlockWriter:
        """A writer of a block here; that of copies reads no sources."""
        sources = frozenset[int]() if self.tables is None else self.tables.sources
        count = 0 if self.tables is None else len(self.tables.windows)
        reads = bool(sources) and reads_sources and self.random.random() < 0.6
        use = BlockUse(self.random, count, sources, reads, self._loops > 0)
        return BlockWriter(
            self.chip, self.random, self.style, self.flow, self.tables, writable, use
        )

    def block(
        self, writable: list[int], levels: dict[int, int] | None = None, lands: bool = True
    ) -> Block:
        """A block of random steps."""
        writer = self.writer(writable)
        for _ in range(self.random.randrange(self.style.size + 1)):
            writer.step()
        self._count += 1
        return writer.finish(f"b{self._count}", levels, lands)

    def settled(self, writable: list[int], levels: dict[int, int]) -> Block:
        """A short block that brings the queues to `levels` and lets everything land."""
        return self.writer(writable).finish("", levels)

    def nodes(self, depth: int, writable: list[int]) -> list[Node]:
        """A few nodes."""
        nodes: list[Node] = []
        for _ in range(self.random.choice([1, 1, 2, 3])):
            kind = self.random.random()
            if depth >= _DEPTH or kind < 0.45 or len(writable) < 4:
                lands = self.random.random() < 0.4
                nodes.append(self.block(writable, None, lands))
            elif kind < 0.68:
                nodes += self._loop(depth, writable)
            elif kind < 0.85:
                nodes += self._if(depth, writable)
            else:
                nodes += self._while(depth, writable)
        return nodes

    def _body(self, depth: int, writable: list[int], levels: dict[int, int]) -> list[Node]:
        """Nodes that may run again: what they may write has no known value at their start."""
        for number in writable:
            if number in self.flow.sregs:
                self.flow.sregs[number] = None
        before = levels
        return [*self.nodes(depth + 1, writable), self.settled(writable, before)]

    def _some(self, writable: list[int]) -> list[int]:
        count = self.random.randrange(3, len(writable)) if len(writable) > 3 else len(writable)
        return self.random.sample(writable, count)

    def _loop(self, depth: int, writable: list[int]) -> list[Node]:
        head: list[Node] = [self.settled(writable, dict(self.flow.levels))]
        # an inner index is no value once its loop is over, so an outer loop must not carry it
        index = self._indices[depth] if self._loops else self.random.choice(writable)
        inner = self._some([number for number in writable if number != index])
        trip, trip_sreg = self.random.choice([0, 1, 2, 2, 3]), -1
        if not self._loops and self.random.random() < 0.1:
            trip = self.random.choice([5, 9, 16, 40])
        writer = self.writer(writable)
        if self.random.random() < 0.3:
            trip_sreg, trip = writer.constant(self.random.choice([0, 1, 2, -1, -(2**31)])), -1
            head.append(writer.finish("", dict(self.flow.levels)))
        parallel = self.random.random() < 0.5
        before = self.flow.copy()
        if parallel:
            for number in inner:
                self.flow.sregs.pop(number, None)
        known = max(trip, 1) - 1 if trip >= 0 else 1
        self.flow.sregs[index] = (0, known)
        levels = dict(self.flow.levels)
        if self.random.random() < 0.2:
            inner = [*inner, index]
        if index in inner:
            self.flow.sregs[index] = None
        self._loops += 1
        body = self._body(depth, inner, levels)
        self._loops -= 1
        after = self.flow if trip > 0 else join(before, self.flow)
        for number in inner:
            if number in after.sregs:
                after.sregs[number] = None
        after.sregs.pop(index, None)
        self.flow = after
        return [*head, Loop(trip, index, body, trip_sreg, parallel, f"l{depth}")]

    def _if(self, depth: int, writable: list[int]) -> list[Node]:
        head: list[Node] = [self.settled(writable, dict(self.flow.levels))]
        condition = self.random.choice(sorted(self.flow.sregs))
        before = self.flow
        sides: list[list[Node]] = []
        ends: list[Flow] = []
        levels = dict(before.levels)
        for number in range(2):
            self.flow = before.copy()
            if number and self.random.random() < 0.4:
                sides.append([])
            else:
                nodes = self.nodes(depth + 1, writable)
                if not number and self.random.random() < 0.3:
                    levels = dict(self.flow.levels)  # the other side must do the same
                sides.append([*nodes, self.settled(writable, levels)])
            ends.append(self.flow)
        if not sides[1] and levels != before.levels:
            self.flow = before.copy()
            sides[1], ends[1] = [self.settled(writable, levels)], self.flow
        self.flow = join(ends[0], ends[1])
        return [*head, If(condition, sides[0], sides[1])]

    def _while(self, depth: int, writable: list[int]) -> list[Node]:
        """A loop that counts an sreg of its own down; or that stops when it likes."""
        counter = self.random.choice(writable)
        inner = self._some([number for number in writable if number != counter])
        condition = self.random.choice(inner)
        writer = self.writer(writable)
        trips = self.random.choice([0, 1, 2])
        writer.set_sreg("smovi", counter, trips)
        head = [writer.finish("", dict(self.flow.levels))]
        self.flow.sregs[counter] = (0, trips)
        levels = dict(self.flow.levels)
        self._loops += 1
        for number in inner:
            if number in self.flow.sregs:
                self.flow.sregs[number] = None
        test = self.nodes(depth + 1, inner)
        writer = self.writer(inner)
        if self.random.random() < 0.95:
            writer.set_sreg("scmp.gt.s32", condition, counter, 0)
        else:
            writer.set_sreg("sandi", condition, self.random.choice(sorted(self.flow.sregs)), 3)
        target = dict(self.flow.levels) if self.random.random() < 0.4 else levels
        test.append(writer.finish("", target))
        self.is_static = False
        after = self.flow.copy()
        body = self.nodes(depth + 1, [n for n in inner if n != condition])
        writer = self.writer([*inner, counter])
        writer.set_sreg("saddi.s32", counter, counter, -1)
        body.append(writer.finish("", levels))
        self.flow = after
        self._loops -= 1
        expected = trips if self.random.random() < 0.5 else -1
        return [*head, While(test, condition, body, f"w{depth}", expected)]


class _KernelWriter(_BodyWriter):
    def __init__(self, chip: Chip, source: random.Random, name: str, kept: list[Window]) -> None:
        tables = random_tables(chip, source, kept)
        super().__init__(chip, source, random_style(chip, source), tables)
        self._name = name
        self._cores = source.choice([1, chip.cores_per_device])

    def kernel(self) -> Kernel:
        """A kernel that fills its windows, does something, and writes everything to HBM.

        What an earlier kernel may have left in a window is often taken as it is.
        """
        assert self.tables is not None
        tables, sregs = self.tables, self.style.sregs
        body: list[Node] = [self._copies(0, sregs)]
        for slot in range(SPILL_SLOTS):
            if self.random.random() < 0.5:
                body.append(self._spilled(slot, sregs))
        body += self.nodes(0, sregs)
        body.append(self.settled(sregs, {}))
        body.append(self._copies(len(tables.windows), sregs))
        self.is_static &= not any(descriptor.dst_space == SMEM for descriptor in tables.descriptors)
        return Kernel(
            self._name, 4, tables.windows, tables.descriptors, body,
            spill_slots=SPILL_SLOTS, spill_base_row=tables.spill_base_row, flags=FLAGS,
            cores=1 if any(w.kept for w in tables.windows) else self._cores,
        )  # fmt: skip

    def _copies(self, first: int, sregs: list[int]) -> Block:
        assert self.tables is not None
        wild, self.style.wild = self.style.wild, 0
        writer = self.writer(sregs, reads_sources=False)
        count = len(self.tables.windows) + (first > 0)
        for number in range(first, first + count):
            if number - first in self.tables.sources and first:
                continue
            is_filled = first > 0 or not self.tables.windows[number].kept
            if is_filled or self.random.random() < 0.5:
                writer.transfer(number)
        if self.random.random() < 0.7:
            for flag in range(FLAGS):
                writer.issue.emit("dma.wait", flag, 0)
        self.style.wild = wild
        return writer.finish("copies")

    def _spilled(self, slot: int, sregs: list[int]) -> Block:
        writer = self.writer(sregs)
        if spill_is_mask(slot):
            writer.issue.emit("mmovi", 0, 1)
            writer.issue.emit("mst.spill", slot, 0)
        else:
            writer.issue.emit("vlane", 0)
            writer.issue.emit("vst.spill", slot, 0)
        self.flow.spills.add(slot)
        return writer.finish("")


class _MainWriter(_BodyWriter):
    def __init__(self, chip: Chip, source: random.Random, kernels: list[str]) -> None:
        super().__init__(chip, source, random_style(chip, source), None)
        self._kernels = kernels
        self._calls = 0

    def main(self) -> list[Node]:
        """Scalar nodes with calls between them."""
        nodes: list[Node] = []
        for name in self._kernels:
            if self.random.random() < 0.5:
                nodes += self.nodes(1, self.style.sregs)
            nodes += self._called(name)
        if self.random.random() < 0.3:
            nodes += self.nodes(1, self.style.sregs)
        return nodes

    def _trip(self, call: Call, index: int) -> list[Node]:
        """What a loop of calls does: one, two kernels in turn, or another one in its first trip."""
        self._calls += 1
        name = self.random.choice(self._kernels)
        other = Call(name, f"{name}.{self._calls}")
        kind = self.random.randrange(3)
        return ([call], [call, other], [If(index, [call], [other])])[kind]

    def _called(self, name: str) -> list[Node]:
        """A call, once or in a loop."""
        self._calls += 1
        call = Call(name, f"{name}.{self._calls}")
        kind = self.random.random()
        if kind < 0.7:
            self.flow = Flow()
            return [call]
        if kind < 0.85:
            self.flow = Flow()
            index = self.random.choice(self.style.sregs)
            return [Loop(self.random.randrange(7), index, self._trip(call, index), name="calls")]
        head = self.block(self.style.sregs)
        condition = self.random.choice(sorted(self.flow.sregs))
        self.flow = Flow()
        return [head, If(condition, [call], [Call(name, "other")])]
