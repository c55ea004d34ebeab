"""Components as shared functions: equal structure compiles once.

A component's operations are put into an order that does not depend on the schedule (depth first
from its stores, by address). What differs between unrolled copies - addresses, queue slots, sreg
values - becomes arguments, the rest is the key under which the emitted function is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tpu_sim.jit.component import Component, LocalOp
from tpu_sim.jit.emitter import Emitter
from tpu_sim.jit.hbm_windows import Pieces
from tpu_sim.jit.regions import ComponentEmitter
from tpu_sim.jit.staging import Staging
from tpu_sim.jit.values import Address, Argument, Role, Scalar, Use, ValueOp


@dataclass
class OutlinedComponent:
    """A component and its arguments: first address of each group, leaves, outputs, scalars."""

    component: Component
    groups: list[Address]
    leaves: list[int]
    outs: list[int]
    scalars: list[Scalar]

    @property
    def key(self) -> tuple[object, ...]:
        """What makes two components the same function."""
        rows = tuple(
            (
                op.row.name if op.row is not None else op.role.value,
                op.arguments, op.is_mask, op.group, op.offset, op.stride, op.leaf, op.out,
                op.piece, op.phase, op.piece_rows,
            )
            for op in self.component.ops
        )  # fmt: skip
        return (rows, self.component.group_windows, len(self.scalars))


@dataclass
class _Builder:
    """Numbers the operations of one component by a depth-first walk."""

    staging: Staging
    stage: int
    outputs: frozenset[int]
    pieces: Mapping[int, Pieces]
    numbers: dict[int, int] = field(default_factory=dict)
    ops: list[LocalOp] = field(default_factory=list)
    groups: dict[tuple[int, str], int] = field(default_factory=dict)
    firsts: list[Address] = field(default_factory=list)
    windows: dict[int, int] = field(default_factory=dict)
    leaves: list[int] = field(default_factory=list)
    outs: list[int] = field(default_factory=list)
    scalars: dict[str, int] = field(default_factory=dict)
    scalar_list: list[Scalar] = field(default_factory=list)

    def visit(self, root: int) -> None:
        """Number `root` after everything it needs (no recursion: chains may be long)."""
        stack = [(root, False)]
        while stack:
            index, expanded = stack.pop()
            if index in self.numbers:
                continue
            before = [] if self._is_input(index) else self._needs(index)
            waiting = [i for i in reversed(before) if i not in self.numbers]
            if waiting and not expanded:
                stack.append((index, True))
                stack.extend((i, False) for i in waiting)
                continue
            self.numbers[index] = len(self.ops)
            self.ops.append(self._localize(index))

    def _needs(self, index: int) -> list[int]:
        op = self.staging.ops[index]
        memory = [
            b
            for b, _ in op.memory_before
            if self.staging.ops[b].stage == self.stage
            and self.staging.ops[b].role in (Role.LOAD, Role.STORE)
        ]
        return [*op.uses, *memory]

    def _is_input(self, index: int) -> bool:
        """Whether a value comes from memory: a leaf, or computed in an earlier stage."""
        op = self.staging.ops.get(index)
        if op is None or op.role is Role.LEAF or op.role is Role.STATE:
            return True
        return op.stage != self.stage and index not in self.staging.cheap

    def _localize(self, index: int) -> LocalOp:
        op = self.staging.ops[index]
        if self._is_input(index):
            self.leaves.append(index)
            leaf = len(self.leaves) - 1
            return LocalOp(Role.LEAF, None, (), op.is_mask, leaf=leaf, out=self._out(index))
        out = self._out(index)
        arguments = tuple(self._argument(a) for a in op.arguments)
        if op.address is None:
            return LocalOp(op.role, op.row, arguments, op.is_mask, out=out)
        group, offset = self._address(op.address)
        piece, phase, piece_rows = self._piece(op.address, group)
        memory = tuple((self.numbers[b], x) for b, x in op.memory_before if b in self.numbers)
        return LocalOp(
            op.role, op.row, arguments, op.is_mask, group, offset, op.address.stride,
            piece, phase, piece_rows, out=out, memory_before=memory,
        )  # fmt: skip

    def _piece(self, address: Address, group: int) -> tuple[int, int, int]:
        """Piece and row within it of an access, and rows of a piece; zeros where there are none."""
        pieces = self.pieces.get(address.window)
        if pieces is None:
            return 0, 0, 0
        first = pieces.number(self.firsts[group].offset)
        return pieces.number(address.offset) - first, address.offset % pieces.rows, pieces.rows

    def _out(self, index: int) -> int:
        """The number of the output pointer a value is written to, -1 if none."""
        if index not in self.outputs:
            return -1
        self.outs.append(index)
        return len(self.outs) - 1

    def _argument(self, argument: Argument) -> Argument:
        match argument:
            case Use(value):
                return Use(self.numbers[value])
            case Scalar(text):
                if not text.startswith("%"):
                    return argument
                if text not in self.scalars:
                    self.scalars[text] = len(self.scalars)
                    self.scalar_list.append(argument)
                return Scalar(f"%s{self.scalars[text]}", "", 0)
            case number:
                return number

    def _address(self, address: Address) -> tuple[int, int]:
        key = (address.window, address.root)
        if key not in self.groups:
            self.groups[key] = len(self.firsts)
            self.firsts.append(address)
            self.windows.setdefault(address.window, len(self.windows))
        group = self.groups[key]
        return group, address.offset - self.firsts[group].offset


def outline(
    staging: Staging,
    stage: int,
    members: list[int],
    outputs: frozenset[int],
    pieces: Mapping[int, Pieces],
) -> OutlinedComponent | None:
    """The component of `members`, None if nothing it computes is stored or used elsewhere.

    `pieces`: windows whose data may lie in pieces.
    """

    def rank(op: ValueOp) -> tuple[int, int, str, int, int]:
        address = op.address
        assert address is not None
        return (address.window, len(address.root), address.root, address.offset, op.index)

    stores = [staging.ops[i] for i in members if staging.ops[i].role is Role.STORE]
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
    """The component functions of a module, by structure; `with_tasks` adds task forms."""

    def __init__(self, with_tasks: bool) -> None:
        self._with_tasks = with_tasks
        self._names: dict[tuple[object, ...], str] = {}
        self.texts: list[str] = []
        self.scratch_bytes = 0

    def function(self, outlined: OutlinedComponent) -> str:
        """The name of the function that runs this component, emitted at first need."""
        key = outlined.key
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = f"component{len(self._names)}"
            self._emit(name, outlined)
        return name

    def _emit(self, name: str, outlined: OutlinedComponent) -> None:
        emitter = ComponentEmitter(outlined.component)
        body = emitter.emit()
        self.scratch_bytes = max(self.scratch_bytes, emitter.scratch_bytes)
        parameters = [f"ptr %g{i}" for i in range(len(outlined.groups))]
        parameters += [f"ptr %l{i}" for i in range(len(outlined.leaves))]
        parameters += [f"ptr %o{i}" for i in range(len(outlined.outs))]
        parameters += [f"i64 %h{i}" for i in outlined.component.spread_groups]
        parameters += [f"i32 %s{i}" for i in range(len(outlined.scalars))]
        self.texts.append(
            f"define internal void @{name}({', '.join(['ptr noalias %scratch', *parameters])}) "
            f"noinline #0 {{\nentry:\n{body}\n ret void\n}}\n"
        )
        if self._with_tasks:
            self.texts.append(_task_form(name, parameters))


def _task_form(name: str, parameters: list[str]) -> str:
    """The same component with its arguments in memory, 8 bytes each."""
    e = Emitter()
    arguments = ["ptr %scratch"]
    for position, parameter in enumerate(parameters):
        llvm_type = parameter.split(" ", 1)[0]
        arguments.append(f"{llvm_type} {e.load(llvm_type, e.offset('%arguments', 8 * position))}")
    e.do(f"call void @{name}({', '.join(arguments)})")
    return (
        f"define internal void @{name}_task(ptr %arguments, ptr %scratch) #0 {{\nentry:\n"
        f"{e.text()}\n ret void\n}}\n"
    )


def component_arguments(pointers: list[str], gaps: list[str], scalars: list[Scalar]) -> list[str]:
    """Typed arguments: groups, leaves, outputs, gaps of groups in pieces, then scalars."""
    typed = [f"ptr {pointer}" for pointer in pointers] + [f"i64 {gap}" for gap in gaps]
    return typed + [f"i32 {scalar.text}" for scalar in scalars]
