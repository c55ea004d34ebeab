"""Main: the schedule of a module as scalar code, control flow and kernel calls.

    fusion, copy     store the arguments to SMEM, call the kernel
    scalar fusion    loads, scalar operations and stores on SMEM, no kernel
    while            the condition's instructions, its predicate from SMEM, the body's
    conditional      branches on the index or predicate in SMEM
    parameter, tuple, get-tuple-element, bitcast, constant: where they lie is all there is

Nothing stays in registers between instructions: every value lies in HBM or SMEM.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.analysis.aliasing import leaf_count
from compiler.analysis.buffer_assignment import Allocation, BufferAssignment
from compiler.analysis.element_access import is_element_access
from compiler.analysis.scalar_unit import runs_on_scalar_unit
from compiler.analysis.trip_count import expected_trips
from compiler.analysis.unread_starts import is_unread
from compiler.backend.kernel_calls import BufferPlace, Rows, kernel_interface, no_kernel
from compiler.backend.kernel_library import KernelLibrary
from compiler.backend.scalar import ScalarEmitter
from compiler.diagnostics import CompileError, UnsupportedError
from compiler.hlo.dtypes import F32
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape, TupleShape, leaves
from compiler.llo.builder import LloBuilder, f32_bits
from compiler.llo.ir import ARGUMENT_WORDS, SReg
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM, SMEM, VMEM, core_word

NO_CODE = with_any(Trait.TUPLE_ONLY | Trait.FORWARDS) | {"parameter"}


class ControlLowering:
    """Emits the instructions of control computations into main's builder."""

    def __init__(
        self,
        builder: LloBuilder,
        buffers: BufferAssignment,
        library: KernelLibrary,
        loop_kernel: Callable[[HloInstruction], str | None] = lambda _: None,
    ) -> None:
        """`loop_kernel` names the kernel that runs a whole while loop, if one can."""
        self._loop_kernel = loop_kernel
        self._no_code = NO_CODE
        self.builder = builder
        self.buffers = buffers
        self.library = library
        self._lower_opcode: dict[str, Callable[[HloInstruction], None]] = {
            "constant": self._constant,
            "fusion": self._fusion,
            "copy": self._copy,
            "collective-permute-start": self._exchange,
            "collective-permute-done": self._exchange_done,
            "async-start": self._exchange,
            "async-update": self._exchange,
            "async-done": self._exchange,
            "while": self._while,
            "conditional": self._conditional,
            "call": self._call,
            "partition-id": self._partition_id,
        }

    def lower(self, computation: HloComputation) -> None:
        """Emit a computation's instructions in schedule order."""
        for instr in computation:
            if instr.opcode in self._no_code:
                continue
            lower = self._lower_opcode.get(instr.opcode)
            if lower is None:
                raise no_kernel(instr)
            if _has_no_elements(instr) or is_unread(instr):
                continue
            self.builder.source = instr.name
            lower(instr)

    def _slices(self, instr: HloInstruction) -> list[Allocation]:
        count = len(leaves(instr.shape))
        return [self.buffers.allocation(instr, leaf) for leaf in range(count)]

    def _operand_slices(self, instr: HloInstruction) -> list[Allocation]:
        return [s for operand in instr.operands for s in self._slices(operand)]

    def _constant(self, instr: HloInstruction) -> None:
        """A constant in SMEM is stored each time it is met; one in HBM was loaded with the program."""
        places = self._slices(instr)
        if len(places) != 1 or places[0].space != SMEM:
            return
        b = self.builder
        value = _scalar_bits(instr)
        b.emit("sst", 0, smem_word(places[0]), b.sconst(value))

    def _fusion(self, instr: HloInstruction) -> None:
        if is_element_access(instr):
            self._element(instr)
            return
        called = instr.calls
        places = [*self._operand_slices(instr), *self._slices(instr)]
        is_scalar = all(p.space == SMEM for p in places)
        if is_scalar and runs_on_scalar_unit(called):
            self._scalar_fusion(instr, called)
        else:
            self._kernel(instr)

    def _element(self, instr: HloInstruction) -> None:
        """Read or write a word of an array in SMEM."""
        b = self.builder
        array, *scalars = self._operand_slices(instr)
        (target,) = self._slices(instr)
        *new, index = [b.emit("sld", 0, smem_word(place)) for place in scalars]
        if new:
            b.emit("sst", index, smem_word(array), *new)
        else:
            b.emit("sst", 0, smem_word(target), b.emit("sld", index, smem_word(array)))

    def _copy_words(self, source: Allocation, target: Allocation, count: int) -> None:
        """Words of SMEM to others."""
        b = self.builder
        if count == 1:
            b.emit("sst", 0, smem_word(target), b.emit("sld", 0, smem_word(source)))
            return
        with b.loop(count, "words") as number:
            b.emit("sst", number, smem_word(target), b.emit("sld", number, smem_word(source)))

    def _scalar_fusion(self, instr: HloInstruction, called: HloComputation) -> None:
        b = self.builder
        values: dict[HloInstruction, SReg] = {}
        for parameter, place in zip(called.parameters, self._operand_slices(instr), strict=True):
            values[parameter] = b.emit("sld", 0, smem_word(place))
        emitter = ScalarEmitter(b, values)
        computed = [emitter.emit(result) for result in called.results]
        for value, place in zip(computed, self._slices(instr), strict=True):
            b.emit("sst", 0, smem_word(place), value)

    def _kernel(self, instr: HloInstruction) -> None:
        """Store arguments and call; an operand and a result in one HBM range are in place."""
        operands, results = self._operand_slices(instr), self._slices(instr)
        in_place = tuple(
            (r, o)
            for r, result in enumerate(results)
            for o, operand in enumerate(operands)
            if result.space == operand.space == HBM and operand.offset == result.offset
        )
        self._call_kernel(instr, self._kernel_name(instr, in_place), operands, results)

    def _kernel_name(
        self, instr: HloInstruction, in_place: tuple[tuple[int, int], ...] = ()
    ) -> str:
        rows = _vmem_rows((*self._operand_slices(instr), *self._slices(instr)))
        return self.library.kernel_for(instr, in_place, rows)

    def _call_kernel(
        self,
        instr: HloInstruction,
        name: str,
        operands: Sequence[Allocation],
        results: Sequence[Allocation],
    ) -> None:
        b = self.builder
        interface = kernel_interface(instr, _vmem_rows((*operands, *results)))
        limit = ARGUMENT_WORDS
        if interface.count > limit:
            raise CompileError(
                f"%{instr.name}: {interface.count} kernel arguments, SMEM holds {limit}", instr.span
            )
        for argument, place in zip(interface.operands, operands, strict=True):
            if argument.place is BufferPlace.VMEM:
                continue
            value = self._address(place)
            if argument.place is BufferPlace.SMEM:
                word = smem_word(place)
                value = b.sconst(word) if argument.shape.dims else b.emit("sld", 0, word)
            b.emit("sst", 0, argument.index, value)
        for argument, place in zip(interface.results, results, strict=True):
            if argument.place is BufferPlace.VMEM:
                continue
            value = self._address(place)
            if argument.place is BufferPlace.SMEM:
                value = b.sconst(smem_word(place))
            b.emit("sst", 0, argument.index, value)
        b.call(name, instr.name)

    def _address(self, place: Allocation) -> SReg:
        return self.builder.sconst(place.offset // GRANULE_BYTES) if place.space == HBM else 0

    def _copy(self, instr: HloInstruction) -> None:
        """Copy every array leaf whose source and target lie apart."""
        sources, targets = self._operand_slices(instr), self._slices(instr)
        if sources == targets:
            return
        if not isinstance(instr.shape, ArrayShape):
            raise UnsupportedError(f"%{instr.name}: copy of a tuple; copy its arrays", instr.span)
        if all(p.space == SMEM for p in (*sources, *targets)):
            self._copy_words(sources[0], targets[0], instr.array.element_count)
            return
        self._call_kernel(instr, self._kernel_name(instr), sources, targets)

    def _exchange(self, instr: HloInstruction) -> None:
        """A start, update or done; a start's or update's value is a tuple of operands and results."""
        of = instr.operands[0] if instr.opcode == "async-done" else instr
        assert isinstance(of.shape, TupleShape)
        arrays, count = self._slices(of), leaf_count(of.shape.elements[0])
        self._call_kernel(instr, self._kernel_name(instr), arrays[:count], arrays[count:])

    def _exchange_done(self, instr: HloInstruction) -> None:
        self._call_kernel(instr, self._kernel_name(instr), (), ())

    def _partition_id(self, instr: HloInstruction) -> None:
        b, (place,) = self.builder, self._slices(instr)
        number = b.emit("sld", b.sconst(core_word(b.chip.smem_words)), 0)
        b.emit("sst", 0, smem_word(place), number)

    def _call(self, instr: HloInstruction) -> None:
        self.lower(instr.to_apply)

    def _while(self, instr: HloInstruction) -> None:
        kernel = self._loop_kernel(instr)
        if kernel is not None:
            self.builder.call(kernel, instr.name)
            return
        condition, body = instr.condition, instr.body
        trips = expected_trips(instr)
        with self.builder.while_(instr.name, -1 if trips is None else trips) as loop:
            self.lower(condition)
            loop.condition(self._load_scalar(condition.root_instruction))
            self.lower(body)

    def _load_scalar(self, instr: HloInstruction) -> SReg:
        """The value of a scalar that control depends on; it lies in SMEM."""
        (place,) = self._slices(instr)
        if place.space != SMEM:
            raise CompileError(
                f"%{instr.name}: found a control scalar in HBM, want it in SMEM", instr.span
            )
        self.builder.new_block()
        return self.builder.emit("sld", 0, smem_word(place))

    def _conditional(self, instr: HloInstruction) -> None:
        index = self._load_scalar(instr.operands[0])
        self._branches(instr.branches, index, is_predicate=_is_predicated(instr))

    def _branches(
        self, branches: Sequence[HloComputation], index: SReg, *, is_predicate: bool
    ) -> None:
        """``branch[index]``, the last one when index is out of range; a predicate picks the first."""
        b = self.builder
        if len(branches) == 1:
            self.lower(branches[0])
            return
        if is_predicate:
            with b.if_(index):
                self.lower(branches[0])
            with b.else_():
                self.lower(branches[1])
            return
        self._indexed_branches(branches, index, 0)

    def _indexed_branches(
        self, branches: Sequence[HloComputation], index: SReg, first: int
    ) -> None:
        """One of some branches, of which `first` is the number of the first, by halving them.

        As an unsigned number an index below zero is beyond all branches, so the last one takes it too.
        """
        if len(branches) == 1:
            self.lower(branches[0])
            return
        b, half = self.builder, len(branches) // 2
        is_before = b.emit("scmp.lt.u32", index, b.sconst(first + half))
        with b.if_(is_before):
            self._indexed_branches(branches[:half], index, first)
        with b.else_():
            self._indexed_branches(branches[half:], index, first + half)


def _has_no_elements(instr: HloInstruction) -> bool:
    """Whether an instruction computes nothing: all its arrays are empty."""
    if OPCODES[instr.opcode].has(Trait.CONTROL_FLOW):
        return False
    return all(shape.element_count == 0 for shape in leaves(instr.shape))


def _vmem_rows(places: Sequence[Allocation]) -> Rows:
    """Where arrays in VMEM start, as kernels are told."""
    return tuple(place.offset // GRANULE_BYTES for place in places if place.space == VMEM)


def smem_word(place: Allocation) -> int:
    """The word of SMEM where a scalar lies."""
    assert place.space == SMEM
    return ARGUMENT_WORDS + place.offset // 4


def _scalar_bits(instr: HloInstruction) -> int:
    value = instr.literal.reshape(-1)[0]
    return f32_bits(float(value)) if instr.array.dtype == F32 else int(value)


def _is_predicated(instr: HloInstruction) -> bool:
    return instr.operands[0].array.dtype.kind == "pred"
