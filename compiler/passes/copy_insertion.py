"""Copy insertion: makes sharing of buffers safe, with as few copies as the schedule allows.

Loop state, in-place updates and donated parameters are overwritten where they lie. A value may
be handed into such a place without a copy only if it is no one else's: made by a fusion of the
same computation and not read later. A body may write the new state straight into the old one's
place only when the old one is not read later (or is read by that very fusion at the same
index only, in blocks that do not overlap); otherwise it is copied there at the end of the body.

Runs on scheduled HLO: "later" is the order of instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

from compiler.analysis.aliasing import donations, leaf_number, updated_operand
from compiler.analysis.call_graph import control_computations
from compiler.analysis.window_planner import WindowPlanner
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.module_tools import clone_computation, sort_computations
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import TupleShape
from compiler.passes.context import PassContext
from compiler.rewrite.graph import emit

_FORWARDS = ("bitcast", "tuple", "get-tuple-element")


def insert_copies(module: HloModule, context: PassContext) -> bool:
    """Insert copies in every computation of the control flow, callees first."""
    unshared = _unshare_bodies(module)
    computations = control_computations(module)
    bodies = {i.attrs["body"] for c in computations for i in c if i.opcode == "while"}
    for computation in computations:
        targets = _targets(computation, module, is_body=computation in bodies)
        inserter = _Inserter(computation, targets, context)
        inserter.run(is_entry=computation is module.entry)
    sort_computations(module)
    return bool(unshared or any(context.counts.values()))


def _unshare_bodies(module: HloModule) -> int:
    """Give every while and conditional bodies of its own, so that each has its own buffers."""
    seen: set[HloComputation] = set()
    made = 0
    for computation in reversed(control_computations(module)):
        for instr in computation:
            if instr.opcode not in ("while", "conditional"):
                continue
            for callee in instr.called_computations():
                if callee not in seen:
                    seen.add(callee)
                    continue
                copy = clone_computation(callee, module=module)
                _unshare_fusions(copy, module)
                _rename_one(instr, callee, copy)
                seen.add(copy)
                made += 1
    if made:
        sort_computations(module)
    return made


def _unshare_fusions(computation: HloComputation, module: HloModule) -> None:
    for instr in computation:
        if instr.opcode in ("fusion", "while", "conditional"):
            for callee in instr.called_computations():
                copy = clone_computation(callee, module=module)
                _rename_one(instr, callee, copy)
                _unshare_fusions(copy, module)


def _rename_one(instr: HloInstruction, old: HloComputation, new: HloComputation) -> None:
    """Replace the last mention of `old` among what an instruction calls."""
    for key, value in reversed(instr.attrs.items()):
        if value is old:
            instr.attrs[key] = new
            return
        if isinstance(value, tuple) and old in value:
            position = len(value) - 1 - value[::-1].index(old)
            instr.attrs[key] = (*value[:position], new, *value[position + 1 :])
            return


@dataclass(frozen=True)
class _Target:
    """Root element `index` must lie where `place` (a parameter or its element) lies."""

    index: int
    place: HloInstruction | None


def _targets(
    computation: HloComputation, module: HloModule, *, is_body: bool
) -> dict[int, _Target]:
    """Which root elements have a fixed place: loop state, donated parameters."""
    root = computation.root_instruction
    if computation is module.entry:
        found: dict[int, _Target] = {}
        for alias in donations(module):
            index = leaf_number(root.shape, alias.output_index)
            parameter = computation.parameters[alias.parameter_number]
            found[index] = _Target(index, parameter)
        return found
    if not is_body or not isinstance(root.shape, TupleShape):
        return {}
    parameter = computation.parameters[0]
    elements: dict[int, HloInstruction] = {}
    for user in parameter.users:
        element = user.attrs.get("index")
        if user.opcode == "get-tuple-element" and isinstance(element, int):
            elements.setdefault(element, user)
    count = len(root.shape.elements)
    return {i: _Target(i, elements.get(i)) for i in range(count)}


class _Inserter:
    """Inserts the copies of one computation."""

    def __init__(
        self, computation: HloComputation, targets: dict[int, _Target], context: PassContext
    ) -> None:
        self.computation = computation
        self.targets = targets
        self.context = context
        self.order = {instr: i for i, instr in enumerate(computation)}
        self.before: dict[HloInstruction, list[HloInstruction]] = {}
        self.last_use = self._last_uses()

    def run(self, *, is_entry: bool) -> None:
        """Settle in-place updates and loop states, then the root; restore the order."""
        for instr in list(self.computation):
            updated = updated_operand(instr)
            if updated is not None:
                self._own_operand(instr, updated)
            elif instr.opcode == "while":
                self._own_state(instr)
        tail = self._settle_root(is_entry=is_entry)
        self._rebuild(tail)

    def _rebuild(self, tail: list[HloInstruction]) -> None:
        order: dict[HloInstruction, None] = {}
        late = set(tail)
        for instr in self.order:
            for copy in self.before.get(instr, ()):
                order[copy] = None
            if instr.computation is self.computation and instr not in late:
                order[instr] = None
        for instr in tail:
            order[instr] = None
        self.context.counts["reordered"] += list(order) != list(self.order)
        self.computation.instructions = order

    def _last_uses(self) -> dict[HloInstruction, int]:
        """The last position at which each value's buffer is read, through bitcasts and tuples."""
        last: dict[HloInstruction, int] = {}
        for instr in reversed(self.order):
            at = self.order[instr]
            latest = at if instr.opcode not in _FORWARDS else last.get(instr, at)
            if instr is self.computation.root:
                latest = len(self.order)
            for operand in instr.operands:
                last[operand] = max(last.get(operand, -1), latest)
        return last

    def _origin(self, value: HloInstruction) -> HloInstruction:
        """What made the value's buffer, looking through bitcasts and known tuples."""
        while True:
            if value.opcode == "bitcast":
                value = value.operands[0]
            elif value.opcode == "get-tuple-element" and value.operands[0].opcode == "tuple":
                index = value.attrs["index"]
                assert isinstance(index, int)
                value = value.operands[0].operands[index]
            else:
                return value

    def _is_own(self, value: HloInstruction, user: HloInstruction) -> bool:
        """Whether `user` may overwrite the value: made here by a fusion or copy, not read later."""
        origin = self._origin(value)
        if self._later_use(origin, user):
            return False
        if origin.opcode in ("fusion", "copy"):
            return True
        if origin.opcode == "get-tuple-element" and origin.operands[0].opcode == "fusion":
            return True
        return self._is_replaced_state(origin, user)

    def _later_use(self, origin: HloInstruction, user: HloInstruction) -> bool:
        """Whether anything but `user` reads the buffer at or after `user`."""
        at = self.order[user]
        pending = [origin]
        while pending:
            for reader in pending.pop().users:
                if reader is user:
                    continue
                if reader is self.computation.root:
                    return True
                if reader.opcode == "tuple" and set(reader.users) <= {user}:
                    continue
                if reader.opcode in _FORWARDS:
                    pending.append(reader)
                elif self.order.get(reader, len(self.order)) >= at:
                    return True
        return False

    def _is_replaced_state(self, origin: HloInstruction, user: HloInstruction) -> bool:
        """Whether the value is this body's old state and `user` makes the new one in its place."""
        for target in self.targets.values():
            if target.place is not origin:
                continue
            root = self.computation.root_instruction
            if root.opcode != "tuple" and isinstance(root.shape, TupleShape):
                return root is user and self._state_index(user, origin) == target.index
            made = self._origin(self._root_parts()[target.index])
            if made is user:
                return True
            if made.opcode == "get-tuple-element" and made.operands[0] is user:
                return self._state_index(user, origin) == made.attrs["index"]
        return False

    def _state_index(self, loop: HloInstruction, origin: HloInstruction) -> int | None:
        if loop.opcode != "while" or loop.operands[0].opcode != "tuple":
            return None
        parts = [self._origin(o) for o in loop.operands[0].operands]
        return parts.index(origin) if parts.count(origin) == 1 else None

    def _root_parts(self) -> list[HloInstruction]:
        root = self.computation.root_instruction
        return list(root.operands) if root.opcode == "tuple" else [root]

    def _copy(self, value: HloInstruction) -> HloInstruction:
        self.context.counts["copies"] += 1
        return emit(value, "copy", value.shape, (value,))

    def _second(self, value: HloInstruction) -> HloInstruction:
        """Another instance of a value: made anew if that reads nothing, else a copy."""
        assert self.computation.module is not None
        if value.opcode != "fusion" or value.operands or value.attrs.get("kind") != "kLoop":
            return self._copy(value)
        called = value.attrs["calls"]
        assert isinstance(called, HloComputation)
        attrs = {**value.attrs, "calls": clone_computation(called, module=self.computation.module)}
        self.context.counts["refilled"] += 1
        return emit(value, "fusion", value.shape, (), attrs, value.name)

    def _own_operand(self, instr: HloInstruction, index: int) -> None:
        value = instr.operands[index]
        if self._is_own(value, instr):
            return
        copy = self._second(value)
        self.before.setdefault(instr, []).append(copy)
        instr.set_operand(index, copy)

    def _own_state(self, loop: HloInstruction) -> None:
        """Make the initial state of a loop its own, except for what the body never changes."""
        state = loop.operands[0]
        if not isinstance(state.shape, TupleShape):
            raise UnsupportedError(
                f"%{loop.name}: the state of a while must be a tuple; found one array", loop.span
            )
        if state.opcode != "tuple":
            state = self._taken_apart(loop, state)
        invariant = _invariant_elements(loop)
        seen: set[HloInstruction] = set()
        parts: list[HloInstruction] = []
        for index, value in enumerate(state.operands):
            origin = self._origin(value)
            is_shared = index not in invariant and (
                origin in seen or state.operands.count(value) > 1 or not self._is_own(value, loop)
            )
            seen.add(origin)
            if is_shared:
                value = self._second(value)
                self.before.setdefault(loop, []).append(value)
            parts.append(value)
        if parts == state.operands:
            return
        fresh = emit(state, "tuple", state.shape, parts)
        self.before.setdefault(loop, []).append(fresh)
        loop.set_operand(0, fresh)
        if not state.users and self.computation.root is not state:
            self.computation.remove(state)

    def _taken_apart(self, loop: HloInstruction, state: HloInstruction) -> HloInstruction:
        assert isinstance(state.shape, TupleShape)
        parts = [
            emit(state, "get-tuple-element", shape, (state,), {"index": i})
            for i, shape in enumerate(state.shape.elements)
        ]
        whole = emit(state, "tuple", state.shape, parts)
        added = self.before.setdefault(loop, [])
        added.extend([*parts, whole])
        at = self.order[loop]
        self.order.update(dict.fromkeys([*parts, whole], at))
        loop.set_operand(0, whole)
        return whole

    def _settle_root(self, *, is_entry: bool) -> list[HloInstruction]:
        """Make every result lie in a place of its own; returns what now runs last, in order."""
        root = self.computation.root_instruction
        if not isinstance(root.shape, TupleShape):
            return self._settle_single(root, is_entry=is_entry)
        if root.opcode != "tuple":
            return [root]
        seen: set[HloInstruction] = set()
        copies: list[HloInstruction] = []
        parts: list[HloInstruction] = []
        for index, value in enumerate(root.operands):
            made = self._settled(value, index, seen, is_entry=is_entry)
            copies.extend(made)
            parts.append(made[-1] if made else value)
            seen.add(self._origin(value))
        if not copies:
            return [root]
        fresh = emit(root, "tuple", root.shape, parts)
        self.computation.root = fresh
        if not root.users:
            self.computation.remove(root)
            return [*_temporaries_first(copies), fresh]
        return [*_temporaries_first(copies), root, fresh]

    def _settle_single(self, root: HloInstruction, *, is_entry: bool) -> list[HloInstruction]:
        origin = self._origin(root)
        is_foreign = origin.opcode in ("parameter", "constant") or (
            origin.opcode == "get-tuple-element" and not self._is_made_here(origin)
        )
        if not is_foreign or not (is_entry or self.computation.parameters):
            return []
        copy = self._copy(root)
        self.computation.root = copy
        return [copy]

    def _is_made_here(self, element: HloInstruction) -> bool:
        """Whether a tuple element was written by this computation (not passed through a loop)."""
        source = element.operands[0]
        index = element.attrs["index"]
        if source.opcode == "while":
            return index not in _invariant_elements(source)
        return source.opcode != "parameter"

    def _settled(
        self,
        value: HloInstruction,
        index: int,
        seen: set[HloInstruction],
        *,
        is_entry: bool,
    ) -> list[HloInstruction]:
        """The copies that bring a root element to its place (none if it is there)."""
        origin, target = self._origin(value), self.targets.get(index)
        if target is not None and origin is target.place and origin not in seen:
            return []
        if target is not None and self._is_passed_through(origin, index):
            return []
        is_foreign = (
            origin.opcode in ("parameter", "constant")
            or origin in seen
            or (origin.opcode == "get-tuple-element" and not self._is_made_here(origin))
        )
        if is_foreign:
            first = self._copy(value)
            is_swap = target is not None and origin.opcode != "constant"
            return [first, self._copy(first)] if is_swap else [first]
        if target is None or target.place is None or self._may_replace(origin, target.place):
            return []
        return [self._copy(value)]

    def _is_passed_through(self, origin: HloInstruction, index: int) -> bool:
        """Whether a body's root element is its own parameter's element of the same number."""
        return (
            origin.opcode == "get-tuple-element"
            and origin.operands[0].opcode == "parameter"
            and origin.attrs["index"] == index
        )

    def _may_replace(self, made: HloInstruction, place: HloInstruction) -> bool:
        """Whether the old value in `place` is dead when `made` is written over it."""
        writer = made.operands[0] if made.opcode == "get-tuple-element" else made
        at = self.order[writer]
        aliases = self._aliases(place)
        readers = {r for a in aliases for r in a.users if r.opcode not in _FORWARDS}
        if any(self.order.get(r, len(self.order)) > at for r in readers):
            return False
        if self._is_returned_elsewhere(aliases, made):
            return False
        if writer not in readers:
            return True
        if updated_operand(writer) is not None or writer.opcode == "while":
            return self._is_replaced_state(place, writer) and writer.operands.count(place) <= 1
        is_pointwise = all(
            reads_in_place(writer, i) for i, o in enumerate(writer.operands) if o in aliases
        )
        return is_pointwise and blocks_are_disjoint(writer, self.context.planner)

    def _aliases(self, place: HloInstruction) -> set[HloInstruction]:
        """The instructions that hand the value in `place` on, itself included."""
        found = {place}
        if place.opcode == "get-tuple-element":
            twins = [
                u
                for u in place.operands[0].users
                if u.opcode == "get-tuple-element" and u.attrs["index"] == place.attrs["index"]
            ]
            found.update(twins)
        pending = list(found)
        while pending:
            for user in pending.pop().users:
                if user.opcode in ("bitcast", "tuple") and user not in found:
                    found.add(user)
                    pending.append(user)
        return found

    def _is_returned_elsewhere(self, aliases: set[HloInstruction], made: HloInstruction) -> bool:
        """Whether the old value is itself among the results."""
        return any(
            self._origin(part) in aliases and self._origin(part) is not made
            for part in self._root_parts()
        )


def _temporaries_first(copies: list[HloInstruction]) -> list[HloInstruction]:
    """Copies that only another copy reads first: they save what the others overwrite."""
    saved = {c.operands[0] for c in copies}
    return [c for c in copies if c in saved] + [c for c in copies if c not in saved]


def _invariant_elements(loop: HloInstruction) -> set[int]:
    """The elements of a loop's state that its body hands on unchanged."""
    body = loop.attrs["body"]
    assert isinstance(body, HloComputation)
    root = body.root_instruction
    if root.opcode != "tuple":
        return set()
    return {
        i
        for i, part in enumerate(root.operands)
        if part.opcode == "get-tuple-element"
        and part.operands[0] is body.parameters[0]
        and part.attrs["index"] == i
    }


def blocks_are_disjoint(fusion: HloInstruction, planner: WindowPlanner | None) -> bool:
    """Whether no grid step of a fusion computes what another step computed before.

    The last block of a dimension that the blocks do not divide starts earlier; in place, it
    would read what was already overwritten. False where no planner knows the blocks.
    """
    if planner is None:
        return False
    return all(d.total % d.block == 0 for d in planner.plan(fusion).grid)


def reads_in_place(fusion: HloInstruction, operand_index: int) -> bool:
    """Whether a fusion reads an operand only at the index it writes its results at."""
    if fusion.opcode != "fusion" or fusion.attrs.get("kind") not in ("kLoop", "kOutput"):
        return False
    called = fusion.attrs["calls"]
    assert isinstance(called, HloComputation)
    dims = called.parameters[operand_index].array.dims
    pending = [called.parameters[operand_index]]
    seen = set(pending)
    while pending:
        for user in pending.pop().users:
            if user.opcode == "tuple":
                continue
            is_same = OPCODES[user.opcode].has(Trait.ELEMENTWISE) and user.array.dims == dims
            if not is_same:
                return False
            if user not in seen:
                seen.add(user)
                pending.append(user)
    return True
