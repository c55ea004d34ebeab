"""Brings a program into the form in which shardings are propagated.

Calls are inlined. Annotations become copies, each with what it states: a constraint, a result's
sharding, a barrier. A region of device-own shapes lies between the custom calls
`SPMDFullToShardShape` and `SPMDShardToFullShape`, whichever way the program wrote it, with a copy
before each that has the sharding from which the shapes follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compiler.diagnostics import CompileError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import TupleShape
from compiler.hlo.sharding import HloSharding
from compiler.passes.sharding.statements import Statements
from compiler.rewrite.graph import emit
from compiler.sharding.mesh import Axes, DimSharding, TensorSharding
from compiler.sharding.op_rules import FULL_TO_SHARD, SHARD_TO_FULL
from compiler.sharding.propagation import Direction
from compiler.sharding.shardy_text import parse_manual_axes

Instr = HloInstruction

_RESULT = "xla.sdy.FuncResultSharding"
_CONSTRAINTS = frozenset({"Sharding", _RESULT})
_BARRIER = "xla.sdy.PropagationBarrier"
_GROUP = "xla.sdy.ShardingGroup"
_ENTER = "xla.sdy.GlobalToLocalShape"
_LEAVE = "xla.sdy.LocalToGlobalShape"
_DIRECTIONS = {
    "NONE": Direction.NONE,
    "FORWARD": Direction.FORWARD,
    "BACKWARD": Direction.BACKWARD,
    "BOTH": Direction.BOTH,
}


@dataclass
class ImportedProgram:
    """A module ready for propagation, and what was read from it.

    `stated` has a sharding for each array of an instruction, None where nothing is said. `notes`
    are the copies that stand for annotations. `manual` are the axes that a boundary of a region
    adds to those that are manual around it. `signed` are the notes that the signature makes of results.
    """

    module: HloModule
    statements: Statements
    stated: dict[Instr, list[TensorSharding | None]] = field(default_factory=dict)
    notes: dict[Instr, None] = field(default_factory=dict)
    signed: set[Instr] = field(default_factory=set)
    barriers: dict[Instr, Direction] = field(default_factory=dict)
    groups: dict[str, list[Instr]] = field(default_factory=dict)
    manual: dict[Instr, Axes] = field(default_factory=dict)

    def note(self, operand: Instr, stated: TensorSharding | None, near: Instr) -> Instr:
        """A copy that has a sharding of its own."""
        made = emit(near, "copy", operand.shape, [operand], name=near.name)
        self.notes[made] = None
        self.stated[made] = [stated]
        return made


def import_shardings(module: HloModule) -> ImportedProgram:
    """Read all annotations of a module without calls; it is changed in place."""
    program = ImportedProgram(module, Statements(module))
    control = control_computations(module)
    for computation in module.computations.values():
        if computation not in control:
            _forget(computation)
    for computation in control:
        for instr in list(computation):
            _import(instr, program)
        computation.sort()
    return program


def _forget(computation: HloComputation) -> None:
    """What is applied to scalars has no shardings."""
    for instr in list(computation):
        if instr.opcode == "custom-call" and instr.attrs["custom_call_target"] in _CONSTRAINTS:
            instr.replace_all_uses_with(instr.operands[0])
            computation.remove(instr)


def _import(instr: Instr, program: ImportedProgram) -> None:
    target = instr.attrs.get("custom_call_target") if instr.opcode == "custom-call" else None
    statements = program.statements
    if target in _CONSTRAINTS or target == _BARRIER:
        _import_note(instr, program, is_barrier=target == _BARRIER)
    elif target == _GROUP:
        number = statements.text(instr, "sharding_group_id") or ""
        program.groups.setdefault(number, []).append(_member(instr.operands[0], instr, program))
        _remove(instr)
    elif target in (_ENTER, _LEAVE):
        _import_boundary(instr, program, is_entering=target == _ENTER)
    elif target in (FULL_TO_SHARD, SHARD_TO_FULL):
        program.stated[instr] = statements.of(instr)
        program.manual[instr] = ()
        (operand,) = instr.operands
        if operand not in program.notes:
            instr.set_operand(0, program.note(operand, None, instr))
    else:
        stated = statements.of(instr)
        if any(one is not None for one in stated):
            program.stated[instr] = stated


def _import_note(instr: Instr, program: ImportedProgram, *, is_barrier: bool) -> None:
    (operand,) = instr.operands
    (stated,) = program.statements.of(instr)
    made = program.note(operand, stated, instr)
    if instr.attrs["custom_call_target"] == _RESULT:
        program.signed.add(made)
    sharding = instr.attrs.get("sharding")
    if isinstance(sharding, HloSharding) and sharding.group and not program.statements.is_shardy:
        program.groups.setdefault(sharding.group.split()[-1], []).append(made)
    if is_barrier:
        allowed = program.statements.text(instr, "allowed_direction") or "NONE"
        program.barriers[made] = _DIRECTIONS[allowed]
    instr.replace_all_uses_with(made)
    _remove(instr)


def _member(operand: Instr, group: Instr, program: ImportedProgram) -> Instr:
    """What stands for a value in its group: a copy, when it has a sharding of its own already."""
    if all(one is None for one in program.stated.get(operand, [])):
        return operand
    users = [user for user in operand.users if user is not group]
    made = program.note(operand, None, group)
    stand_in(made, operand, users)
    return made


def stand_in(made: Instr, operand: Instr, users: list[Instr]) -> None:
    """Let users of an instruction, and its computation if it is the root, have a copy instead."""
    for user in users:
        for index, used in enumerate(user.operands):
            if used is operand:
                user.set_operand(index, made)
    if operand.computation is not None and operand.computation.root is operand:
        operand.computation.root = made


def _import_boundary(instr: Instr, program: ImportedProgram, *, is_entering: bool) -> None:
    """A tuple of arrays that enter or leave a region, as one boundary for each."""
    statements = program.statements
    name = "in_shardings" if is_entering else "out_shardings"
    shapes = instr.shape.elements if isinstance(instr.shape, TupleShape) else (instr.shape,)
    shardings = statements.listed(instr, name, len(instr.operands))
    names = parse_manual_axes(statements.text(instr, "manual_axes") or "{}")
    made = []
    for operand, shape, sharding in zip(instr.operands, shapes, shardings, strict=True):
        axes = tuple(sharding.mesh.axis(axis) for axis in names)
        around, inside = replace(sharding, replicated=()), within(sharding, axes)
        first = program.note(operand, around if is_entering else inside, instr)
        call = emit(
            instr,
            "custom-call",
            shape,
            [first],
            {"custom_call_target": FULL_TO_SHARD if is_entering else SHARD_TO_FULL},
        )
        program.stated[call] = [inside if is_entering else around]
        program.manual[call] = axes
        made.append(call)
    _hand_out(instr, made)


def within(sharding: TensorSharding, manual: Axes) -> TensorSharding:
    """The sharding of a device's own array: what the axes of the region cut is gone."""
    names = {axis.name for axis in manual}
    dims = tuple(
        DimSharding(tuple(a for a in dim.axes if a.name not in names), dim.is_open, dim.priority)
        for dim in sharding.dims
    )
    kept = tuple(axis for axis in sharding.replicated if axis.name not in names)
    return TensorSharding(sharding.mesh, dims, replicated=kept, manual=manual)


def _hand_out(instr: Instr, made: list[Instr]) -> None:
    """Let the users of a tuple's elements use these instead."""
    if not isinstance(instr.shape, TupleShape):
        instr.replace_all_uses_with(made[0])
    for user in list(instr.users):
        index = user.attrs.get("index")
        if user.opcode != "get-tuple-element" or not isinstance(index, int):
            whole = emit(instr, "tuple", instr.shape, made)
            instr.replace_all_uses_with(whole)
            break
        user.replace_all_uses_with(made[index])
        _remove(user)
    _remove(instr)


def _remove(instr: Instr) -> None:
    if instr is instr.home.root:
        raise CompileError(f"%{instr.name} is a result, but has no value", instr.span)
    instr.home.remove(instr)
