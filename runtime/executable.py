"""`Executable`: a compiled program bound to a device, called with arrays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError
from runtime.buffer import Array, canonical_host_array
from runtime.client import Device
from runtime.machines import Machine, MachineOptions, make_machine
from runtime.ports import Port, ports
from runtime.report import Report, build_report
from runtime.storage import from_planes, to_planes
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.container import write_tpux
from tpu_sim.isa.program import Program

HostArray = npt.NDArray[np.generic]


class Texts(Protocol):
    """The compiler's texts of a program (`compiler.driver.CompiledModule`)."""

    def hlo_text(self) -> str:
        """HLO after all passes."""

    def llo_text(self) -> str:
        """LLO of all kernels."""


@dataclass
class Executable:
    """Call it with one array per parameter; it returns the outputs as a list.

    NumPy arrays in give NumPy arrays out; if every argument is a `tpuc.Array`, the results are too.
    Wrong count, dimensions or dtype raise `CompileError`. `report` tells of the last call.
    """

    program: Program
    device: Device
    options: MachineOptions = field(default_factory=MachineOptions)
    texts: Texts | None = None
    compile_seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    report: Report | None = None
    _machine: Machine | None = None

    def __post_init__(self) -> None:
        self.inputs = ports(self.program, "input")
        self.outputs = ports(self.program, "output")

    def __call__(self, *args: npt.ArrayLike | Array) -> list[HostArray] | list[Array]:
        """Run once. Shapes and dtypes are those of the model's parameters."""
        arrays = self._checked_arguments(args)
        self._load(arrays)
        started = time.perf_counter()
        machine = self._machine_ready()
        prepared = time.perf_counter()
        result = machine.run(self.device.hbm)
        finished = time.perf_counter()
        self.stages["translate"] = self.stages.get("translate", 0.0) + prepared - started
        self.report = build_report(
            self.program,
            self.device.chip,
            result,
            self.compile_seconds + self.stages["translate"],
            finished - prepared,
            dict(self.stages),
        )
        if arrays and all(isinstance(a, Array) for a in arrays):
            return [self._device_output(port) for port in self.outputs]
        return [self._host_output(port) for port in self.outputs]

    def text(self, level: str) -> str:
        """Return the program as text: "hlo" (after passes), "llo", or "tpu" (bundles)."""
        if level == "tpu":
            return print_program(self.program)
        if level not in ("hlo", "llo"):
            message = f'unknown level {level!r}; known are "hlo", "llo", "tpu"'
            raise ValueError(message)
        if self.texts is None:
            message = f"a saved program holds no {level.upper()} text: compile from the model"
            raise ValueError(message)
        return self.texts.hlo_text() if level == "hlo" else self.texts.llo_text()

    def save(self, path: str | Path) -> None:
        """Write the program as a `.tpux` file, whole or not at all."""
        write_tpux(self.program, Path(path))

    def _machine_ready(self) -> Machine:
        if self._machine is None:
            self._machine = make_machine(self.program, self.device.chip, self.options)
        return self._machine

    def _checked_arguments(self, args: Sequence[npt.ArrayLike | Array]) -> list[HostArray | Array]:
        if len(args) != len(self.inputs):
            raise CompileError(f"the model takes {len(self.inputs)} inputs, got {len(args)}")
        return [
            _checked(number, value, port)
            for number, (value, port) in enumerate(zip(args, self.inputs, strict=True))
        ]

    def _load(self, arrays: list[HostArray | Array]) -> None:
        """Write constants (when another program used the arena since) and inputs."""
        hbm = self.device.hbm
        if self.device.claim_arena(self, self.program.hbm_bytes):
            for offset, constant in self.program.constants:
                hbm.write(offset, constant)
        for value, port in zip(arrays, self.inputs, strict=True):
            if isinstance(value, Array) and value.device_shape == port.device_shape:
                planes = value.planes()
            else:
                planes = to_planes(np.asarray(value), port.shape)
            for data, buffer in zip(planes, port.buffers, strict=True):
                hbm.write(buffer.offset_bytes, data.data)

    def _host_output(self, port: Port) -> HostArray:
        return from_planes(self._planes(port), port.shape)

    def _planes(self, port: Port) -> list[HostArray]:
        """The bytes of an output's planes."""
        hbm = self.device.hbm
        return [hbm.view(b.offset_bytes, b.size_bytes) for b in port.buffers]

    def _device_output(self, port: Port) -> Array:
        array = Array(self.device, port.device_shape)
        for source, target in zip(self._planes(port), array.planes(), strict=True):
            target[:] = source[: target.size]
        return array


def _checked(number: int, value: npt.ArrayLike | Array, port: Port) -> HostArray | Array:
    """Return the argument as an array of the wanted dtype and dimensions.

    64-bit host types stand for their 32-bit ones and the other way round, as in JAX by default.
    """
    array = value if isinstance(value, Array) else np.asarray(value)
    want = port.shape
    is_convertible = array.dtype != want.dtype.numpy and _narrow(array.dtype) == _narrow(
        want.dtype.numpy
    )
    is_device_form = isinstance(array, Array) and array.dtype == port.device_shape.dtype.numpy
    if is_convertible and not is_device_form:
        array = np.asarray(array).astype(want.dtype.numpy)
    elif not is_device_form and array.dtype != want.dtype.numpy or tuple(array.shape) != want.dims:
        raise CompileError(
            f"input {number}: found {array.dtype}{list(array.shape)}, "
            f"want {want.dtype.numpy}{list(want.dims)}"
        )
    return array


def _narrow(dtype: np.dtype[np.generic]) -> np.dtype[np.generic]:
    return canonical_host_array(np.empty((), dtype)).dtype
