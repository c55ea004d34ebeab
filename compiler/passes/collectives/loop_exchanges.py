"""Exchanges of a loop that need nothing of its turn: done once before it, or for the next turn.

    body: i, W                         body: i, W, g
      g = all-gather(W[i])       =>      use(g)
      use(g)                             next = all-gather(W[i + 1])

What depends on nothing that changes is exchanged before the loop. A gather that depends on counters
alone, as that of a layer's weights in a scan does, becomes part of the state: the loop starts with the first,
and gathers for the next turn what it has used, into the same place, while the rest of the turn runs
(`latency_hiding`). That is done where turns get shorter by more than one more gather takes.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.running_time import RunningTimes
from compiler.analysis.tiled_layout import byte_size
from compiler.analysis.trip_count import trip_count
from compiler.hlo.call_graph import control_computations, drop_unreachable, sort_computations
from compiler.hlo.cloning import clone, clone_computation
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.collectives.halves import can_split
from compiler.passes.collectives.latency_hiding import peak_bytes, running_times, turn_cycles
from compiler.passes.context import PassContext
from compiler.rewrite.graph import emit, has_side_effect, remove_dead
from compiler.rewrite.loop_growth import add_state, can_grow

Instr = HloInstruction

_LEAST_TRIPS = 3
"""Of a loop whose first exchange moves before it: with fewer there is too little left to hide one
behind (assumed)."""


def move_out_of_loops(module: HloModule, context: PassContext) -> bool:
    """Exchange before loops what does not change in them, and a turn ahead what a turn would wait for."""
    times = running_times(module, context)
    free_bytes = None
    for computation in control_computations(module):
        for instr in list(computation):
            if instr.opcode != "while" or not _can_grow(instr):
                continue
            loop = _Loop(instr, times)
            for exchange in loop.exchanges():
                moved = loop.moved(exchange)
                if moved is None:
                    continue
                if free_bytes is None:
                    free_bytes = context.chip.hbm_bytes - peak_bytes(module)
                if byte_size(moved.exchange.array) > free_bytes:
                    context.remarks.append(f"%{moved.exchange.name} stays in its loop: HBM is full")
                elif loop.move(moved):
                    free_bytes -= byte_size(moved.exchange.array)
                    context.counts["ahead" if moved.changes else "out"] += 1
    drop_unreachable(module)
    if context.counts:
        sort_computations(module)
    return bool(context.counts)


def _can_grow(loop: Instr) -> bool:
    """Whether a loop runs so often as is known, and may carry one more value."""
    return can_grow(loop) and _trips(loop) >= _LEAST_TRIPS


def _trips(loop: Instr) -> int:
    return trip_count(loop) or 0


@dataclass(frozen=True)
class _Moved:
    """An exchange, with what leads to it in order, itself last; does that depend on a counter?"""

    exchange: Instr
    cone: tuple[Instr, ...]
    changes: bool


class _Loop:
    """A loop whose state may get more elements."""

    def __init__(self, loop: Instr, times: RunningTimes) -> None:
        self.loop, self.body, self.times = loop, loop.body, times
        self.parameter = self.body.parameters[0]
        self._turn: float | None = None
        """Cycles of a turn as it is; looked for when first asked for."""

    def exchanges(self) -> list[Instr]:
        """Those of the body, last first: one that needs another is moved together with it."""
        return [i for i in reversed(list(self.body)) if can_split(i)]

    def moved(self, exchange: Instr) -> _Moved | None:
        """An exchange of what the state's elements that stay and its counters say, and little more; None
        for any other, and for one that is not there any more."""
        if exchange.computation is None or not isinstance(exchange.shape, ArrayShape):
            return None
        cone = self._cone(exchange)
        if cone is None:
            return None
        changes = any(self._is_counter(i) for i in cone)
        if changes and exchange.calls.root_instruction.opcode != "all-gather":
            return None
        leading = sum(self.times.of(i) for i in cone if not can_split(i))
        return None if leading > self.times.of(exchange) else _Moved(exchange, tuple(cone), changes)

    def _cone(self, end: Instr) -> list[Instr] | None:
        """What `end` depends on, in order, elements of the state included; None if it must stay."""
        wanted, left = {end}, [end]
        while left:
            instr = left.pop()
            if self._is_element(instr):
                if not self._stays(instr) and not self._is_counter(instr):
                    return None
                continue
            if instr.opcode == "parameter" or (not can_split(instr) and not _is_free(instr)):
                return None
            for operand in instr.operands:
                if operand not in wanted:
                    wanted.add(operand)
                    left.append(operand)
        return [i for i in self.body if i in wanted]

    def _is_element(self, instr: Instr) -> bool:
        return instr.opcode == "get-tuple-element" and instr.operands[0] is self.parameter

    def _next(self, element: Instr) -> Instr:
        return self.body.root_instruction.operands[element.index]

    def _stays(self, element: Instr) -> bool:
        following = self._next(element)
        return self._is_element(following) and following.index == element.index

    def _is_counter(self, instr: Instr) -> bool:
        """Whether it is an integer of the state that is worked out from such integers alone."""
        if not self._is_element(instr) or self._stays(instr):
            return False
        seen: set[Instr] = set()
        left = [self._next(instr)]
        while left:
            value = left.pop()
            if value in seen:
                continue
            seen.add(value)
            is_scalar = isinstance(value.shape, ArrayShape) and not value.shape.dims
            if not is_scalar or not value.array.dtype.is_integer:
                return False
            if not self._is_element(value):
                if not _is_free(value):
                    return False
                left += value.operands
        return True

    def move(self, moved: _Moved) -> bool:
        """Put the exchange into the state: made before the loop, and in each turn for the next one; False,
        and all is as it was, if the turns do not get so much shorter as it costs."""
        caller, body, root = self.loop.computation, self.body, self.body.root_instruction
        assert caller is not None
        initial = self.loop.operands[0]
        before = self._turn_cycles() if moved.changes else 0.0
        orders = {computation: list(computation) for computation in (caller, body)}
        states = {i: initial.operands[i.index] for i in moved.cone if self._is_element(i)}
        first = self._copies(moved, caller, states, self.loop)
        element = emit(self.parameter, "get-tuple-element", moved.exchange.shape, [self.parameter])
        element.attrs["index"] = len(initial.operands)
        _place(body, [element], behind=self.parameter)
        following = element
        if moved.changes:
            states = {i: self._next(i) for i in moved.cone if self._is_element(i)}
            following = self._copies(moved, body, states, root)
        moved.exchange.replace_all_uses_with(element)
        self._grow(first, following)
        unused = [*_unused(moved), root]
        body.instructions = dict.fromkeys(i for i in body if i not in unused)
        after = turn_cycles(body, self.times) if moved.changes else None
        least = sum(map(self.times.of, moved.cone))
        is_kept = after is None or (before - after) * _trips(self.loop) > least
        self._turn = after if is_kept else before
        body.instructions |= dict.fromkeys(unused)
        if not is_kept:
            element.replace_all_uses_with(moved.exchange)
            self._shrink(initial, root)
        for old in (initial, root, moved.exchange) if is_kept else (following, first, element):
            remove_dead(old)
        for computation, order in orders.items() if not is_kept else ():
            assert set(computation.instructions) == set(order)
            computation.instructions = dict.fromkeys(order)
        return is_kept

    def _turn_cycles(self) -> float:
        if self._turn is None:
            self._turn = turn_cycles(self.body, self.times)
        return self._turn

    def _shrink(self, initial: Instr, root: Instr) -> None:
        """The state is as it was."""
        ends = (self.loop, self.loop.condition.parameters[0], self.parameter)
        for end in ends:
            end.shape = initial.shape
        new = (self.loop.operands[0], self.body.root_instruction)
        self.loop.set_operands([initial])
        self.body.root = root
        for tuple_ in new:
            remove_dead(tuple_)

    def _copies(
        self, moved: _Moved, target: HloComputation, known: dict[Instr, Instr], place: Instr
    ) -> Instr:
        """What leads to the exchange, and it, once more; before `place`."""
        copies, made = dict(known), []
        for instr in moved.cone:
            if instr in copies:
                continue
            copy = clone(instr, target, [copies[o] for o in instr.operands])
            called = instr.attrs.get("calls")
            if isinstance(called, HloComputation):
                copy.attrs["calls"] = clone_computation(called, module=target.owner)
            copies[instr] = copy
            made.append(copy)
        _place(target, made, before=place)
        return copies[moved.exchange]

    def _grow(self, first: Instr, following: Instr) -> None:
        """One more element of the state."""
        state = add_state(self.loop, first, following)
        _place(state.home, [state], before=self.loop)


def _unused(moved: _Moved) -> list[Instr]:
    """What nobody needs any more when the exchange has no users."""
    found: list[Instr] = []
    for instr in reversed(moved.cone):
        if all(user in found for user in instr.users):
            found.append(instr)
    return found


def _is_free(instr: Instr) -> bool:
    """Whether it may run elsewhere, and as often as one likes."""
    inner = [i for called in instr.called_computations() for i in called]
    bound = any(OPCODES[i.opcode].has(trait) for i in (instr, *inner) for trait in _BOUND)
    return not bound and not has_side_effect(instr)


_BOUND = (Trait.COLLECTIVE, Trait.NONDETERMINISTIC, Trait.HANDS_STATE, Trait.ASYNC)


def _place(
    computation: HloComputation,
    made: list[Instr],
    before: Instr | None = None,
    behind: Instr | None = None,
) -> None:
    """Put instructions, which stand at the end, next to another one."""
    moved = set(made)
    order: list[Instr] = []
    for instr in computation:
        if instr in moved:
            continue
        order += made if instr is before else []
        order.append(instr)
        order += made if instr is behind else []
    computation.instructions = dict.fromkeys(order)
