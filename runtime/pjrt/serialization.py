"""Executables as bytes, for JAX's persistent cache and for ahead-of-time compilation.

    magic, size of the head, head (JSON), a ``.tpux`` file

The head says for which chip, devices and version of the emulator the program was made, and its
signature. Bytes of another version or chip are refused: JAX then compiles anew.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from compiler.diagnostics import UnsupportedError
from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_text import parse_shape, print_shape
from runtime.client import Device, cores_of
from runtime.executable import Executable
from runtime.pjrt.devices import PjrtClient
from runtime.pjrt.failures import PjrtError
from runtime.pjrt.layouts import ErrorCode
from runtime.pjrt.lent_bytes import lend
from runtime.pjrt.messages import Assignment, compile_request
from runtime.pjrt.native import objects
from runtime.pjrt.programs import PjrtProgram
from runtime.pjrt.signature import ProgramSignature
from runtime.pjrt.staged import Staged
from runtime.slice_executable import SliceExecutable
from runtime.spreads import DEVICES
from tpu_sim.isa.container import content_digest, dump_program, load_program
from tpu_sim.isa.source_digest import source_digest

_MAGIC = b"tpuc.pjrt\n"
_SIZE_BYTES = 8


def dump(program: PjrtProgram) -> bytes:
    """The bytes of a program."""
    code, signature = program.code, program.signature
    if isinstance(code, Staged):
        raise UnsupportedError("an executable with callbacks to the host: they are of this process")
    head = {
        "source": source_digest("tpu_sim"),
        "chip": repr(program.devices[0].device.chip),
        "devices": program.request.assignment.devices,
        "signature": {
            **asdict(signature),
            "arguments": [print_shape(shape) for shape in signature.arguments],
            "results": [print_shape(shape) for shape in signature.results],
            "donated": sorted(signature.donated),
        },
    }
    text = json.dumps(head).encode()
    return b"".join(
        [_MAGIC, len(text).to_bytes(_SIZE_BYTES, "little"), text, dump_program(code.program)]
    )


def load(client: PjrtClient, data: bytes, options: bytes | None = None) -> PjrtProgram:
    """The program in bytes; `options`, a `CompileOptionsProto`, may put it on other devices."""
    start = len(_MAGIC) + _SIZE_BYTES
    if not data.startswith(_MAGIC):
        raise PjrtError("these bytes are no executable of tpuc")
    end = start + int.from_bytes(data[len(_MAGIC) : start], "little")
    head = json.loads(data[start:end])
    assignment = Assignment(tuple(tuple(row) for row in head["devices"]))
    request = compile_request(options) if options else compile_request(b"")
    is_for_as_many = len(request.assignment.flat) == len(assignment.flat)
    if not (options and request.has_assignment and is_for_as_many):
        request = type(request)(assignment)
    devices = [client.device(number).device for number in request.assignment.flat]
    if (head["source"], head["chip"]) != (source_digest("tpu_sim"), repr(devices[0].chip)):
        raise PjrtError("the executable is of another version of tpuc, or for another chip")
    code = _executable(data[end:], devices)
    return PjrtProgram(client, code, _signature(head["signature"]), request)


def _executable(data: bytes, devices: list[Device]) -> Executable:
    program, digest = load_program(data, lazily=True), content_digest(data)
    if DEVICES in program.metadata:
        cores = cores_of(devices)
        return SliceExecutable(program, devices[0], digest=digest, devices=devices, slice=cores)
    return Executable(program, devices[0], digest=digest)


def _signature(found: dict[str, Any]) -> ProgramSignature:
    shapes = {
        name: tuple(_shape(text) for text in found[name]) for name in ("arguments", "results")
    }
    donated = frozenset(found["donated"])
    name, fingerprint, memories = found["name"], found["fingerprint"], tuple(found["memories"])
    return ProgramSignature(
        name, fingerprint, shapes["arguments"], shapes["results"], memories, donated
    )


def _shape(text: str) -> ArrayShape:
    shape = parse_shape(text)
    assert isinstance(shape, ArrayShape)
    return shape


def serialize(a: Any) -> None:
    """`Executable_Serialize`."""
    lent = lend(dump(objects[a.executable]))
    a.serialized_bytes, a.serialized_bytes_size = lent.address, lent.size
    a.serialized_executable, a.serialized_executable_deleter = lent.address, lent.deleter


def deserialize(a: Any) -> None:
    """`Executable_DeserializeAndLoad`."""
    data = ctypes.string_at(a.serialized_executable, a.serialized_executable_size)
    size = a.overridden_serialized_compile_options_size
    options = ctypes.string_at(a.overridden_serialized_compile_options, size) if size else None
    try:
        program = load(objects[a.client], data, options)
    except (KeyError, ValueError) as error:
        raise PjrtError(
            f"these bytes are no executable of tpuc: {error}", ErrorCode.INTERNAL
        ) from error
    a.loaded_executable = program.block.address


FUNCTIONS: dict[str, Callable[[Any], None]] = {
    "Executable_Serialize": serialize,
    "Executable_DeserializeAndLoad": deserialize,
}
