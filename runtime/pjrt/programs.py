"""Programs: what JAX compiles, and what it asks of them afterwards."""

from __future__ import annotations

import ctypes
import hashlib
import importlib
import time
from collections.abc import Sequence
from typing import Any

from compiler.diagnostics import UnsupportedError
from runtime.api import compile as compile_for
from runtime.client import Device
from runtime.executable import Executable
from runtime.pjrt.devices import PjrtClient, PjrtDevice
from runtime.pjrt.layouts import NUMBER_OF_TYPE, structure
from runtime.pjrt.messages import CompileRequest, compile_request
from runtime.pjrt.native import SlotBlock, drain, objects
from runtime.pjrt.options import check_named_options, compile_options
from runtime.pjrt.profile import profile
from runtime.pjrt.quick import QuickProgram, may_be_quick, quick_program
from runtime.pjrt.signature import ProgramSignature, read_signature
from runtime.pjrt.staged import Staged, talks_to_host
from runtime.pjrt.texts import FORM, optimized_program
from runtime.pjrt.values import NamedValues

_NO_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
_MLIR = b"mlir"


class PjrtProgram:
    """A compiled program, with the devices that it runs on. It is loaded and unloaded: both of PJRT's."""

    def __init__(
        self,
        client: PjrtClient,
        code: Executable | Staged,
        signature: ProgramSignature,
        request: CompileRequest,
    ) -> None:
        self.client, self.code = client, code
        self.parts = list(code.executables.values()) if isinstance(code, Staged) else [code]
        self.signature, self.request = signature, request
        self.devices: list[PjrtDevice] = [client.device(n) for n in request.assignment.flat]
        self.block = SlotBlock("executable", self)
        self.quick: QuickProgram | None = None
        self._may_be_quick = may_be_quick(code)
        self._text: bytes | None = None
        self._fill()

    def prepare_quick_calls(self) -> None:
        """After a call: what is small and was found to be short is called without Python from now on. The
        device's core is asked for it, so not while that runs something."""
        if self._may_be_quick and self.quick is None:
            self.devices[0].device.queue.at_once(self._prepare, 0)

    def _prepare(self, _: int) -> int:
        self.quick = quick_program(self.code, self.signature, self.devices[0])
        self._may_be_quick = self.quick is None
        return 0

    def text(self) -> bytes:
        """The optimised program, in a form that jaxlib reads."""
        if self._text is None:
            self._text = optimized_program(self.code, self.signature, self.request.assignment)
        return self._text

    def _fill(self) -> None:
        block, assignment, signature = self.block, self.request.assignment, self.signature
        count = len(signature.results)
        block.set(replicas=assignment.replicas, partitions=assignment.partitions, outputs=count)
        block.set_words("name", signature.name)
        block.set_words("fingerprint", signature.fingerprint)
        block.set_words("assignment", assignment.serialized())
        block.set(deleter=ctypes.cast(_NO_DELETER, ctypes.c_void_p).value)
        handles = [device.block.address for device in self.devices]
        block.set_row("devices", ctypes.c_void_p, handles, "device_count")
        shapes = signature.results
        types = [NUMBER_OF_TYPE[shape.dtype] for shape in shapes]
        block.set_row("types", ctypes.c_int32, types)
        block.set_row("dims", ctypes.c_int64, [size for shape in shapes for size in shape.dims])
        block.set_row("ranks", ctypes.c_size_t, [len(shape.dims) for shape in shapes])
        kinds = [self.devices[0].memory_of(kind).block for kind in signature.memories]
        block.set_row("kinds", ctypes.c_void_p, [kind.get("kind") for kind in kinds])
        block.set_row("kind_sizes", ctypes.c_size_t, [kind.get("kind_size") for kind in kinds])


def compile_program(a: Any) -> None:
    """`Client_Compile`: StableHLO, as bytecode or text, with a `CompileOptionsProto`."""
    a.executable = compile_for_devices(objects[a.client], a).block.address


def compile_for_devices(client: PjrtClient, a: Any) -> PjrtProgram:
    """What `Client_Compile` and `Compile` are given, compiled for devices of a client or topology."""
    drain()
    program = structure("Program").from_address(a.program)
    form = ctypes.string_at(program.format, program.format_size)
    if form != _MLIR:
        raise UnsupportedError(f"a program in the form {form.decode()!r}: tpuc takes 'mlir'")
    code = ctypes.string_at(program.code, program.code_size)
    request = compile_request(ctypes.string_at(a.compile_options, a.compile_options_size))
    check_named_options(request.options)
    return compiled(client, code, request)


def compiled(client: PjrtClient, code: bytes, request: CompileRequest) -> PjrtProgram:
    """Compile for the devices that the request names."""
    devices = [client.device(number).device for number in request.assignment.flat]
    started = time.perf_counter()
    made = _made(code, devices)
    fingerprint = hashlib.sha256(code).hexdigest()[:32]
    signature = read_signature(made, fingerprint)
    if profile.is_on:
        record = profile.of(signature.name)
        record.compiles += 1
        record.compile_seconds += time.perf_counter() - started
    return PjrtProgram(client, made, signature, request)


def _made(code: bytes, devices: Sequence[Device]) -> Executable | Staged:
    options = compile_options()
    try:
        if not talks_to_host(code):
            return compile_for(code, devices if len(devices) > 1 else devices[0], options=options)
        staging = importlib.import_module("runtime.pjrt.staging")  # and with it the compiler
        found: Staged = staging.compile_staged(code, devices, options)
        return found
    except UnsupportedError as error:
        if "f64_as_f32" not in error.message:
            raise
        raise UnsupportedError(f"{error.message}; with JAX: TPUC_F64=narrow", error.span) from None


def optimized(a: Any) -> None:
    """`Executable_OptimizedProgram`: without a place for it, say how many bytes it takes."""
    found: PjrtProgram = objects[a.executable]
    program, text = structure("Program").from_address(a.program), found.text()
    program.format, program.format_size = ctypes.cast(_FORM, ctypes.c_void_p).value, len(FORM)
    if program.code:
        ctypes.memmove(program.code, text, min(len(text), program.code_size))
    program.code_size = len(text)


_FORM = ctypes.create_string_buffer(FORM)


def cost_analysis(a: Any) -> None:
    """`Executable_GetCostAnalysis`: what the program costs on the emulated chip."""
    found: PjrtProgram = objects[a.executable]
    reports = [part.estimate() for part in found.parts]
    operations = sum(report.operations for report in reports)
    values = NamedValues(
        {
            "flops": float(operations),
            "bytes accessed": float(sum(report.hbm_bytes for report in reports)),
            "optimal_seconds": sum(report.seconds for report in reports),
            "cycles": float(sum(report.cycles for report in reports)),
        }
    )
    found.block.kept.append(values)
    a.properties, a.num_properties = values.address, values.count


def memory_analysis(a: Any) -> None:
    """`Executable_GetCompiledMemoryStats`: bytes in the device's HBM, padding included."""
    found: PjrtProgram = objects[a.executable]
    start = type(a).executable.offset + type(a).executable.size
    ctypes.memset(ctypes.addressof(a) + start, 0, a.struct_size - start)
    first, last = found.parts[0], found.parts[-1]
    inputs = sum(port.size_bytes for port in first.inputs)
    outputs = sum(port.size_bytes for port in last.outputs)
    aliased = sum(port.size_bytes for port in first.inputs if port.is_donated)
    total = max(part.program.hbm_bytes for part in found.parts)
    a.argument_size_in_bytes = inputs
    a.output_size_in_bytes = outputs
    a.alias_size_in_bytes = aliased
    a.temp_size_in_bytes = max(0, total - inputs - outputs + aliased)


def delete(a: Any) -> None:
    """`LoadedExecutable_Delete`: it runs no more."""
    program: PjrtProgram = objects[a.executable]
    program.block.set(is_deleted=1)
    program.quick = None


FUNCTIONS = {
    "Client_Compile": compile_program,
    "Executable_OptimizedProgram": optimized,
    "Executable_GetCostAnalysis": cost_analysis,
    "Executable_GetCompiledMemoryStats": memory_analysis,
    "LoadedExecutable_Delete": delete,
}
