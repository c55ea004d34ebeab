"""The functions behind `tpuc.compile`, `tpuc.devices` and `tpuc.device_put`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import overload

import numpy.typing as npt

from compiler.diagnostics import NO_FILE, CompileError, UnreadableFileError
from compiler.frontends.recognition import is_binary, is_model_text
from compiler.options import CompileOptions
from runtime.buffer import Array
from runtime.buffer import device_put as put_on_device
from runtime.client import Device, client_for, cores_of, device_for
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.mesh import NamedSharding
from runtime.program_store import Compilation, executable_of, read_checked
from runtime.sharded_array import ShardedArray, put_sharded
from runtime.slice_executable import SliceExecutable
from runtime.spreads import slice_of
from runtime.topology import Topology, no_target, slice_name
from runtime.workers import WorkerChoice, spread_over
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.container import MAGIC
from tpu_sim.isa.errors import ProgramError, TargetError, TpuxError
from tpu_sim.isa.program import Program

_BINARY = {".pb": "HloProto", ".mlirbc": "MLIR bytecode"}
"""What files of these names hold that are no text."""
DEFAULT_TARGET = "v5e"


def compile(
    source: str | bytes | Path,
    target: str | Chip | Device | Sequence[Device] = DEFAULT_TARGET,
    precision: str | None = None,
    *,
    machine: MachineOptions | None = None,
    options: CompileOptions | None = None,
    workers: str | None = None,
) -> Executable:
    """Compile a model for `target` and return it ready to call.

    `target` is a chip, by name or a `Chip`, a slice (``v5e:4x2``), one of its devices, or some of them in
    any order. A program
    for one device runs on any of them, where its arguments lie; one for several runs on all, with
    global arrays, partition p on the p-th.

    `source` is a path (`.hlo`, `.mlir`, `.tpux`), HLO or StableHLO text, recognised by a newline or
    by how it begins (``HloModule``, ``module``, ``func.func``, ``#``), or StableHLO bytecode.
    `precision` says what DEFAULT means on a dot: "default" one bf16 pass (also when not given),
    "high" three, "highest" six. Raises `CompileError` for anything wrong with the model; a `.tpux`
    that was compiled for another `target` or `precision` than given here is an error too.
    `workers` are processes that share the devices of a slice, Ray actors here or on other hosts: ``4``, a
    Ray address, ``16@auto``; calls then take and give arrays of the host.
    `options` have a precision of their own and are no matter of a compiled program: `ValueError`
    if they are given together with either.
    """
    if precision is not None and options is not None:
        message = "precision is given twice: say CompileOptions(precision=..) in options"
        raise ValueError(message)
    if workers is not None:
        choice = WorkerChoice.parse(workers)
        whole = compile(source, target, precision, machine=machine, options=options)
        return spread_over(whole, choice)
    text, name = read_source(source)
    if text is not None:
        chosen = options or CompileOptions(precision=precision or "default")
        return _compiled(text, name, target, chosen, machine or MachineOptions())
    if options is not None:
        message = f"{name} is compiled already: options are for compiling a model"
        raise ValueError(message)
    executable = load_executable(Path(name), machine, _unless_default(target))
    _expect_precision(executable, precision)
    return executable


def _compiled(
    text: str | bytes,
    name: str,
    target: str | Chip | Device | Sequence[Device],
    options: CompileOptions,
    machine: MachineOptions,
) -> Executable:
    """A model of that text, made or kept from before, on the devices of `target`."""
    devices = _devices_of(target)
    chip = devices[0].chip
    cores = Topology(chip).cores if isinstance(target, Device) else cores_of(devices)

    def compile_now() -> Compilation:
        """The compiler is heavy to import and not needed for what is in the store."""
        compiler = importlib.import_module("runtime.compilation")
        made: Compilation = compiler.compile_source(text, name, cores, chip, options)
        return made

    return executable_of(text, devices, options, machine, compile_now, cores)


def load_executable(
    path: Path, machine: MachineOptions | None = None, target: str | Chip | Device | None = None
) -> Executable:
    """Load a `.tpux` file written by `Executable.save` or ``tpuc compile``.

    `target` is needed for a program of a chip file; another chip or slice than the program's is an
    error. A program of several devices runs on those that it was compiled for.
    """
    started = time.perf_counter()
    machine = machine or MachineOptions()
    chip = device_for(target).chip if target is not None else None
    program, digest = read_checked(path, chip, machine)
    devices = _devices_in(program, target, path)
    seconds = time.perf_counter() - started
    stages = {"load": seconds}
    try:
        if devices is not None:
            return SliceExecutable(
                program, devices[0], machine, None, seconds, stages, digest,
                devices=devices, slice=cores_of(devices),
            )  # fmt: skip
        device = device_for(target if target is not None else program.target)
        return Executable(program, device, machine, None, seconds, stages, digest=digest)
    except ProgramError as error:
        raise TpuxError(str(error), str(path)) from error


def _devices_in(
    program: Program, target: str | Chip | Device | None, path: Path
) -> list[Device] | None:
    """The devices that a program of several was compiled for; None for a program of one."""
    stated = slice_of(program)
    if stated is None:
        return None
    dims, chips = stated
    name = slice_name(program.target, dims)
    if isinstance(target, Device):
        raise TargetError(f"{path} is a program of {name}, not of one device")
    client = client_for(name if target is None else target)
    if client.topology.dims != dims:
        raise TargetError(f"{path} is a program of {name}, not {target}")
    per_chip = client.topology.devices_per_chip
    return [
        client.devices[chip * per_chip + chips[:number].count(chip)]
        for number, chip in enumerate(chips)
    ]


def _devices_of(target: str | Chip | Device | Sequence[Device]) -> Sequence[Device]:
    if isinstance(target, Device):
        return [target]
    if isinstance(target, str | Chip):
        return client_for(target).devices
    given: Sequence[object] = target if isinstance(target, Sequence) else []
    devices = [device for device in given if isinstance(device, Device)]
    if not devices or len(devices) < len(given):
        raise no_target(target)
    return devices


def _unless_default(target: str | Chip | Device | Sequence[Device]) -> str | Chip | Device | None:
    if target == DEFAULT_TARGET:
        return None
    return target if isinstance(target, str | Chip | Device) else _devices_of(target)[0]


def _expect_precision(executable: Executable, precision: str | None) -> None:
    saved = executable.program.metadata.get("precision", "default")
    if precision not in (None, saved):
        raise CompileError(f"the program was compiled with precision {saved}, not {precision}")


def read_source(source: str | bytes | Path) -> tuple[str | bytes | None, str]:
    """Return (text or bytes, name) of a model; the former is None for a `.tpux` path."""
    if isinstance(source, bytes):
        return source, "<bytes>"
    if isinstance(source, str) and is_model_text(source):
        return source, NO_FILE
    if not str(source):
        raise CompileError("the name of the model is empty")
    path = Path(source)
    if path.suffix == ".tpux":
        return None, str(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UnreadableFileError(f"cannot read {path}: {error.strerror}") from error
    if data.startswith(MAGIC):
        raise CompileError(f"{path} is a compiled program: give it a name that ends with .tpux")
    try:
        return (data if is_binary(data) else data.decode("utf-8")), str(path)
    except UnicodeDecodeError as error:
        if path.suffix in _BINARY:
            raise CompileError(f"{path}: damaged, or no {_BINARY[path.suffix]}") from error
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        message = f"{path}:{line}:{column}: not UTF-8 text: byte 0x{data[error.start]:02x}"
        raise CompileError(message) from error


def devices(target: str = DEFAULT_TARGET) -> list[Device]:
    """The devices of a chip or slice: ``v5e``, ``v5e:4x2``, a chip file."""
    return list(client_for(target).devices)


@overload
def device_put(
    value: npt.ArrayLike | Array | ShardedArray, target: NamedSharding
) -> ShardedArray: ...


@overload
def device_put(
    value: npt.ArrayLike | Array | ShardedArray, target: str | Chip | Device = DEFAULT_TARGET
) -> Array: ...


def device_put(
    value: npt.ArrayLike | Array | ShardedArray,
    target: str | Chip | Device | NamedSharding = DEFAULT_TARGET,
) -> Array | ShardedArray:
    """Place an array in the emulated HBM of a device, or of a target's first one, in device layout.

    With a sharding it is cut, and each device of the mesh gets its piece.
    """
    if isinstance(target, NamedSharding):
        return put_sharded(value, target)
    return put_on_device(value, device_for(target))
