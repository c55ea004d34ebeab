"""Copy insertion: makes sharing of buffers safe, with as few copies as the schedule allows.

HLO wants some values in one place: what an update overwrites and its result, a loop's state before,
in and after the loop, what a branch returns and the conditional's result, a donated parameter and
the result that replaces it. Each such pair gets one buffer if the values in it are never needed at
the same time (`compiler.analysis.buffer_classes`); otherwise one of the two is a copy:

    updates, loop states     copied just before they are overwritten
    results                  copied at the end of the computation, as if all at once

A kernel that may overwrite an operand does so where that is the operand's last use: it says so in
its `output_to_operand_aliasing`.

Results of the module lie apart from each other, from parameters and from constants.

Runs on scheduled HLO: "at the same time" is a matter of the order of instructions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.aliasing import Slot, donations, leaf_count, leaf_number, updated_operand
from compiler.analysis.buffer_classes import BufferClasses, output_place
from compiler.analysis.buffer_values import BufferValues, Span
from compiler.analysis.in_place import transform_of
from compiler.diagnostics import UnsupportedError
from compiler.hlo.attributes import OutputOperandAlias
from compiler.hlo.call_graph import control_computations, sort_computations
from compiler.hlo.cloning import clone_computation
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.origins import inherit
from compiler.hlo.shape import TupleShape
from compiler.passes.context import PassContext
from compiler.passes.control_unsharing import unshare
from compiler.rewrite.graph import emit


def insert_copies(module: HloModule, context: PassContext) -> bool:
    """Insert copies in every computation of the control flow, callees first."""
    unshared = unshare(module)
    computations = control_computations(module)
    for computation in computations:
        for instr in list(computation):
            if instr.opcode == "while" and instr.operands[0].opcode != "tuple":
                _take_apart(instr, context)
        _spell_out_root(computation, context)
    values = BufferValues(module)
    classes = BufferClasses(values, context.planner)
    for computation in computations:
        for instr in computation:
            if instr.opcode == "while":
                _share_state(instr, values, classes)
    inserters = [_Inserter(c, values, classes, context) for c in computations]
    for inserter in inserters:
        inserter.settle()
    for inserter in inserters:
        inserter.reuse()
    for inserter in inserters:
        inserter.order()
    sort_computations(module)
    return bool(unshared or any(context.counts.values()))


def _take_apart(loop: HloInstruction, context: PassContext) -> None:
    """Make the state that a loop starts from a tuple of arrays, each of which can be copied."""
    state = loop.operands[0]
    if not isinstance(state.shape, TupleShape):
        raise UnsupportedError(
            f"%{loop.name}: the state of a while must be a tuple; found one array", loop.span
        )
    loop.set_operand(0, _tuple_of(state, loop))
    context.counts["taken apart"] += 1


def _spell_out_root(computation: HloComputation, context: PassContext) -> None:
    """Make a root that has several results a tuple of arrays, each of which can be copied."""
    root = computation.root_instruction
    spelled_out = _spelled_out(root)
    if spelled_out is not root:
        computation.root = spelled_out
        context.counts["taken apart"] += 1


def _spelled_out(value: HloInstruction) -> HloInstruction:
    if not isinstance(value.shape, TupleShape):
        return value
    if value.opcode != "tuple":
        return _spelled_out(_tuple_of(value, None))
    parts = [_spelled_out(operand) for operand in value.operands]
    return value if parts == value.operands else emit(value, "tuple", value.shape, parts)


def _tuple_of(value: HloInstruction, before: HloInstruction | None) -> HloInstruction:
    """The same tuple, as an instruction that names every part; placed before another or last."""
    assert isinstance(value.shape, TupleShape)
    parts = [
        emit(value, "get-tuple-element", shape, (value,), {"index": i})
        for i, shape in enumerate(value.shape.elements)
    ]
    whole = emit(value, "tuple", value.shape, parts)
    if before is not None:
        _place(value.home, {before: [*parts, whole]}, [])
    return whole


def _place(
    computation: HloComputation,
    before: dict[HloInstruction, list[HloInstruction]],
    last: list[HloInstruction],
) -> None:
    """Move instructions to before others, and to the end."""
    moved = {instr for group in before.values() for instr in group} | set(last)
    order: dict[HloInstruction, None] = {}
    for instr in computation:
        if instr not in moved:
            order.update(dict.fromkeys(before.get(instr, ())))
            order[instr] = None
    order.update(dict.fromkeys(last))
    computation.instructions = order


def _share_state(loop: HloInstruction, values: BufferValues, classes: BufferClasses) -> None:
    """A loop's element is one buffer in the condition, in the body and afterwards."""
    condition, body = loop.condition, loop.body
    for leaf in range(leaf_count(loop.shape)):
        place = values.value((loop, leaf))
        for callee in (condition, body):
            classes.force(place, values.value((callee.parameters[0], leaf)))


@dataclass(eq=False)
class _Result:
    """Leaf `leaf` of a computation's root: the value, and the place it must lie in."""

    leaf: int
    value: Slot
    place: Slot
    copy: HloInstruction | None = None


class _Inserter:
    """Inserts the copies of one computation."""

    def __init__(
        self,
        computation: HloComputation,
        values: BufferValues,
        classes: BufferClasses,
        context: PassContext,
    ) -> None:
        self.computation = computation
        self.module = computation.owner
        self.values = values
        self.classes = classes
        self.context = context
        self.ends = values.ends[computation]
        self.before: dict[HloInstruction, list[HloInstruction]] = {}
        self.copied: list[_Result] = []
        self.tuples: list[HloInstruction] = []

    def settle(self) -> None:
        """Settle in-place updates and loop states, then the results."""
        for instr in list(self.computation):
            updated = updated_operand(instr)
            if updated is not None:
                self._own_operand(instr, updated)
            elif instr.opcode == "while":
                self._own_state(instr)
        results = self._results()
        self.copied = [r for r in results if not self.classes.join(r.value, r.place)]
        if self.copied:
            self._shorten({r.value for r in results if r not in self.copied})
            self._copy_results()

    def reuse(self) -> None:
        """Let transforms write over operands that nobody needs after them."""
        for instr in self.computation:
            if transform_of(instr) is None:
                continue
            is_tuple = isinstance(instr.shape, TupleShape)
            aliases = tuple(
                OutputOperandAlias((leaf,) if is_tuple else (), number, ())
                for leaf in range(leaf_count(instr.shape))
                for number, operand in enumerate(instr.operands)
                if self.classes.join(self.values.value((operand, 0)), (instr, leaf))
            )
            instr.attrs.pop("output_to_operand_aliasing", None)
            if aliases:
                instr.attrs["output_to_operand_aliasing"] = aliases
                self.context.counts["in place"] += len(aliases)

    def order(self) -> None:
        """Put the copies in their places, now that it is known what shares a buffer."""
        last = [*self._ordered(), *self.tuples]
        if self.before or last:
            _place(self.computation, self.before, last)

    # What is overwritten.

    def _own_operand(self, instr: HloInstruction, index: int) -> None:
        operand = instr.operands[index]
        if not self._owns(operand, (instr, 0), instr):
            copy = self._copy_before(operand, instr)
            instr.set_operand(index, copy)
            self._follow((copy, 0), (instr, 0))

    def _own_state(self, loop: HloInstruction) -> None:
        state = loop.operands[0]
        parts = list(state.operands)
        for index, part in enumerate(parts):
            place = self.values.value((loop, index))
            if not self._owns(part, place, loop):
                parts[index] = self._copy_before(part, loop)
                self._follow((parts[index], 0), place)
        if parts == state.operands:
            return
        fresh = emit(state, "tuple", state.shape, parts)
        self.before.setdefault(loop, []).append(fresh)
        loop.set_operand(0, fresh)
        if not state.users and self.computation.root is not state:
            self.computation.remove(state)

    def _owns(self, operand: HloInstruction, place: Slot, user: HloInstruction) -> bool:
        """Whether `user` may overwrite its operand: nobody else needs the value from then on."""
        return self.classes.join(self.values.value((operand, 0)), place)

    def _copy_before(self, value: HloInstruction, user: HloInstruction) -> HloInstruction:
        """Another instance of a value, there from just before `user` on."""
        at = self.values.position[user]
        copy = self._second(value)
        inherit(copy.attrs, user)
        self.before.setdefault(user, []).append(copy)
        self.values.add(copy, at - 0.5, at)
        return copy

    def _second(self, value: HloInstruction) -> HloInstruction:
        """Another instance of a value: made anew if that reads nothing, else a copy."""
        if value.opcode != "fusion" or value.operands or value.kind != "kLoop":
            return self._copy(value)
        attrs = {**value.attrs, "calls": clone_computation(value.calls, module=self.module)}
        self.context.counts["refilled"] += 1
        return emit(value, "fusion", value.shape, (), attrs, value.name)

    def _copy(self, value: HloInstruction) -> HloInstruction:
        self.context.counts["copies"] += 1
        return emit(value, "copy", value.shape, (value,))

    def _follow(self, copy: Slot, place: Slot) -> None:
        is_joined = self.classes.join(copy, place)
        assert is_joined, f"%{copy[0].name}: a copy of its own is in someone's way"

    # Results.

    def _results(self) -> list[_Result]:
        """The root's arrays, and where they must lie; a condition's result may lie anywhere."""
        root = self.computation.root_instruction
        found = [self.values.value((root, leaf)) for leaf in range(leaf_count(root.shape))]
        if self.computation is self.module.entry:
            places = self._places_of_outputs()
        else:
            call = self.values.calls[self.computation].instr
            if call.opcode == "while" and call.body is not self.computation:
                return []
            places = [self.values.value((call, leaf)) for leaf in range(len(found))]
        return [_Result(i, v, p) for i, (v, p) in enumerate(zip(found, places, strict=True))]

    def _places_of_outputs(self) -> list[Slot]:
        """The module's outputs: donated parameters, or buffers of their own."""
        root, end = self.computation.root_instruction, self.ends.returning
        places: list[Slot] = []
        for leaf in range(leaf_count(root.shape)):
            place = output_place(root, leaf)
            self.values.spans[place] = {self.computation: Span(end, end)}
            places.append(place)
        for alias in donations(self.module):
            parameter = self.computation.parameters[alias.parameter_number]
            number = leaf_number(parameter.shape, alias.parameter_index)
            leaf = leaf_number(root.shape, alias.output_index)
            self.classes.force((parameter, number), places[leaf])
        return places

    def _shorten(self, kept: set[Slot]) -> None:
        """Values that are only copied at the end are read there last."""
        for result in self.copied:
            span = self.values.spans[result.value][self.computation]
            if result.value not in kept and span.end == self.ends.returning:
                span.end = self.ends.reading

    def _copy_results(self) -> None:
        root = self.computation.root_instruction
        parts = _parts(root)
        for result in self.copied:
            result.copy = parts[result.leaf] = self._copy(parts[result.leaf])
            self.values.add(result.copy, self.ends.writing, self.ends.returning)
            self._follow((result.copy, 0), result.place)
        self.computation.root = self._rebuilt(root, iter(parts))
        if not root.users:
            self.computation.remove(root)

    def _rebuilt(self, value: HloInstruction, parts: Iterator[HloInstruction]) -> HloInstruction:
        """The same tuple of other arrays."""
        if value.opcode != "tuple":
            return next(parts)
        whole = emit(value, "tuple", value.shape, [self._rebuilt(o, parts) for o in value.operands])
        self.tuples.append(whole)
        return whole

    def _ordered(self) -> Iterator[HloInstruction]:
        """Copies of results, in an order in which none overwrites what another has yet to read.

        Where they wait for each other in a circle, one value is saved first.
        """
        waiting = list(self.copied)
        readers = Counter(id(self.classes.find(r.value)) for r in waiting)
        while waiting:
            result = next((r for r in waiting if self._is_ready(r, readers)), waiting[0])
            assert result.copy is not None
            if not self._is_ready(result, readers):
                saved = self._copy(result.copy.operands[0])
                result.copy.set_operand(0, saved)
                self.values.add(saved, self.ends.reading, self.ends.writing)
                readers[id(self.classes.find(result.value))] -= 1
                result.value = (saved, 0)
                readers[id(self.classes.find(result.value))] += 1
                yield saved
                continue
            readers[id(self.classes.find(result.value))] -= 1
            waiting.remove(result)
            yield result.copy

    def _is_ready(self, result: _Result, readers: Counter[int]) -> bool:
        place = self.classes.find(result.place)
        return readers[id(place)] == (place is self.classes.find(result.value))


def _parts(value: HloInstruction) -> list[HloInstruction]:
    """The arrays of a root that is spelled out."""
    if value.opcode != "tuple":
        return [value]
    return [part for operand in value.operands for part in _parts(operand)]
