"""Programs: what JAX compiles, and what it asks of them afterwards."""

from __future__ import annotations

import ctypes
import hashlib
import time
from typing import Any

from compiler.diagnostics import UnsupportedError
from runtime.api import compile as compile_for
from runtime.executable import Executable
from runtime.pjrt.devices import PjrtClient, PjrtDevice
from runtime.pjrt.layouts import NUMBER_OF_TYPE, structure
from runtime.pjrt.native import Block, drain, objects
from runtime.pjrt.options import compile_options
from runtime.pjrt.profile import profile
from runtime.pjrt.protobuf import CompileRequest, compile_request
from runtime.pjrt.signature import Signature, read_signature
from runtime.pjrt.texts import FORM, optimized_program
from runtime.pjrt.values import NamedValues
from runtime.report import Report

_NO_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
_MLIR = b"mlir"


class PjrtProgram:
    """A compiled program, with the devices that it runs on. It is loaded and unloaded: both of PJRT's."""

    def __init__(
        self,
        client: PjrtClient,
        executable: Executable,
        signature: Signature,
        request: CompileRequest,
    ) -> None:
        self.client, self.executable = client, executable
        self.signature, self.request = signature, request
        self.devices: list[PjrtDevice] = [client.device(n) for n in request.assignment.flat]
        self.block = Block("executable", self)
        self._text: bytes | None = None
        self._fill()

    def text(self) -> bytes:
        """The optimised program, in a form that jaxlib reads."""
        if self._text is None:
            self._text = optimized_program(self.executable, self.signature, self.request.assignment)
        return self._text

    def estimate(self) -> Report:
        """What a call costs, by the machine's own count."""
        return self.executable.estimate()

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
        shapes = [result.local for result in signature.results]
        types = [NUMBER_OF_TYPE[shape.dtype] for shape in shapes]
        block.set_row("types", ctypes.c_int32, types)
        block.set_row("dims", ctypes.c_int64, [size for shape in shapes for size in shape.dims])
        block.set_row("ranks", ctypes.c_size_t, [len(shape.dims) for shape in shapes])
        kind = self.devices[0].memory.block
        block.set_row("kinds", ctypes.c_void_p, [kind.get("kind")] * count)
        block.set_row("kind_sizes", ctypes.c_size_t, [kind.get("kind_size")] * count)


def compile_program(a: Any) -> None:
    """`Client_Compile`: StableHLO, as bytecode or text, with a `CompileOptionsProto`."""
    drain()
    client: PjrtClient = objects[a.client]
    program = structure("Program").from_address(a.program)
    form = ctypes.string_at(program.format, program.format_size)
    if form != _MLIR:
        raise UnsupportedError(f"a program in the form {form.decode()!r}: tpuc takes 'mlir'")
    code = ctypes.string_at(program.code, program.code_size)
    request = compile_request(ctypes.string_at(a.compile_options, a.compile_options_size))
    a.executable = compiled(client, code, request).block.address


def compiled(client: PjrtClient, code: bytes, request: CompileRequest) -> PjrtProgram:
    """Compile for the devices that the request names."""
    devices = [client.device(number).device for number in request.assignment.flat]
    target = devices if len(devices) > 1 else devices[0]
    started = time.perf_counter()
    executable = compile_for(code, target, options=compile_options())
    fingerprint = hashlib.sha256(code).hexdigest()[:32]
    signature = read_signature(executable, fingerprint)
    if profile.is_on:
        record = profile.of(signature.name)
        record.compiles += 1
        record.compile_seconds += time.perf_counter() - started
    return PjrtProgram(client, executable, signature, request)


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
    report = found.estimate()
    flops = float(sum(k.flops for k in found.executable.program.kernels.values()))
    values = NamedValues(
        {
            "flops": flops,
            "bytes accessed": float(report.hbm_bytes),
            "optimal_seconds": report.seconds,
            "cycles": float(report.cycles),
        }
    )
    found.block.kept.append(values)
    a.properties, a.num_properties = values.address, values.count


def memory_analysis(a: Any) -> None:
    """`Executable_GetCompiledMemoryStats`: bytes in the device's HBM, padding included."""
    found: PjrtProgram = objects[a.executable]
    executable = found.executable
    start = type(a).executable.offset + type(a).executable.size
    ctypes.memset(ctypes.addressof(a) + start, 0, a.struct_size - start)
    inputs = sum(port.size_bytes for port in executable.inputs)
    outputs = sum(port.size_bytes for port in executable.outputs)
    aliased = sum(port.size_bytes for port in executable.inputs if port.is_donated)
    total = max((b.offset_bytes + b.size_bytes for b in executable.program.buffers), default=0)
    a.argument_size_in_bytes = inputs
    a.output_size_in_bytes = outputs
    a.alias_size_in_bytes = aliased
    a.temp_size_in_bytes = max(0, total - inputs - outputs + aliased)


def delete(a: Any) -> None:
    """`LoadedExecutable_Delete`: it runs no more."""
    objects[a.executable].block.set(is_deleted=1)


FUNCTIONS = {
    "Client_Compile": compile_program,
    "Executable_OptimizedProgram": optimized,
    "Executable_GetCostAnalysis": cost_analysis,
    "Executable_GetCompiledMemoryStats": memory_analysis,
    "LoadedExecutable_Delete": delete,
}
