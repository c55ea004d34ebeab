"""Scalar arrays: arrays of which a loop reads elements as scalars lie in SMEM while it runs.

    body: t, ids, i                         body: t, ids, i, w            w: a copy of ids in SMEM
      j = s32[] ids[i]               =>       j = s32[] fusion(w, i), kind=kScalar
      use(t[j])                               use(t[j])

What a kernel computes comes to the scalar unit by a transfer, which takes some hundred cycles, before
the next index is known. One transfer brings the whole array instead, where the loop leaves it as it is
or writes it element by element; such a loop writes both. An array that nobody else reads is in SMEM alone and
comes back after the loop. Inner loops go first: what they want copied, the outer loop carries, if it can.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from compiler.analysis.element_access import is_element_access
from compiler.analysis.loop_invariants import element_reads, is_invariant, state_reads
from compiler.analysis.trip_count import expected_trips
from compiler.hlo.call_graph import control_computations
from compiler.hlo.dtypes import S32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait, with_any
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.control_unsharing import unshare
from compiler.passes.element_reads import (
    array_of,
    clamped,
    index_of,
    linear_index,
    read_element,
    scalar_of,
    source_of,
    word_type,
    words_of,
    write_element,
)
from compiler.passes.loop_state import drop_unused
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit, remove_dead, replace
from compiler.rewrite.loop_growth import add_state, can_grow

Instr = HloInstruction

_LEAST_TRIPS = 8
"""A copy takes as long as a few elements."""
_SHARE = 4
"""Part of SMEM that all these arrays have."""
_SINGLE = with_any(Trait.ELEMENTWISE | Trait.INDEX_MAP)


def keep_arrays_in_smem(module: HloModule, context: PassContext) -> bool:
    """Copy arrays that loops read element by element to SMEM."""
    unshared = unshare(module)
    known = _Known(context.chip.smem_words // _SHARE)
    loops: list[Instr] = []
    for computation in control_computations(module):
        for loop in [i for i in computation if i.opcode == "while"]:
            trips = expected_trips(loop)
            if can_grow(loop) and (trips is None or trips >= _LEAST_TRIPS):
                loop.body.sort()
                context.counts["arrays"] += _of_loop(loop, known)
                loops.append(loop)
        computation.sort()
    for loop in loops if known.words else ():
        drop_unused(loop)
    return bool(unshared or context.counts["arrays"])


@dataclass
class _Known:
    """What has been done so far: `words` has the element of a loop's state that is a copy of another one,
    `back` arrays that are made of such after their loop, `unread` elements that nothing needs any more."""

    room: int
    words: dict[tuple[Instr, int], int] = field(default_factory=dict)
    back: dict[Instr, tuple[Instr, int]] = field(default_factory=dict)
    unread: set[tuple[Instr, int]] = field(default_factory=set)

    def inner(self, value: Instr) -> tuple[Instr, int] | None:
        """The inner loop and the element of its state that a value is what is left of, if it has a copy."""
        if value.opcode == "get-tuple-element" and (value.operands[0], value.index) in self.words:
            return value.operands[0], value.index
        return self.back.get(value)


def _of_loop(loop: Instr, known: _Known) -> int:
    count = 0
    for leaf, first in enumerate(list(loop.operands[0].operands)):
        if not isinstance(first.shape, ArrayShape) or word_type(first.array.dtype) is None:
            continue
        if not 1 < first.array.element_count <= known.room:
            continue
        array = _LoopArray(loop, leaf, known)
        if array.is_wanted():
            array.carry()
            known.room -= first.array.element_count
            count += 1
    return count


class _LoopArray:
    """One array of a loop's state; `held` are its instances in the body, in order."""

    def __init__(self, loop: Instr, leaf: int, known: _Known) -> None:
        self.loop, self.leaf, self.known = loop, leaf, known
        self.body, self.condition = loop.body, loop.condition
        self.held: dict[Instr, None] = {}
        for instr in self.body:
            if self._is_instance(instr):
                self.held[instr] = None

    def _is_instance(self, instr: Instr) -> bool:
        if instr.opcode == "get-tuple-element" and instr.operands[0] is self.body.parameters[0]:
            return instr.index == self.leaf
        if instr.opcode == "dynamic-update-slice":
            starts = (start.array.dtype == S32 for start in instr.operands[2:])
            is_one = instr.operands[1].array.element_count == 1
            return instr.operands[0] in self.held and is_one and all(starts)
        inner = self.known.inner(instr)
        return inner is not None and _start(*inner) in self.held

    def is_wanted(self) -> bool:
        """Whether all changes are known, and elements steer something."""
        if self.body.root_instruction.operands[self.leaf] not in self.held:
            return False
        return any(self._inner_copies()) or any(self._reads())

    def _inner_copies(self) -> Iterator[Instr]:
        """Copies for inner loops."""
        for (loop, leaf), words in self.known.words.items():
            if loop.computation is self.body and _start(loop, leaf) in self.held:
                yield _start(loop, words)

    def _reads(self) -> Iterator[tuple[Instr, Instr]]:
        """Scalars that are elements and steer something, each with the instance it is read of."""
        before = dict.fromkeys(state_reads(self.condition, self.leaf))
        for computation, instances in ((self.body, self.held), (self.condition, before)):
            for instr in list(computation) if instances else ():
                if instr.opcode != "reshape" or instr.array.dims:
                    continue
                source = source_of(instr, instances)
                if source is not None and _steers(instr):
                    yield instr, source

    def carry(self) -> None:
        """Let the loop carry a copy in SMEM, and read elements of that."""
        loop, known = self.loop, self.known
        first, number = _start(loop, self.leaf), len(loop.operands[0].operands)
        copy = words_of(first)
        words: dict[Instr, Instr] = {}
        taken = self._taken(self.body.parameters[0], copy, number)
        inner_copies = list(self._inner_copies())
        for instr in self.held:
            words[instr] = self._words(instr, words, taken)
        for inner in inner_copies:
            source = _source_of_copy(inner, self.held)
            replace(inner, words[source])
        for element in state_reads(self.condition, self.leaf):
            words[element] = self._taken(self.condition.parameters[0], copy, number)
        for read, source in list(self._reads()):
            if read.computation is not None:
                index = index_of(read, source, read)
                replace(read, read_element(read, words[source], index, read.array.dtype))
        old = (loop.operands[0], self.body.root_instruction)
        last = words[old[1].operands[self.leaf]]
        add_state(loop, copy, last)
        for end in (*old, taken):
            remove_dead(end)
        known.words[loop, self.leaf] = number
        self._bring_back(number, first.array)
        for computation in (self.body, self.condition):
            computation.sort()

    def _taken(self, state: Instr, copy: Instr, number: int) -> Instr:
        return emit(state, "get-tuple-element", copy.shape, (state,), {"index": number})

    def _words(self, instr: Instr, words: dict[Instr, Instr], taken: Instr) -> Instr:
        """The copy of one instance."""
        inner = self.known.inner(instr)
        if inner is not None:
            loop = inner[0]
            attrs: dict[str, object] = {"index": self.known.words[inner]}
            return emit(instr, "get-tuple-element", taken.shape, (loop,), attrs)
        if instr.opcode == "get-tuple-element":
            return taken
        whole, update, *starts = instr.operands
        sizes = zip(whole.array.dims, update.array.dims, strict=True)
        e = Emitter.at(instr)
        index = linear_index(e, clamped(e, starts, [n - m for n, m in sizes]), whole.array.dims)
        return write_element(instr, words[whole], scalar_of(update), index)

    def _bring_back(self, number: int, shape: ArrayShape) -> None:
        """Nobody reads the array itself any more: what is read after the loop is made of the copy."""
        if any(self._is_read(value) for value in self.held):
            return
        if any(e.users for e in state_reads(self.condition, self.leaf)):
            return
        self.known.unread.add((self.loop, self.leaf))
        if is_invariant(self.body, self.leaf):
            return
        for element in element_reads(self.loop, self.leaf):
            words = self._taken(self.loop, _start(self.loop, number), number)
            array = array_of(words, shape)
            replace(element, array)
            self.known.back[array] = (self.loop, self.leaf)

    def _is_read(self, value: Instr) -> bool:
        """Whether something other than the next instance needs an instance of the array."""
        for user in value.users:
            places = [n for n, operand in enumerate(user.operands) if operand is value]
            if user is self.body.root:
                if places != [self.leaf]:
                    return True
            elif user.opcode == "tuple":
                loops = [u for u in user.users if u.opcode == "while"]
                if len(loops) != len(user.users):
                    return True
                if any((u, n) not in self.known.unread for u in loops for n in places):
                    return True
            elif user in self.held and places == [0]:
                continue
            elif not self._is_for_updates(user):
                return True
        return False

    def _is_for_updates(self, value: Instr) -> bool:
        """Whether a value is but part of what is written to the array, by elements."""
        if not isinstance(value.shape, ArrayShape) or value.array.element_count != 1:
            return False
        if value is self.body.root or not value.users:
            return value is not self.body.root
        return all(
            user.operands.index(value) == 1 if user in self.held else self._is_for_updates(user)
            for user in value.users
        )


def _start(loop: Instr, leaf: int) -> Instr:
    """What an element of a loop's state is at first."""
    return loop.operands[0].operands[leaf]


def _source_of_copy(copy: Instr, held: dict[Instr, None]) -> Instr:
    """The instance that was copied for an inner loop."""
    value = copy
    while value not in held:
        value = value.operands[0]
    return value


def _steers(scalar: Instr) -> bool:
    """Whether control, a place or a scalar of the state depends on a scalar by scalars alone."""
    pending, seen = [scalar], {scalar}
    while pending:
        value = pending.pop()
        if not value.array.dims and _is_steering(value):
            return True
        for user in value.users:
            if user not in seen and _is_single(user):
                seen.add(user)
                pending.append(user)
            elif _is_place(user, value):
                return True
    return False


def _is_steering(scalar: Instr) -> bool:
    is_root = scalar.computation is not None and scalar.computation.root is scalar
    return is_root or any(map(_is_steered, scalar.users))


def _is_steered(user: Instr) -> bool:
    info = OPCODES[user.opcode]
    return is_element_access(user) or user.opcode == "tuple" or info.has(Trait.HANDS_STATE)


def _is_place(user: Instr, value: Instr) -> bool:
    first = {"dynamic-slice": 1, "dynamic-update-slice": 2}.get(user.opcode)
    return first is not None and value in user.operands[first:]


def _is_single(user: Instr) -> bool:
    if not isinstance(user.shape, ArrayShape) or user.array.element_count != 1:
        return False
    return user.opcode in _SINGLE and all(o.array.element_count == 1 for o in user.operands)
