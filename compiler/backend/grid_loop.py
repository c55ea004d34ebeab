"""The grid loop of a kernel: windows double-buffered by DMA around the compute stages.

    fetch the first block of every input
    for each step:
        start fetching the next block of every input whose present one this step is the first of,
        and a part of what the kernel brings to VMEM for others (`carried`)
        wait for this step's input blocks, and until the output buffers are free again
        compute
        start writing back the output blocks that the next step does not continue
    wait for the last write-backs, and for what came in for others

Where cores of a device share the grid, each goes through its part of the outermost dimension's blocks.

The grid is one flat loop, innermost dimension fastest. A window that a dimension does not move is
not fetched again while only that dimension advances; an output window that the inner dimensions do
not move stays in VMEM and accumulates over them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from compiler.analysis.indexing import Var, const
from compiler.analysis.kernel_vmem import held_rows
from compiler.analysis.windows import DerivedVar, GridDim, OperandWindow, WindowPlan
from compiler.backend.box_transfer import start_pieces
from compiler.backend.carried import CarriedArrays
from compiler.backend.index_scalars import emit_clamp, emit_index
from compiler.backend.kernel_calls import Argument, BufferPlace
from compiler.backend.scalar_words import first_word
from compiler.backend.transfer import (
    BoxTiles,
    HbmTiling,
    PieceMaker,
    TransferPiece,
    box_pieces,
    box_tiles,
    hbm_tiling,
    row_pieces,
)
from compiler.backend.vector.addresses import physical_index, tiled_address
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import SReg


@dataclass
class Stream:
    """One window with its buffers: `argument` is the kernel argument with the array's address.

    A `view` is a part of an array that lies in VMEM: it has no buffer, and nothing is moved. A `word` is a
    result in SMEM: the scalar unit stores it there at the end.
    """

    window: OperandWindow
    argument: int
    is_input: bool
    depends: tuple[int, ...]
    tiling: HbmTiling
    box: BoxTiles
    slots: int
    window_id: int
    flag: int
    pieces: list[TransferPiece]
    is_view: bool = False
    is_word: bool = False
    slot: SReg = 0

    @property
    def rows(self) -> int:
        """VMEM rows of one buffer."""
        return self.box.vmem_rows


@dataclass
class StepContext:
    """What the compute stages of one step see.

    `sregs` holds the grid's and derived variables; `counters` the block number along each grid
    dimension, `passed` how many the core had before it (another one may have had the first);
    `arrays` the windows, in the order of the plan's inputs, then outputs.
    """

    sregs: dict[Var, SReg]
    counters: list[SReg]
    passed: list[SReg]
    inputs: list[VmemArray] = field(default_factory=list)
    outputs: list[VmemArray] = field(default_factory=list)


Compute = Callable[[StepContext], None]


class GridLoop:
    """Emits the grid loop of `plan` into `builder`.

    `arguments` gives the argument number of every input and output address; `sregs` what the
    windows depend on besides the grid (dynamic starts). `guard_rows` follow the buffers of a window:
    rows that accesses may touch without meaning. `pieces` says how a box lies in its window. `cores`
    of a device share the grid. `carried` are places of arrays in HBM and those in VMEM that the kernel
    brings them to.
    """

    def __init__(
        self,
        builder: LloBuilder,
        plan: WindowPlan,
        input_arguments: Sequence[Argument],
        output_arguments: Sequence[Argument],
        sregs: dict[Var, SReg],
        guard_rows: int = GUARD_ROWS,
        pieces: PieceMaker = box_pieces,
        cores: int = 1,
        carried: Sequence[tuple[Argument, Argument]] = (),
    ) -> None:
        self.builder = builder
        self._pieces = pieces
        self._cores = cores
        self._shared = plan.shared_dim(cores)
        self._start_block, self._end_block = 0, 0
        builder.cores = cores
        self.guard_rows = guard_rows
        self.plan = plan
        self.fixed = dict(sregs)
        pairs = zip(plan.inputs, input_arguments, strict=True)
        self._all_inputs = [self._stream(w, a, is_input=True) for w, a in pairs]
        pairs = zip(plan.outputs, output_arguments, strict=True)
        self._all_outputs = [self._stream(w, a, is_input=False) for w, a in pairs]
        self.inputs = [s for s in self._all_inputs if not s.is_view]
        self.outputs = [s for s in self._all_outputs if not (s.is_view or s.is_word)]
        self.words = [s for s in self._all_outputs if s.is_word]
        self.carried = CarriedArrays(builder, carried, plan.steps)

    def _stream(self, window: OperandWindow, argument: Argument, *, is_input: bool) -> Stream:
        b = self.builder
        tiling = hbm_tiling(window.shape)
        box = box_tiles(window.shape, window.extent)
        depends = self.plan.moving_dims(window.origin)
        slots = 2 if depends else 1
        name = f"{'in' if is_input else 'out'}.{window.node.name}"
        if argument.place is BufferPlace.VMEM:
            rows = held_rows(window.shape, window.shape.dims)
            window_id = b.window_at(argument.row, name, rows)
            return Stream(
                window, argument.index, is_input, depends, tiling, box, 1, window_id, -1, [], True
            )
        window_id = b.window(name, slots * box.vmem_rows + self.guard_rows)
        if argument.place is BufferPlace.SMEM:
            assert not is_input, "SMEM operands are values, they have no window"
            return Stream(
                window, argument.index, is_input, depends, tiling, box, 1, window_id, -1, [],
                is_word=True,
            )  # fmt: skip
        pieces = (
            self._pieces(tiling, box, window_id, to_vmem=is_input)
            if window.row is None
            else row_pieces(tiling, box, window_id)
        )
        flag = b.flag(slots)
        return Stream(
            window, argument.index, is_input, depends, tiling, box, slots, window_id, flag, pieces
        )

    def emit(self, compute: Compute) -> None:
        """Emit everything; `compute` is called once, inside the loop."""
        if self.plan.steps == 1:
            self._emit_single(compute)
        else:
            self._emit_loop(compute)

    def _emit_single(self, compute: Compute) -> None:
        b = self.builder
        counters = [0] * len(self.plan.grid)
        sregs = self._environment(counters)
        for stream in self.inputs:
            self._start(stream, sregs, 0)
        self.carried.start(0)
        for stream in self.inputs:
            b.emit("dma.wait", stream.flag, 0)
        compute(self._context(counters, sregs))
        b.new_block()
        for stream in self.outputs:
            self._start(stream, sregs, 0)
        self._store_words()
        for stream in self.outputs:
            b.emit("dma.wait", stream.flag, 0)
        self.carried.wait()

    def _emit_loop(self, compute: Compute) -> None:
        b = self.builder
        moving = [i for i, d in enumerate(self.plan.grid) if d.steps > 1]
        begin = self._first_block()
        variables = {i: b.variable(constant=0) for i in moving}
        start: list[SReg] = [0] * len(self.plan.grid)
        if self._shared is not None:
            start[self._shared] = begin
            b.assign(variables[self._shared], begin)
        first = self._environment(start)
        for stream in self.inputs:
            self._start(stream, first, 0)
        for stream in self.inputs:
            if not stream.depends:
                b.emit("dma.wait", stream.flag, 0)
        for stream in (*self.inputs, *self.outputs):
            stream.slot = b.variable(constant=0) if stream.depends else 0
        with b.loop(self.plan.steps // self._cores, name="grid") as step:
            counters = [variables.get(i, 0) for i in range(len(self.plan.grid))]
            following, carries = self._advance(counters)
            self._prefetch(counters)
            self.carried.start(step)
            sregs = self._environment(counters)
            self._wait()
            compute(self._context(counters, sregs))
            b.new_block()
            self._write_back(sregs, carries, counters)
            self._turn(moving, variables, following, carries)
        self._drain(first)

    def _first_block(self) -> SReg:
        """The first block of the core's share of the outermost dimension; sets where that begins and ends."""
        if self._shared is None:
            return 0
        b = self.builder
        share = self.plan.grid[self._shared].steps // self._cores
        self._start_block = b.smuli(b.emit("score"), share)
        self._end_block = b.sadd(self._start_block, b.sconst(share))
        return self._start_block

    def _blocks(self, dim: int) -> tuple[SReg, SReg]:
        """The first block of a dimension that the core does, and the one behind its last."""
        if dim == self._shared:
            return self._start_block, self._end_block
        return 0, self.builder.sconst(self.plan.grid[dim].steps)

    def _advance(
        self, counters: list[SReg], innermost: int | None = None
    ) -> tuple[list[SReg], list[SReg]]:
        """The next step's counters, and by dimension whether the step leaves its block.

        With `innermost` the step after all those with this block along that dimension.
        The entry after the last dimension is 1; entry i is the carry into dimension i, thus
        whether counter i changes. `carries[0]` of the outermost dimension's own wrap is appended
        last: it is 1 on the last step.
        """
        b = self.builder
        following = list(counters)
        carries = [0] * (len(counters) + 1)
        carry = b.sconst(1)
        last = len(counters) - 1 if innermost is None else innermost
        for i in reversed(range(len(counters))):
            carries[i] = carry
            steps = self.plan.grid[i].steps
            if steps == 1 or i > last:
                following[i] = 0
                continue
            advanced = b.sadd(counters[i], carry)
            begin, end = self._blocks(i)
            wraps = b.scmp("eq", "s32", advanced, end)
            following[i] = b.ssel(wraps, begin, advanced)
            carry = b.sand(carry, wraps)
        carries[-1] = carry
        return following, carries

    def _environment(self, counters: Sequence[SReg]) -> dict[Var, SReg]:
        """Variables of the grid and derived ones for the step with these block numbers."""
        b = self.builder
        sregs = dict(self.fixed)
        for dim, counter in zip(self.plan.grid, counters, strict=True):
            sregs[dim.variable] = counter if dim.is_even else _first_tile(b, dim, counter)
        for derived in self.plan.derived:
            sregs[derived.variable] = _derived(b, derived, sregs)
        return sregs

    def _prefetch(self, counters: list[SReg]) -> None:
        """Start fetching the next block of a window as soon as this one is begun.

        A window that the inner dimensions do not move has all their steps to arrive in.
        """
        b = self.builder
        groups: dict[int, list[Stream]] = {}
        for stream in self.inputs:
            if stream.depends:
                groups.setdefault(stream.depends[-1], []).append(stream)
        for dim in sorted(groups, reverse=True):
            following, carries = self._advance(counters, dim)
            is_due = b.sxori(carries[-1], 1)
            for i, counter in enumerate(counters):
                if i > dim and self.plan.grid[i].steps > 1:
                    is_due = b.sand(is_due, b.scmp("eq", "s32", counter, 0))
            sregs = self._environment(following)
            with b.if_(is_due):
                for stream in groups[dim]:
                    self._start(stream, sregs, b.sxori(stream.slot, 1))

    def _wait(self) -> None:
        for stream in (*self.inputs, *self.outputs):
            if stream.depends:
                self._wait_for(stream, stream.slot)

    def _write_back(
        self, sregs: dict[Var, SReg], carries: list[SReg], counters: list[SReg]
    ) -> None:
        b = self.builder
        for stream in self.outputs:
            self._wait_for_overlapped(stream, counters)
        groups: dict[int, list[Stream]] = {}
        for stream in self.outputs:
            if stream.depends:
                groups.setdefault(stream.depends[-1], []).append(stream)
        for dim in sorted(groups, reverse=True):
            if b.constant(carries[dim]) == 1:
                for stream in groups[dim]:
                    self._start(stream, sregs, stream.slot)
                continue
            with b.if_(carries[dim]):
                for stream in groups[dim]:
                    self._start(stream, sregs, stream.slot)

    def _wait_for_overlapped(self, stream: Stream, counters: list[SReg]) -> None:
        """A last block that overlaps the one before is written after that."""
        b = self.builder
        overlaps: SReg = 0
        for i in stream.depends:
            dim = self.plan.grid[i]
            if dim.total % dim.block:
                is_last = b.scmp("eq", "s32", counters[i], b.sconst(dim.steps - 1))
                overlaps = b.sor(overlaps, is_last)
        if overlaps:
            with b.if_(overlaps):
                self._wait_for(stream, b.sxori(stream.slot, 1))

    def _turn(
        self,
        moving: list[int],
        variables: dict[int, SReg],
        following: list[SReg],
        carries: list[SReg],
    ) -> None:
        """Move on to the next step: other buffers where a block was left, next counters."""
        b = self.builder
        flipped = [
            (s.slot, b.sxor(s.slot, carries[s.depends[-1]]))
            for s in (*self.inputs, *self.outputs)
            if s.depends
        ]
        for variable, value in flipped:
            b.assign(variable, value)
        for i in moving:
            b.assign(variables[i], following[i])

    def _drain(self, sregs: dict[Var, SReg]) -> None:
        """Write back windows that no dimension moves; wait for all that is under way."""
        b = self.builder
        for stream in self.outputs:
            if not stream.depends:
                self._start(stream, sregs, 0)
        self._store_words()
        for stream in self.outputs:
            for slot in range(stream.slots):
                self._wait_for(stream, b.sconst(slot))
        self.carried.wait()

    def _store_words(self) -> None:
        """Results in SMEM, which are whole when the last step is over."""
        b = self.builder
        for stream in self.words:
            with b.coming_from(stream.window.node.name):
                word = first_word(b, stream.window_id, 0, stream.window.shape.dtype)
                b.emit("sst", b.argument(stream.argument), 0, word)

    def _context(self, counters: list[SReg], sregs: dict[Var, SReg]) -> StepContext:
        return StepContext(
            sregs,
            counters,
            [self.builder.ssub(c, self._blocks(i)[0]) for i, c in enumerate(counters)],
            [self._array(s, sregs) for s in self._all_inputs],
            [self._array(s, sregs) for s in self._all_outputs],
        )

    def _array(self, stream: Stream, sregs: dict[Var, SReg]) -> VmemArray:
        if stream.is_view:
            return self._view(stream, sregs)
        base = self.builder.smuli(stream.slot, stream.rows) if stream.depends else 0
        w = stream.window
        guard = GUARD_ROWS if stream.slots == 1 else 0
        return VmemArray(w.shape, stream.window_id, base, w.origin, w.extent, guard=guard)

    def _view(self, stream: Stream, sregs: dict[Var, SReg]) -> VmemArray:
        """The step's part of an array that lies in VMEM."""
        w = stream.window
        whole = VmemArray(w.shape, stream.window_id, 0, (const(0),) * w.shape.rank, w.shape.dims)
        first = tiled_address(whole, *physical_index(whole, w.origin)).word_row
        base = emit_index(self.builder, first, sregs)
        pitch = () if w.is_dense else w.shape.dims
        part = VmemArray(w.shape, stream.window_id, base, w.origin, w.extent, pitch=pitch)
        # Behind a part lie the array's other rows, which are not to be cleared.
        is_whole = w.is_dense and part.word_rows == whole.word_rows
        return replace(part, guard=GUARD_ROWS) if is_whole else part

    def _start(self, stream: Stream, sregs: dict[Var, SReg], slot: SReg) -> None:
        """Start the transfers of the block at `sregs` to or from buffer `slot`."""
        b = self.builder
        with b.coming_from(stream.window.node.name):
            start_pieces(
                b,
                stream.window,
                (stream.tiling, stream.box),
                stream.pieces,
                b.argument(stream.argument),
                sregs,
                b.smuli(slot, stream.rows),
                (stream.flag, slot),
                to_vmem=stream.is_input,
            )

    def _wait_for(self, stream: Stream, slot: SReg) -> None:
        with self.builder.coming_from(stream.window.node.name):
            self.builder.emit("dma.wait", stream.flag, slot)


def _first_tile(builder: LloBuilder, dim: GridDim, counter: SReg) -> SReg:
    """First tile of block `counter` where the last block ends with the dimension."""
    tile = builder.smuli(counter, dim.block)
    return builder.smin(tile, builder.sconst(dim.total - dim.block))


def _derived(builder: LloBuilder, derived: DerivedVar, sregs: dict[Var, SReg]) -> SReg:
    value = emit_index(builder, derived.value, sregs)
    return emit_clamp(builder, value, derived.variable.low, derived.variable.high)
