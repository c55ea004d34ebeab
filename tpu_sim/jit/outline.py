"""Components as shared functions: equal structure compiles once.

A component's operations are put into an order that does not depend on the schedule (depth first
from its stores, by address). What differs between unrolled copies - addresses, queue slots, sreg
values - becomes arguments, the rest is the key under which the emitted function is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tpu_sim.jit.component import Component, LocalOp
from tpu_sim.jit.emitter import PLAIN, TUNED, FunctionEmitter
from tpu_sim.jit.hbm_windows import WindowPieces
from tpu_sim.jit.regions import ComponentEmitter
from tpu_sim.jit.staging import Staging
from tpu_sim.jit.values import Argument, OperationRole, RowAddress, Scalar, Use, ValueOp, use

_ACCESSES = (OperationRole.LOAD, OperationRole.STORE)
_NO_ADDRESS = LocalOp(OperationRole.POINT, "", (), is_mask=False)[4:11]
_new = tuple.__new__
"""Makes a named tuple of all its fields, several times as fast as its class does."""


@dataclass
class OutlinedComponent:
    """A component and its arguments: first address of each group, leaves, outputs, scalars."""

    component: Component
    groups: list[RowAddress]
    leaves: list[int]
    outs: list[int]
    scalars: list[Scalar]

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two components the same function."""
        return (self.component.ops, self.component.group_windows, len(self.scalars))


@dataclass
class _Builder:
    """Numbers the operations of one component by a depth-first walk."""

    staging: Staging
    stage: int
    outputs: frozenset[int]
    pieces: Mapping[int, WindowPieces]
    numbers: dict[int, int] = field(default_factory=dict)
    ops: list[LocalOp] = field(default_factory=list)
    groups: dict[tuple[int, str], int] = field(default_factory=dict)
    firsts: list[RowAddress] = field(default_factory=list)
    windows: dict[int, int] = field(default_factory=dict)
    leaves: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    scalars: dict[str, int] = field(default_factory=dict)
    scalar_list: list[Scalar] = field(default_factory=list)

    def visit(self, root: int) -> None:
        """Number `root` after everything it needs (no recursion: chains may be long)."""
        numbers, ops = self.numbers, self.ops
        stack = [root]
        while stack:
            index = stack[-1]
            if index not in numbers:
                op = self._computed(index)
                if op is not None:
                    waiting = [i for i in op.uses if i not in numbers]
                    if op.memory_before:
                        waiting += [i for i in self._accesses_before(op) if i not in numbers]
                    if waiting:
                        waiting.reverse()
                        stack += waiting
                        continue
                numbers[index] = len(ops)
                ops.append(self._localize(index, op))
            stack.pop()

    def _accesses_before(self, op: ValueOp) -> list[int]:
        ops, stage = self.staging.ops, self.stage
        return [b for b, _ in op.memory_before
                if ops[b].stage == stage and ops[b].role in _ACCESSES]  # fmt: skip

    def _computed(self, index: int) -> ValueOp | None:
        """The operation of a value, None if it comes from memory: a leaf, or of another stage."""
        op = self.staging.ops.get(index)
        if op is None or (role := op.role) is OperationRole.LEAF or role is OperationRole.STATE:
            return None
        return op if op.stage == self.stage or index in self.staging.cheap else None

    def _localize(self, index: int, op: ValueOp | None) -> LocalOp:
        out = self._out(index) if index in self.outputs else -1
        if op is None:
            self.leaves.append(index)
            leaf, is_mask = len(self.leaves) - 1, self.staging.ops[index].is_mask
            return LocalOp(OperationRole.LEAF, "", (), is_mask, leaf=leaf, out=out)
        numbers = self.numbers
        arguments = tuple(
            [use(numbers[a[0]]) if type(a) is Use else self._argument(a) for a in op.arguments]
        )
        name = "" if op.row is None else op.row.name
        address = op.address
        if address is None:
            return _new(LocalOp, (op.role, name, arguments, op.is_mask, *_NO_ADDRESS, out, ()))
        group, offset = self._address(address)
        piece, phase, piece_rows = self._piece(address, group) if self.pieces else (0, 0, 0)
        memory = tuple([numbers[b] for b, _ in op.memory_before if b in numbers])
        place = (group, offset, address.stride, piece, phase, piece_rows, -1)
        return _new(LocalOp, (op.role, name, arguments, op.is_mask, *place, out, memory))

    def _piece(self, address: RowAddress, group: int) -> tuple[int, int, int]:
        """Piece and row within it of an access, and rows of a piece; zeros where there are none."""
        pieces = self.pieces.get(address.window)
        if pieces is None:
            return 0, 0, 0
        first = pieces.number(self.firsts[group].offset)
        return pieces.number(address.offset) - first, address.offset % pieces.rows, pieces.rows

    def _out(self, index: int) -> int:
        """The number of the output pointer a value is written to."""
        self.outs.append(index)
        return len(self.outs) - 1

    def _argument(self, argument: Argument) -> Argument:
        """What differs between copies, numbered."""
        if isinstance(argument, Scalar) and argument.text.startswith("%"):
            text = argument.text
            if text not in self.scalars:
                self.scalars[text] = len(self.scalars)
                self.scalar_list.append(argument)
            return Scalar(f"%s{self.scalars[text]}", "", 0)
        return argument

    def _address(self, address: RowAddress) -> tuple[int, int]:
        window, root, offset, _ = address
        group = self.groups.get((window, root))
        if group is None:
            group = self.groups[window, root] = len(self.firsts)
            self.firsts.append(address)
            self.windows.setdefault(window, len(self.windows))
        return group, offset - self.firsts[group].offset


def outline(
    staging: Staging,
    stage: int,
    members: list[int],
    outputs: frozenset[int],
    pieces: Mapping[int, WindowPieces],
) -> OutlinedComponent | None:
    """The component of `members`, None if nothing it computes is stored or used elsewhere.

    `pieces`: windows whose data may lie in pieces.
    """

    def rank(op: ValueOp) -> tuple[int, int, str, int, int]:
        address = op.address
        assert address is not None
        return (address.window, len(address.root), address.root, address.offset, op.index)

    stores = [staging.ops[i] for i in members if staging.ops[i].role is OperationRole.STORE]
    sinks = [op.index for op in sorted(stores, key=rank)]
    sinks += [i for i in members if i in outputs]
    if not sinks:
        return None
    builder = _Builder(staging, stage, outputs.intersection(members), pieces)
    for sink in sinks:
        builder.visit(sink)
    windows = tuple(builder.windows[first.window] for first in builder.firsts)
    component = Component(tuple(builder.ops), windows)
    return OutlinedComponent(
        component, builder.firsts, builder.leaves, builder.outs, builder.scalar_list
    )


class ComponentLibrary:
    """The component functions of a module, by structure.

    A function takes its arguments in memory, 8 bytes each: pointers of groups, leaves and outputs,
    gaps of groups in pieces, scalars; and scratch memory.
    """

    def __init__(self, emit: Callable[[str], None]) -> None:
        """`emit` takes the text of each function."""
        self._numbers: dict[tuple[object, ...], int] = {}
        self._emit_text = emit
        self.scratch_bytes = 0

    def number(self, outlined: OutlinedComponent) -> int:
        """The number of the function that runs this component, emitted at first need."""
        key = outlined.key
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            self._emit(f"component{number}", outlined)
        return number

    @property
    def names(self) -> list[str]:
        """The functions by number."""
        return [f"component{number}" for number in range(len(self._numbers))]

    def _emit(self, name: str, outlined: OutlinedComponent) -> None:
        emitter = ComponentEmitter(outlined.component)
        body = emitter.emit()
        self.scratch_bytes = max(self.scratch_bytes, emitter.scratch_bytes)
        parameters = [f"ptr %g{i}" for i in range(len(outlined.groups))]
        parameters += [f"ptr %l{i}" for i in range(len(outlined.leaves))]
        parameters += [f"ptr %o{i}" for i in range(len(outlined.outs))]
        parameters += [f"i64 %h{i}" for i in outlined.component.spread_groups]
        parameters += [f"i32 %s{i}" for i in range(len(outlined.scalars))]
        e = FunctionEmitter("a")
        for position, parameter in enumerate(parameters):
            llvm_type, parameter_name = parameter.split(" ", 1)
            place = e.offset("%arguments", 8 * position)
            e.do(f"{parameter_name} = load {llvm_type}, ptr {place}")
        attributes = TUNED if emitter.is_streaming else PLAIN
        self._emit_text(
            f"define void @{name}(ptr %arguments, ptr noalias %scratch) "
            f"noinline {attributes} {{\nentry:\n{e.text()}\n{body}\n ret void\n}}\n"
        )
