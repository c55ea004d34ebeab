"""Derived stacks: what follows from another stack by a few operations is made again where it is read.

    forward     hs = dynamic-update-slice(hs, h, i)      ds = dynamic-update-slice(ds, 1 - h, i)
    backward    d = dynamic-slice(ds, j)         ->      d = 1 - dynamic-slice(hs, j)

The derivatives of tanh and of a sigmoid are made of their values, and automatic differentiation keeps both
for the loop that goes back: a stack is written and read for what one vector operation says.

Nothing is rounded in another way: the same operations meet the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.analysis.loop_invariants import is_invariant, state_reads
from compiler.analysis.trip_count import trip_count
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.loop_state import drop_unused
from compiler.passes.trip_order import Order, order_of, trip_counter
from compiler.rewrite import make
from compiler.rewrite.graph import emit, remove_dead
from compiler.rewrite.loop_growth import can_grow
from compiler.rewrite.pattern import splat_value

Instr = HloInstruction

_CHEAP = frozenset({"add", "multiply", "negate", "subtract"})
_MOST_OPERATIONS = 4
"""Of a slab that is made again: they take less time than its elements take to come."""


@dataclass(frozen=True)
class _Stack:
    """What each trip writes into its slab of a stack, and in which order trips go over it."""

    value: Instr
    order: Order


@dataclass(frozen=True)
class _Reader:
    """A loop that reads slabs of a stack, and where it has the stacks that this one is made of."""

    loop: Instr
    place: int
    sources: dict[Instr, int]

    def slabs(self) -> list[Instr] | None:
        """What it reads of the stack; None if it does anything else with it."""
        body, found = self.loop.body, []
        if state_reads(self.loop.condition, self.place) or not is_invariant(body, self.place):
            return None
        for whole in state_reads(body, self.place):
            for user in whole.users:
                if user is body.root_instruction and user.operands.count(whole) == 1:
                    continue
                if user.opcode != "dynamic-slice" or user.operands.count(whole) != 1:
                    return None
                if user.array.dims != (1, *whole.array.dims[1:]) or _is_multiplied(user):
                    return None
                found.append(user)
        return found


def derive_stacks(module: HloModule) -> int:
    """Do so for all loops, each of which has a body of its own; returns how many stacks went."""
    count = 0
    for computation in control_computations(module):
        for loop in [i for i in computation if i.opcode == "while"]:
            if loop.computation is not None and can_grow(loop):
                count += _derive(loop)
    return count


def _derive(loop: Instr) -> int:
    stacks = _stacks(loop)
    needed: set[int] = set()
    gone: set[int] = set()
    changed: list[Instr] = []
    for index, stack in stacks.items():
        if index in needed:
            continue
        sources = {
            other.value: n
            for n, other in stacks.items()
            if n != index and n not in gone and other.order == stack.order
        }
        used = _made_of(stack.value, sources)
        readers = None if not used else _readers(loop, index, {v: sources[v] for v in used})
        if used and readers:
            for reader in readers:
                _make_again(reader, stack.value)
            changed += [reader.loop for reader in readers]
            needed |= {sources[value] for value in used}
            gone.add(index)
    for reader_loop in dict.fromkeys(changed):
        state = reader_loop.operands[0]
        reader_loop.body.sort()
        drop_unused(reader_loop)
        remove_dead(state)
    if gone:
        drop_unused(loop)
    return len(gone)


def _stacks(loop: Instr) -> dict[int, _Stack]:
    """Elements of the state of which each trip writes another slab, and that the loop reads nothing of."""
    body, trips, counter = loop.body, trip_count(loop), trip_counter(loop)
    root = body.root_instruction
    found: dict[int, _Stack] = {}
    if counter is None or trips is None or root.opcode != "tuple":
        return found
    for index, store in enumerate(root.operands):
        held = state_reads(body, index)
        if store.opcode != "dynamic-update-slice" or list(store.users) != [root] or len(held) != 1:
            continue
        whole, piece, start = store.operands[:3]
        if (
            whole is not held[0]
            or list(whole.users) != [store]
            or state_reads(loop.condition, index)
        ):
            continue
        dims = store.array.dims
        order = order_of(start, counter, trips)
        is_slab = piece.opcode == "reshape" and piece.operands[0].array.dims == dims[1:]
        if dims[:1] == (trips,) and piece.array.dims == (1, *dims[1:]) and is_slab and order:
            found[index] = _Stack(piece.operands[0], order)
    return found


def _made_of(value: Instr, sources: dict[Instr, int]) -> set[Instr] | None:
    """Of which sources a value is a few cheap operations; None if it is not."""
    used: set[Instr] = set()
    pending, count = [value], 0
    while pending:
        node = pending.pop()
        if node in sources and node.array.dims == value.array.dims:
            used.add(node)
        elif splat_value(node) is None:
            count += 1
            if node.opcode not in _CHEAP or count > _MOST_OPERATIONS:
                return None
            pending.extend(node.operands)
    return used


def _readers(loop: Instr, index: int, sources: dict[Instr, int]) -> list[_Reader] | None:
    """Who reads the stack behind the loop; None if not all are loops that read slabs of the sources, too."""
    found: list[_Reader] = []
    for result in (u for u in loop.users if u.index == index):
        for state in result.users:
            if state.opcode != "tuple" or state.operands.count(result) != 1:
                return None
            for user in state.users:
                reader = _reader(loop, user, state.operands.index(result), sources)
                if reader is None or reader.slabs() is None:
                    return None
                found.append(reader)
    return found


def _reader(loop: Instr, user: Instr, place: int, sources: dict[Instr, int]) -> _Reader | None:
    if user.opcode != "while" or not can_grow(user):
        return None
    state = user.operands[0].operands
    there: dict[Instr, int] = {}
    for value, index in sources.items():
        for n, operand in enumerate(state):
            is_stack = operand.opcode == "get-tuple-element" and operand.operands[0] is loop
            if is_stack and operand.index == index and is_invariant(user.body, n):
                there[value] = n
    return _Reader(user, place, there) if len(there) == len(sources) else None


def _is_multiplied(slab: Instr) -> bool:
    """Whether a product takes a slab as it lies: `summed-products` finds the stack behind it."""
    return any(u.opcode == "dot" for u in _seen_through_reshapes(slab))


def _seen_through_reshapes(slab: Instr) -> Iterator[Instr]:
    for user in slab.users:
        if user.opcode == "reshape":
            yield from _seen_through_reshapes(user)
        else:
            yield user


def _make_again(reader: _Reader, value: Instr) -> None:
    for slab in reader.slabs() or ():
        slab.replace_all_uses_with(_again(reader, value, slab))


def _again(reader: _Reader, value: Instr, slab: Instr) -> Instr:
    """What a trip of the first loop computed, of the slabs that the reader has at the place of `slab`."""
    shape = value.array.with_layout(None).with_dims(slab.array.dims)
    if value in reader.sources:
        whole = state_reads(reader.loop.body, reader.sources[value])[0]
        operands = (whole, *slab.operands[1:])
        return emit(slab, "dynamic-slice", shape, operands, dict(slab.attrs))
    number = splat_value(value)
    if number is not None:
        return make.splat(slab, shape, number)
    parts = [_again(reader, operand, slab) for operand in value.operands]
    return emit(slab, value.opcode, shape, parts)
