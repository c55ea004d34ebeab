"""A while loop as one kernel, whose arrays stay in VMEM for all iterations.

    bring what lies in HBM before the loop: the state, constants
    while the condition holds (its scalars lie in SMEM, as in main):
        every fusion's stages over whole arrays, from windows to windows
    write back what the body makes anew

Main calls a kernel for every instruction of a loop's body: a thousand cycles each, and the latency
of a transfer in and out. Where everything that the loop touches fits VMEM, none of that is needed.
What shares a range of HBM, by buffer assignment, shares a window here, so that updates in place
stay that. State that lies in VMEM for others (`vmem_residency`) stays where it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from compiler.analysis import vmem_shares
from compiler.analysis.aliasing import hands_on
from compiler.analysis.buffer_assignment import Allocation, BufferAssignment
from compiler.analysis.dot_parts import dot_parts
from compiler.analysis.fusion_body import FusionBody, fusion_body
from compiler.analysis.grid_steps import GridSteps
from compiler.analysis.indexing import Expr, Var, const, var
from compiler.analysis.indexing_maps import start_variable
from compiler.analysis.iteration_space import iteration_space
from compiler.analysis.kernel_vmem import arrangement, held_rows
from compiler.analysis.loop_stacks import streamed_stacks
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.trip_count import expected_trips
from compiler.analysis.unread_starts import is_overwritten
from compiler.analysis.vmem_scope import scoped_chip
from compiler.analysis.window_search import make_plan
from compiler.analysis.windows import Blocks
from compiler.backend.box_transfer import start_whole
from compiler.backend.clear import emit_clear
from compiler.backend.control import NO_CODE, ControlLowering, smem_word
from compiler.backend.grid_loop import StepContext
from compiler.backend.kernel import dot_flops
from compiler.backend.kernel_library import KernelLibrary
from compiler.backend.loop_streams import LoopStreams
from compiler.backend.row_update import RowReplacement, RowUpdate
from compiler.backend.scalar_bindings import bind_starts
from compiler.backend.scalar_words import first_word, words_to_smem, words_to_vmem
from compiler.backend.stages import StageEmitter
from compiler.backend.tile_update import TileUpdate, can_update_tiles
from compiler.backend.vector.arrays import GUARD_ROWS, VmemArray, whole_array
from compiler.backend.vector.vector_emitter import VectorEmitter
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import PRED
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import Trait, with_trait
from compiler.hlo.shape import ArrayShape, leaves
from compiler.kernels.planning import kernel_plan
from compiler.llo.builder import LloBuilder
from compiler.llo.ir import LloKernel, SReg
from tpu_sim.isa.geometry import GRANULE_BYTES, ROW_BYTES
from tpu_sim.isa.program import HBM, SMEM, VMEM

_MOST_INSTRUCTIONS = 64
_MOST_CONVERTED = 256
"""Registers of an array that a bitcast may have to move."""
_IN_EVERY_BYTE = 0x01010101
_STAGES = frozenset({"kLoop", "kInput", "kOutput"})

_HALVES = with_trait(Trait.ASYNC)
"""They are kernels, and none runs in another one."""

Place = tuple[int, int, object]


class LoopKernel(ControlLowering):
    """Emits one loop; what it cannot do raises UnsupportedError."""

    def __init__(
        self, loop: HloInstruction, buffers: BufferAssignment, library: KernelLibrary
    ) -> None:
        builder = LloBuilder(loop.name, library.target.chip)
        super().__init__(builder, buffers, library)
        self.loop = loop
        self.chip = scoped_chip(library.target.chip, loop)
        self.precision = library.target.options.precision
        self._no_code = NO_CODE - {"bitcast"}
        self._lower_opcode["bitcast"] = self._bitcast
        for opcode in _HALVES & self._lower_opcode.keys():
            del self._lower_opcode[opcode]
        self._arrays: dict[Place, VmemArray] = {}
        self._streams = LoopStreams(builder, {})
        self.array_rows = 0
        self._times = 1

    def emit(self) -> LloKernel:
        """The whole kernel."""
        b = self.builder
        b.source = self.loop.name
        b.note = f"{self.loop.name} loop in VMEM"
        body = computations_of(self.loop)
        count = sum(i.opcode not in NO_CODE for computation in body for i in computation)
        if count > _MOST_INSTRUCTIONS:
            raise _cannot(self.loop, "its body is long")
        state = self._state(self.loop)
        stacks = streamed_stacks(state, body, self._leaves, self._excess_rows(body))
        self._streams = LoopStreams(b, stacks)
        wanted = [leaf for n, leaf in enumerate(state) if not is_overwritten(self.loop, n)]
        fetched = dict.fromkeys(leaf for leaf in wanted if not self._streams.has(leaf[1]))
        kept = {place.offset for _, place in state if place.space == VMEM}
        for computation in body:
            for instr in computation:
                for shape, place in self._leaves(instr):
                    if place.space == VMEM and place.offset not in kept:
                        raise _cannot(instr, "it lies there for others")
                    if place.space != SMEM and not self._streams.has(place):
                        self._array(instr, shape, place)
                        if instr.opcode == "constant":
                            fetched[shape, place] = None
        for key, array in self._arrays.items():
            if key[0] == HBM and not any(_fills(key, array, *pair) for pair in fetched):
                emit_clear(b, array)
        b.new_block()
        self._move([pair for pair in fetched if pair[1].space == HBM], to_vmem=True)
        self.array_rows += self._streams.open()
        self._while(self.loop)
        b.new_block()
        self._streams.drain()
        self.builder.source = self.loop.name
        self._move(self._changed(), to_vmem=False)
        return b.finish()

    def _leaves(self, instr: HloInstruction) -> list[tuple[ArrayShape, Allocation]]:
        return list(zip(leaves(instr.shape), self._slices(instr), strict=True))

    def _state(self, loop: HloInstruction) -> list[tuple[ArrayShape, Allocation]]:
        """The loop's state; it lies in one place before, in and after the loop."""
        found = self._leaves(loop)
        body = loop.body
        for other in (loop.operands[0], body.parameters[0], body.root_instruction):
            if [place.offset for _, place in self._leaves(other)] != [p.offset for _, p in found]:
                raise _cannot(loop, "its state moves")
        return found

    def _changed(self) -> list[tuple[ArrayShape, Allocation]]:
        """The state that the body does not hand on as it is."""
        pairs = enumerate(self._leaves(self.loop))
        changed = (pair for leaf, pair in pairs if not hands_on(self.loop, leaf))
        moved = (pair for pair in changed if pair[1].space == HBM)
        return list(dict.fromkeys(pair for pair in moved if not self._streams.has(pair[1])))

    def _excess_rows(self, body: Sequence[HloComputation]) -> int:
        """Rows that all arrays take beyond what there is."""
        held: dict[Place, int] = {}
        for instr in (i for computation in body for i in computation):
            for shape, place in self._leaves(instr):
                if place.space == HBM:
                    key = (place.space, place.offset, arrangement(shape))
                    held.setdefault(key, held_rows(shape, shape.dims))
        return sum(held.values()) - int(vmem_shares.WINDOWS * self.chip.vmem_rows)

    # arrays

    def _array(self, instr: HloInstruction, shape: ArrayShape, place: Allocation) -> VmemArray:
        """The window of what lies at a place, for arrays that VMEM arranges alike."""
        if shape.minor_to_major != tuple(reversed(range(shape.rank))):
            raise _cannot(instr, "its dimensions lie in another order")
        key = (place.space, place.offset, arrangement(shape))
        known = self._arrays.get(key)
        if known is None:
            window = self._window(place, held_rows(shape, shape.dims))
            known = self._arrays[key] = whole_array(_bare(shape), window, guard=GUARD_ROWS)
        return whole_array(_bare(shape), known.window, guard=GUARD_ROWS)

    def _window(self, place: Allocation, rows: int) -> int:
        """A window of the kernel's own for what lies in HBM, or where it lies in VMEM."""
        if place.space == VMEM:
            return self.builder.window_at(place.offset // GRANULE_BYTES, "kept", rows)
        self.array_rows += rows
        if self.array_rows > vmem_shares.WINDOWS * self.chip.vmem_rows:
            raise _cannot(self.loop, "its arrays do not fit VMEM")
        window = self.builder.window(f"at{place.offset}", rows)
        self.builder.needs_rows(window, rows - GUARD_ROWS, GUARD_ROWS)
        return window

    def _move(self, pairs: Sequence[tuple[ArrayShape, Allocation]], *, to_vmem: bool) -> None:
        """Bring arrays from HBM, or write them back, all in flight together."""
        b = self.builder
        flag = b.flag()
        for shape, place in pairs:
            array = self._array(self.loop, shape, place)
            address = self._address(place)
            start_whole(b, shape, address, array.window, flag, to_vmem=to_vmem)
        if pairs:
            b.emit("dma.wait", flag, 0)
        b.new_block()

    # instructions

    def _while(self, instr: HloInstruction) -> None:
        times, self._times = self._times, self._times * (expected_trips(instr) or 1)
        super()._while(instr)
        self._times = times

    def _kernel(self, instr: HloInstruction) -> None:
        body = fusion_body(instr)
        if body.carried:
            raise _cannot(instr, "it brings arrays to VMEM for others")
        root = body.computation.root_instruction
        self.builder.new_block()
        if instr.kind in _STAGES:
            self._stages(instr, body, instr.kind)
        elif root.opcode == "dynamic-update-slice" and root.operands[0].opcode == "parameter":
            self._update(instr, body, root)
        elif root.opcode == "dynamic-update-slice":
            self._stages(instr, body, "kLoop")
        else:
            raise _cannot(instr, f"a {root.opcode} has a kernel of its own")
        self.builder.new_block()

    def _inputs(
        self, instr: HloInstruction, body: FusionBody
    ) -> tuple[dict[HloInstruction, VmemArray], dict[HloInstruction, SReg], dict[Var, SReg]]:
        """Arrays, scalars and start indices that a fusion reads."""
        arrays: dict[HloInstruction, VmemArray] = {}
        scalars: dict[HloInstruction, SReg] = {}
        places = self._operand_slices(instr)
        for parameter, operand, place in zip(body.parameters, instr.operands, places, strict=True):
            if place.space == SMEM:
                scalars[parameter] = self._word_at(place)
            elif not self._streams.has(place):
                arrays[parameter] = self._array(instr, operand.array, place)
        starts = bind_starts(self.builder, body, scalars)
        return {**arrays, **self._streams.read(instr, starts)}, scalars, starts

    def _stages(self, instr: HloInstruction, body: FusionBody, kind: str) -> None:
        """A fusion's stages over whole arrays."""
        b = self.builder
        arrays, scalars, starts = self._inputs(instr, body)
        parts = dot_parts(body.dot, self.precision)
        b.flops += self._times * dot_flops(body)
        space = iteration_space(body, kind, parts)
        order = tuple(range(len(space.dims)))
        blocks = Blocks(tuple(d.tiles for d in space.dims), order)
        plan = make_plan(instr, GridSteps(body, space, parts), blocks)
        outputs: list[VmemArray] = []
        scalar_results: list[tuple[VmemArray, Allocation]] = []
        later: list[tuple[VmemArray, VmemArray]] = []
        held = {array.window for array in arrays.values()}
        for shape, place in self._leaves(instr):
            if place.space == SMEM:
                outputs.append(self._scratch(f"scalar.{instr.name}", shape))
                scalar_results.append((outputs[-1], place))
                continue
            target = self._array(instr, shape, place)
            if target.window in held and (len(body.roots) > 1 or body.materialised):
                later.append((self._scratch(f"new.{instr.name}", shape), target))
                target = later[-1][0]  # another stage or root may still read what is there
            outputs.append(target)
        sregs = {**starts, **{d.variable: 0 for d in plan.grid}}
        inputs = [arrays[window.node] for window in plan.inputs]
        context = StepContext(sregs, [0] * len(plan.grid), [0] * len(plan.grid), inputs, outputs)
        StageEmitter(b, kernel_plan(body, plan, parts), scalars).emit(context)
        b.new_block()
        for made, target in later:
            self._transfer(made, target)
        for array, place in scalar_results:
            self._to_scalar(array, place)

    def _update(self, instr: HloInstruction, body: FusionBody, root: HloInstruction) -> None:
        """An update in place: computed, then moved to where it belongs."""
        if body.materialised:
            raise _cannot(instr, "its update is reduced")
        arrays, scalars, starts = self._inputs(instr, body)
        ((shape, place),) = self._leaves(instr)
        operand, update = root.operands[:2]
        emitter = VectorEmitter(self.builder, arrays, dict(starts), scalars)
        writer = self._streams.writers.get(instr)
        if writer is not None:
            emitter.emit_stage([update], [writer.buffer(update.array)])
            writer.write(starts)
            return
        target = self._array(instr, shape, place)
        if arrays[operand].window != target.window:
            emitter.emit_stage([operand], [target])
            self.builder.new_block()
        if update.opcode != "parameter":
            made = self._scratch(f"update.{instr.name}", update.array)
            emitter.emit_stage([update], [made])
            emitter.bindings[update] = made
            self.builder.new_block()
        places = [starts[start_variable(root, d)] for d in range(shape.rank)]
        self._put(emitter, update, target, places)

    def _put(
        self, emitter: VectorEmitter, update: HloInstruction, target: VmemArray, places: list[SReg]
    ) -> None:
        """Move an update's matrices, or its rows, into the target."""
        b = self.builder
        dims, whole = update.array.dims, target.shape.dims
        is_matrix = (
            len(dims) >= 2 and dims[-2:] == whole[-2:] and can_update_tiles([target.shape.dtype])
        )
        inner = 2 if is_matrix else 1
        offsets: list[Expr] = []
        with ExitStack() as loops:
            for d, size in enumerate(dims[:-inner]):
                counter = loops.enter_context(b.loop(size, f"update{d}"))
                variable = Var(f"put{d}.{counter}", 0, size - 1)
                emitter.sregs[variable] = counter
                offsets.append(var(variable) if size > 1 else const(0))
                places[d] = b.sadd(places[d], counter)
            if is_matrix:
                tiles = TileUpdate(emitter, RowReplacement(), [target], [places[:-2]])
                tiles.emit([update], lambda row, col: (*offsets, row, col))
            else:
                row = RowUpdate(emitter, RowReplacement(), [target], [places])
                row.emit([update], lambda lane: (*offsets, lane), dims[-1])

    def _scratch(self, name: str, shape: ArrayShape) -> VmemArray:
        rows = held_rows(shape, shape.dims)
        window = self.builder.window(name, rows)
        self.builder.needs_rows(window, rows - GUARD_ROWS, GUARD_ROWS)
        return whole_array(_bare(shape), window, guard=GUARD_ROWS)

    def _copy(self, instr: HloInstruction) -> None:
        (source,), (target,) = self._operand_slices(instr), self._slices(instr)
        if source == target or source.space == target.space == SMEM:
            super()._copy(instr)
            return
        if target.space == SMEM:
            self._to_scalar(self._array(instr, instr.operands[0].array, source), target)
            return
        if source.space == SMEM:
            self._from_scalar(source, self._array(instr, instr.array, target))
            return
        self._moved(instr, source, target)

    def _bitcast(self, instr: HloInstruction) -> None:
        """Another view of the same place: moved where VMEM arranges it otherwise."""
        (source,), (target,) = self._operand_slices(instr), self._slices(instr)
        if source.space == SMEM or target.space == SMEM:
            if source != target:
                raise _cannot(instr, "a scalar becomes an array")
            return
        if arrangement(instr.operands[0].array) == arrangement(instr.array):
            return
        if self._array(instr, instr.array, target).word_rows > 8 * _MOST_CONVERTED:
            raise _cannot(instr, "it moves a large array")
        self._moved(instr, source, target)

    def _transfer(self, source: VmemArray, target: VmemArray) -> None:
        """Copy an array of the same shape."""
        node = HloInstruction("parameter", "made", source.shape, ())
        emitter = VectorEmitter(self.builder, {node: source}, {}, {})
        emitter.emit_stage([node], [target])
        self.builder.new_block()

    def _moved(self, instr: HloInstruction, source: Allocation, target: Allocation) -> None:
        """The operand's elements in order, in the result's dimensions and place."""
        operand = instr.operands[0].array
        node = HloInstruction("parameter", f"{instr.name}.from", _bare(operand), ())
        bindings = {node: self._array(instr, operand, source)}
        value = node
        if operand.dims != instr.array.dims:
            value = HloInstruction("reshape", f"{instr.name}.as", _bare(instr.array), (node,))
        self.builder.new_block()
        emitter = VectorEmitter(self.builder, bindings, {}, {})
        emitter.emit_stage([value], [self._array(instr, instr.array, target)])
        self.builder.new_block()

    # scalars

    def _word_at(self, place: Allocation) -> SReg:
        return self.builder.emit("sld", 0, smem_word(place))

    def _from_scalar(self, place: Allocation, array: VmemArray) -> None:
        """A scalar of SMEM as an array of one element, or an array as it is."""
        b = self.builder
        is_pred = array.shape.dtype == PRED and not array.shape.dims
        if array.shape.dtype.bits != 32 and not is_pred:
            raise _cannot(self.loop, "a scalar that becomes an array is not of 32 bits")
        b.new_block()
        if array.shape.dims:
            words_to_vmem(b, array.window, b.sconst(smem_word(place)), array.shape.element_count)
        else:
            word = self._word_at(place)
            value = b.emit("vsplat", b.smuli(word, _IN_EVERY_BYTE) if is_pred else word)
            b.emit("vst", array.window, array.base, 0, 1, value)
        b.new_block()

    def _to_scalar(self, array: VmemArray, place: Allocation) -> None:
        """An element of VMEM, or words, to their place in SMEM."""
        b, shape = self.builder, array.shape
        if not shape.dims and (shape.dtype.bits == 32 or shape.dtype == PRED):
            word = first_word(b, array.window, array.base, shape.dtype)
            b.emit("sst", 0, smem_word(place), word)
        elif shape.dtype.bits == 32:
            words_to_smem(b, array.window, b.sconst(smem_word(place)), shape.element_count)
        else:
            raise _cannot(self.loop, f"{shape.dtype.name} that are computed are words in SMEM")
        b.new_block()


def computations_of(loop: HloInstruction) -> list[HloComputation]:
    """The condition and body of a loop, and what they call."""
    found: list[HloComputation] = []
    pending = [loop.condition, loop.body]
    while pending:
        computation = pending.pop()
        assert isinstance(computation, HloComputation)
        found.append(computation)
        for instr in computation:
            if instr.opcode == "while":
                pending += [instr.condition, instr.body]
            elif instr.opcode == "conditional":
                pending += instr.branches
    return found


def _bare(shape: ArrayShape) -> ArrayShape:
    return shape.with_layout(None)


def _cannot(instr: HloInstruction, why: str) -> UnsupportedError:
    return UnsupportedError(f"%{instr.name} does not stay in VMEM: {why}", instr.span)


def _fills(key: Place, array: VmemArray, shape: ArrayShape, place: Allocation) -> bool:
    """Whether all tiles of an array in VMEM come from HBM, where it has as many: none is left as it was."""
    is_there = key == (place.space, place.offset, arrangement(shape))
    return is_there and byte_size(shape) == array.word_rows * ROW_BYTES
