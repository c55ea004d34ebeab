"""HloModuleProto, HloProto and HloSnapshot -> HLO text, and what a snapshot holds besides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.frontends.hlo_proto.attributes import frontend_text, index_text
from compiler.frontends.hlo_proto.instructions import ID, NAME, instruction_text
from compiler.frontends.hlo_proto.literals import literal_arrays
from compiler.frontends.hlo_proto.shapes import shape_text
from compiler.hlo.escapes import quote
from compiler.hlo.shape_text import join_indexed
from compiler.hlo.stack_frames import StackFrames, print_stack_frames
from compiler.protobuf import Message

_MODULE_NAME, _ENTRY_NAME, _COMPUTATIONS, _PROGRAM_SHAPE, _ENTRY_ID = 1, 2, 3, 4, 6
_SCHEDULE, _ALIASES, _DYNAMIC, _DEVICES, _FRAMES, _DONORS, _FRONTEND = 7, 8, 11, 15, 17, 18, 19
_INSTRUCTIONS, _COMPUTATION_ID, _ROOT_ID, _THREAD = 2, 5, 6, 8
_KINDS = ("", "may-alias", "must-alias")
_MAIN_THREAD = "main"


def proto_to_text(data: bytes, file: str = "<bytes>") -> str:
    """The module's HLO text; raises `CompileError` naming what it cannot say."""
    try:
        module = _module_within(data)
        if module is None:
            raise CompileError(f"{file} is no HloModuleProto, HloProto or HloSnapshot")
        return _module_text(module)
    except (ValueError, KeyError, IndexError) as error:
        raise CompileError(f"{file}: this protocol buffer cannot be read: {error}") from error


@dataclass(frozen=True)
class Snapshot:
    """What an HloSnapshot holds beside its module: arguments in the order of parameters, and results."""

    arguments: list[npt.NDArray[np.generic]]
    results: list[npt.NDArray[np.generic]]


def read_snapshot(data: bytes) -> Snapshot | None:
    """What bytes hold beside a module; None for a module alone, or bytes of another form."""
    try:
        message = Message(data)
        if _is_module(message) or not _is_module(message.message(1).message(1)):
            return None
        arguments = [a for literal in message.messages(2) for a in literal_arrays(literal)]
        return Snapshot(arguments, literal_arrays(message.message(3)) if 3 in message else [])
    except ValueError:
        return None


def _module_within(data: bytes) -> Message | None:
    """The module of a module, of an HloProto (field 1) or of a snapshot (field 1 of that)."""
    for _ in range(3):
        message = Message(data)
        if _is_module(message):
            return message
        data = message.raw(1)
    return None


def _is_module(message: Message) -> bool:
    if not message.text(_ENTRY_NAME) or _COMPUTATIONS not in message:
        return False
    first = message.messages(_COMPUTATIONS)[0]
    return bool(first.text(NAME)) and _INSTRUCTIONS in first


def _module_text(module: Message) -> str:
    if module.integer(_DYNAMIC) > 1:
        message = "is_dynamic has another value than true"
        raise ValueError(message)
    computations = module.messages(_COMPUTATIONS)
    names = {c.integer(_COMPUTATION_ID): c.text(NAME) for c in computations}
    schedule = _schedule(module)
    bodies = [_computation_text(module, c, names, schedule) for c in computations]
    return "\n\n".join([_header(module) + _stack_frames(module.message(_FRAMES)), *bodies]) + "\n"


def _schedule(module: Message) -> dict[int, tuple[int, ...]]:
    entries = module.message(_SCHEDULE).messages(1)
    return {entry.integer(1): entry.message(2).integers(1) for entry in entries}


def _computation_text(
    module: Message,
    computation: Message,
    names: dict[int, str],
    schedule: dict[int, tuple[int, ...]],
) -> str:
    number = computation.integer(_COMPUTATION_ID)
    instructions = {i.integer(ID): i for i in computation.messages(_INSTRUCTIONS)}
    own_names = {i: instruction.text(NAME) for i, instruction in instructions.items()}
    root = computation.integer(_ROOT_ID)
    lines = [
        f"  {instruction_text(instructions[i], instructions, own_names, names, i == root)}"
        for i in schedule.get(number, tuple(instructions))
    ]
    is_entry = number == module.integer(_ENTRY_ID)
    thread = computation.text(_THREAD)
    tail = f", execution_thread={quote(thread)}" if thread not in ("", _MAIN_THREAD) else ""
    head = f"{'ENTRY ' if is_entry else ''}%{computation.text(NAME)} {{"
    return "\n".join([head, *lines, "}" + tail])


def _header(module: Message) -> str:
    fields = [f"HloModule {module.text(_MODULE_NAME) or 'module'}"]
    if _SCHEDULE in module and _schedule(module):
        fields.append("is_scheduled=true")
    aliases = [
        f"{index_text(a.integers(1))}: ({a.integer(2)}, {index_text(a.integers(3))}, {_KINDS[a.integer(4)]})"
        for a in module.message(_ALIASES).messages(1)
    ]
    if aliases:
        fields.append(f"input_output_alias={{ {', '.join(aliases)} }}")
    donors = [
        f"({d.integer(1)}, {index_text(d.integers(2))})"
        for d in module.message(_DONORS).messages(1)
    ]
    if donors:
        fields.append(f"buffer_donor={{ {', '.join(donors)} }}")
    if _PROGRAM_SHAPE in module:
        shape = module.message(_PROGRAM_SHAPE)
        parameters = join_indexed([shape_text(p) for p in shape.messages(1)])
        fields.append(
            f"entry_computation_layout={{({parameters})->{shape_text(shape.message(2))}}}"
        )
    replicas, partitions = module.message(_DEVICES).integers_of(1, 2)
    fields += [f"replica_count={replicas}"] if replicas > 1 else []
    fields += [f"num_partitions={partitions}"] if partitions > 1 else []
    attributes = frontend_text(module.message(_FRONTEND))
    return ", ".join([*fields, *([f"frontend_attributes={attributes}"] if attributes else [])])


def _stack_frames(frames: Message) -> str:
    """The tables that metadata's ``stack_frame_id`` refers to; nothing without any."""
    if 1 not in frames:
        return ""
    places = (place.integers_of(1, 2, 3, 4) for place in frames.messages(3))
    tables = StackFrames(
        tuple(frames.texts(1)),
        tuple(frames.texts(2)),
        tuple(
            (file, function, line, line, column, column) for file, function, line, column in places
        ),
        tuple((frame.integer(1), frame.integer(2) + 1) for frame in frames.messages(4)),
    )
    return print_stack_frames(tables)
