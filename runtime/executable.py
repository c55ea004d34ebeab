"""`Executable`: a compiled program bound to a device, called with arrays."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from weakref import ReferenceType, ref

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import CompileError, ElidedConstantsWarning, made_up_note
from compiler.hlo.dtypes import BY_NUMPY
from compiler.hlo.host_types import device_dtype, fitted
from runtime.buffer import Array
from runtime.client import Device
from runtime.machines import Machine, MachineOptions, estimate_cycles, make_machine
from runtime.ports import Port, ports
from runtime.report import Report, build_report
from runtime.storage import read_planes, write_planes
from runtime.trace import write_trace
from runtime.transfer import Bytes
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.container import write_tpux
from tpu_sim.isa.program import Program
from tpu_sim.jit.program_translator import DEFAULT_TRIPS
from tpu_sim.machine.result import ExecutionResult

HostArray = npt.NDArray[np.generic]


class Texts(Protocol):
    """The compiler's texts of a program (`compiler.driver.CompiledModule`)."""

    def hlo_text(self) -> str:
        """HLO after all passes."""

    def llo_text(self) -> str:
        """LLO of all kernels."""


@dataclass
class _Call:
    """The outcome of a call; its report is made when somebody asks."""

    result: ExecutionResult
    seconds: float
    report: Report | None = None


@dataclass
class Executable:
    """Call it with one array per parameter; it returns the outputs as a list.

    NumPy arrays in give NumPy arrays out; if every argument is a `tpuc.Array`, the results are too.
    Wrong count, dimensions or dtype raise `CompileError`. `report` tells of the last call.
    A `tpuc.Array` for a donated parameter (``input_output_alias``) is deleted by the call; if it is
    the result that the program left in that place, it is not copied.
    `digest` names the program's content, if known: native code made earlier is found by it.
    """

    program: Program
    device: Device
    options: MachineOptions = field(default_factory=MachineOptions)
    texts: Texts | None = None
    compile_seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    digest: str | None = None
    _machine: Machine | None = None
    _last: _Call | None = None
    _result: ExecutionResult | None = None
    _held: dict[int, ReferenceType[Array]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inputs = ports(self.program, "input")
        self.outputs = ports(self.program, "output")

    @property
    def report(self) -> Report | None:
        """What the last call cost; None before the first."""
        last = self._last
        if last is None:
            return None
        if last.report is None:
            compiled = self.compile_seconds + self.stages["translate"]
            last.report = build_report(
                self.program,
                self.device.chip,
                last.result,
                compiled,
                last.seconds,
                dict(self.stages),
            )
        return last.report

    def __call__(self, *args: npt.ArrayLike | Array) -> list[HostArray] | list[Array]:
        """Run once. Shapes and dtypes are those of the model's parameters."""
        return self.call(args, on_device=bool(args) and all(isinstance(a, Array) for a in args))

    def call(
        self, args: Iterable[npt.ArrayLike | Array], *, on_device: bool
    ) -> list[HostArray] | list[Array]:
        """Run once, with the results on the device or on the host. Calls take turns.

        Arguments of a sequence are all checked first; those of an iterator one by one, so that the
        host need not hold them together.
        """
        if self.made_up is not None:
            warnings.warn(f"{self.made_up}, so results mean nothing", ElidedConstantsWarning, 3)
        with self.device.lock:
            self._load(self._checked_arguments(args))
            self._last = self._run(self._machine_ready())
            if on_device:
                return [self._device_output(port) for port in self.outputs]
            return [self._host_output(port) for port in self.outputs]

    @property
    def made_up(self) -> str | None:
        """Says that the model's text left constants out (``{...}``); None if it did not."""
        names = self.program.metadata.get("made_up_constants", "").split()
        return made_up_note(names) if names else None

    def prepare(self) -> None:
        """Translate to native code now instead of at the first call."""
        with self.device.lock:
            self._machine_ready()

    def estimate(self, trips: int = DEFAULT_TRIPS) -> Report:
        """Report what a call would cost, from the same program with values off.

        It takes no inputs and no memory for them. Loops whose trip count the program does not
        state run `trips` times, and branches on data go as if the data were 0; all else costs what
        it costs in a call.
        """
        if trips < 0:
            raise ValueError(f"{trips} trips: want 0 or more")
        started = time.perf_counter()
        result, translating = estimate_cycles(
            self.program, self.device.chip, self.options, trips, self.digest
        )
        seconds = time.perf_counter() - started - translating
        self._result = result
        stages = self.stages | {"translate": translating}
        return build_report(
            self.program,
            self.device.chip,
            result,
            self.compile_seconds + translating,
            seconds,
            stages,
            assumed_trips=trips,
        )

    def write_trace(self, path: str | Path) -> None:
        """Write the last call or estimate as a trace for ui.perfetto.dev; see `runtime.trace`."""
        if self._result is None:
            raise ValueError("nothing to trace: call the executable or its estimate() first")
        write_trace(path, self.program, self.device.chip, self._result)

    def _run(self, machine: Machine) -> _Call:
        started = time.perf_counter()
        try:
            result = machine.run(self.device.hbm)
        except BaseException:
            self.device.resident = None  # what it left in the arena is anyone's guess
            raise
        self._result = result
        return _Call(result, time.perf_counter() - started)

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
            started = time.perf_counter()
            self._machine = make_machine(self.program, self.device.chip, self.options, self.digest)
            self.stages["translate"] = time.perf_counter() - started
        return self._machine

    def _checked_arguments(
        self, args: Iterable[npt.ArrayLike | Array]
    ) -> Iterable[HostArray | Array]:
        if isinstance(args, Sequence):
            self._expect_count(len(args))
            return list(self._each_checked(args))
        return self._each_checked(args)

    def _each_checked(self, args: Iterable[npt.ArrayLike | Array]) -> Iterator[HostArray | Array]:
        count = 0
        for value in args:
            if count == len(self.inputs):
                self._expect_count(count + 1)
            yield _checked(count, value, self.inputs[count], self.device)
            count += 1
        self._expect_count(count)

    def _expect_count(self, count: int) -> None:
        if count != len(self.inputs):
            raise CompileError(f"the model takes {len(self.inputs)} inputs, got {count}")

    def _load(self, arrays: Iterable[HostArray | Array]) -> None:
        """Bring constants and inputs into the arena, save what is there since the last call."""
        known = arrays if isinstance(arrays, list) else []  # an iterator's come one by one
        self.device.clear_arena(self, staying=_in_place(known, self.inputs))
        if self.device.claim_arena(self, self.program.hbm_bytes):
            self._held.clear()
            for offset, constant in self.program.constants:
                self.device.hbm.write(offset, constant)
        donated: list[tuple[int, Array]] = []
        for number, value in enumerate(arrays):
            port = self.inputs[number]
            if isinstance(value, Array) and value.device_shape == port.device_shape:
                self._load_resident(number, value, port)
            else:
                self._load_host(number, np.asarray(value), port)
            if isinstance(value, Array) and port.is_donated:
                donated.append((number, value))
        for number, array in donated:  # not before all are there
            name = self.inputs[number].buffers[0].name
            array.delete(f"when a program took it for its donated input {number} ({name})")

    def _load_host(self, number: int, host: HostArray, port: Port) -> None:
        self._let_go(number)
        host = fitted(host, port.shape.dtype.numpy)  # an array of another type on the device
        write_planes(host, port.shape, self._planes(port), use_cache=self.options.cache)

    def _load_resident(self, number: int, value: Array, port: Port) -> None:
        held = self._held.get(number)
        if held is not None and held() is value:
            return
        self._let_go(number)
        if not value.lies_at(port.places):
            self.device.copy(value.planes(), self._planes(port))
        if port.is_kept:
            self._held[number] = ref(value)
            value.settle(port.places)

    def _let_go(self, number: int) -> None:
        """An input's buffers are about to be overwritten: who lies there moves out."""
        held = self._held.get(number)
        array = held() if held is not None else None
        if array is not None:
            array.leave_arena()  # it stays held when HBM is too full for it
        self._held.pop(number, None)

    def _host_output(self, port: Port) -> HostArray:
        return read_planes(self._planes(port), port.shape, use_cache=self.options.cache)

    def _planes(self, port: Port) -> list[Bytes]:
        """The bytes of a port's planes in the arena."""
        hbm = self.device.hbm
        return [hbm.view(b.offset_bytes, b.size_bytes) for b in port.buffers]

    def _device_output(self, port: Port) -> Array:
        """The output, for now where the program left it."""
        return Array(self.device, port.device_shape, port.places)


def _in_place(values: Sequence[HostArray | Array], inputs: Sequence[Port]) -> list[Array]:
    """The arrays that lie already where they are wanted, to be overwritten there.

    Raises `CompileError` for an array that is donated and passed a second time: its value is
    wanted where it is overwritten.
    """
    found: list[Array] = []
    arrays = [v for v in values if isinstance(v, Array)]
    for number, (value, port) in enumerate(zip(values, inputs, strict=False)):
        if not isinstance(value, Array) or not port.is_donated:
            continue
        if sum(array is value for array in arrays) > 1:
            raise CompileError(
                f"input {number} ({port.buffers[0].name}) is donated, and the same array is passed "
                "for another input too: pass a copy, device_put(array.numpy())"
            )
        if value.device_shape == port.device_shape and value.lies_at(port.places):
            found.append(value)
    return found


def _checked(
    number: int, value: npt.ArrayLike | Array, port: Port, device: Device
) -> HostArray | Array:
    """Return the argument if it has the wanted dimensions and a dtype that stands for the port's.

    An array on another device than the program's is refused.

    64-bit host types stand for their 32-bit ones and the other way round, as in JAX by default;
    one warning says so of f64 arrays. Integers that do not fit are refused.
    """
    array = value if isinstance(value, Array) else np.asarray(value)
    if isinstance(array, Array):
        array.expect_alive()
    want = port.shape
    if array.shape != want.dims or not _stands_for(array.dtype, want.dtype.numpy):
        raise CompileError(
            f"input {number} ({port.buffers[0].name}): found {array.dtype}{list(array.shape)}, "
            f"want {want.dtype.numpy}{list(want.dims)}"
        )
    if isinstance(value, Array) and value.device is not device:
        raise CompileError(
            f"input {number} ({port.buffers[0].name}): the array lies on device "
            f"{value.device.chip.name}, the program is for {device.chip.name}"
            f"{' of other parameters' if value.device.chip.name == device.chip.name else ''}: "
            "pass .numpy() of it, or place it there with device_put(.., target=..)"
        )
    if isinstance(array, Array) or array.dtype == want.dtype.numpy:
        return array
    if isinstance(value, np.ndarray):
        device_dtype(value.dtype, warns=True)
    try:
        return fitted(array, want.dtype.numpy)
    except CompileError as error:
        raise CompileError(f"input {number} ({port.buffers[0].name}): {error}") from None


def _stands_for(found: np.dtype[np.generic], want: np.dtype[np.generic]) -> bool:
    return found == want or (found in BY_NUMPY and device_dtype(found) == device_dtype(want))
