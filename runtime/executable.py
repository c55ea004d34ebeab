"""`Executable`: a compiled program, called with arrays; `Run`: one call of it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol
from weakref import ref

import numpy as np
import numpy.typing as npt

from compiler.diagnostics import (
    CompileError,
    ElidedConstantsWarning,
    ResourceExhaustedError,
    made_up_note,
)
from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_text import print_shape
from runtime.arguments import checked, expect_donated_once
from runtime.buffer import Array, Buffer
from runtime.client import Device
from runtime.loaded import Execution, LoadedProgram, ProgramCall
from runtime.machines import MachineOptions, Runnable, estimate_cycles
from runtime.ports import Port, ports
from runtime.queue import Task
from runtime.report import Report, build_report
from runtime.sharded_array import ShardedArray
from tpu_sim.isa.assembly import print_program
from tpu_sim.isa.container import write_tpux
from tpu_sim.isa.program import Program
from tpu_sim.jit.translated import DEFAULT_TRIPS
from tpu_sim.machine.faults import MachineFault
from tpu_sim.machine.fork_lock import ForkLock

HostArray = npt.NDArray[np.generic]
Results = list[HostArray] | list[Array] | list[ShardedArray]

_MOST_LISTED = 6
_SHORT_WAIT_SECONDS = 0.1
"""A program that runs no longer is run by a caller who waits for the results. One that waits for the
device's thread hears Ctrl-C; nobody minds if that takes so long."""


class Texts(Protocol):
    """The compiler's texts of a program (`compiler.driver.CompiledModule`)."""

    def hlo_text(self) -> str:
        """HLO after all passes."""

    def llo_text(self) -> str:
        """LLO of all kernels."""


class Run:
    """One call: what came out, and what it cost.

    `results` are there at once: NumPy arrays with their values, or `tpuc.Array` whose values are
    waited for by who asks for them. `wait` and `report` wait for the call to end, and raise what it
    failed with.
    """

    def __init__(self, executable: Executable, call: Execution, results: Results) -> None:
        self.results = results
        self._executable = executable
        self._call = call

    def __repr__(self) -> str:
        state = "done" if self.is_done() else "under way"
        return f"<tpuc.Run of {self._executable!r}, {state}>"

    def wait(self) -> Run:
        """Return, itself, when the call has ended."""
        self._call.result()
        return self

    def is_done(self) -> bool:
        """Whether the call has ended."""
        return self._call.is_ended

    @property
    def task(self) -> Task:
        """What is being done; its end can be listened for."""
        return self._call

    def report(self) -> Report:
        """What the call cost."""
        return self._executable.report_of(self._call)


def _listed(side: Sequence[Port]) -> str:
    shapes = [print_shape(port.shape.with_layout(None)) for port in side[:_MOST_LISTED]]
    more = [f"{len(side) - _MOST_LISTED} more"] if len(side) > _MOST_LISTED else []
    return f"({', '.join([*shapes, *more])})"


@dataclass(eq=False, repr=False)
class Executable:
    """Call it with one array per parameter; it returns the outputs as a list.

    NumPy arrays in give NumPy arrays out. If every argument is a `tpuc.Array`, the results are too,
    and a long call goes on while the caller does: values are waited for when they are asked for, and
    an error of the run is raised there. It runs on the device where its arguments lie, else on
    `device`; calls on one device are done in order, those on several at the same time.
    Wrong count, dimensions or dtype raise `CompileError`.
    A `tpuc.Array` for a donated parameter (``input_output_alias``) is deleted by the call; if it is
    the result that the program left in that place, it is not copied.
    `digest` names the program's content, if known: native code made earlier is found by it.
    `made_up` says that the model's text left constants out (``{...}``); None if it did not.
    """

    program: Program
    device: Device
    options: MachineOptions = field(default_factory=MachineOptions)
    texts: Texts | None = None
    compile_seconds: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    digest: str | None = None
    _runnable: Runnable | None = None
    _loaded: dict[Device, LoadedProgram] = field(default_factory=dict)
    _last: Execution | None = None

    def __post_init__(self) -> None:
        self.inputs = ports(self.program, "input")
        self.outputs = ports(self.program, "output")
        self._lock = ForkLock()
        names = self.program.metadata.get("made_up_constants", "").split()
        self.made_up = made_up_note(names) if names else None

    def __repr__(self) -> str:
        ends = f"{_listed(self.inputs)} -> {_listed(self.outputs)}"
        kernels = len(self.program.kernels)
        return f"<tpuc.Executable {ends} for {self.device}, kernels: {kernels}>"

    @property
    def device_count(self) -> int:
        """On how many devices it runs."""
        return 1

    @property
    def argument_shapes(self) -> list[ArrayShape]:
        """The shape of each argument, as the caller gives it."""
        return [port.shape for port in self.inputs]

    @property
    def result_shapes(self) -> list[ArrayShape]:
        """The shape of each result, as the caller gets it."""
        return [port.shape for port in self.outputs]

    @property
    def report(self) -> Report | None:
        """What the last call cost (`Run.report` of that call); None before the first."""
        return None if self._last is None else self.report_of(self._last)

    def __call__(self, *args: npt.ArrayLike | Array) -> Results:
        """Run once. Shapes and dtypes are those of the model's parameters."""
        return self.call(args).results

    def call(
        self,
        args: Iterable[npt.ArrayLike | Array],
        *,
        on_device: bool | None = None,
        device: Device | None = None,
    ) -> Run:
        """Run once, with the results on the device or on the host.

        Without `on_device` they are on the device if all arguments are. Arguments of a sequence are
        all checked first; those of an iterator one by one, so that the host need not hold them
        together, and the call has ended when this returns.
        """
        self._warn_of_made_up()
        if isinstance(args, Sequence):
            self.expect_count(len(args))
            values = list(args)
            device = self._place(values, device)
            arguments: Iterable[HostArray | Array] = list(self._each_checked(values, device))
            if on_device is None:
                on_device = bool(values) and all(isinstance(value, Array) for value in values)
        else:
            device = device or self.device
            arguments = self._each_checked(args, device)
        call = ProgramCall(self._on(device), arguments)
        run = Run(self, call, self._submit(call, on_device=bool(on_device)))
        self._last = call
        return run

    def _warn_of_made_up(self) -> None:
        if self.made_up is not None:
            warnings.warn(f"{self.made_up}, so results mean nothing", ElidedConstantsWarning, 4)

    def _submit(self, call: ProgramCall, *, on_device: bool) -> Results:
        """Have the call done: now, or by the device's thread."""
        loaded = call.loaded
        queue = loaded.device.queue
        results = self._results(call) if on_device else []
        if isinstance(call.arguments, list):
            expect_donated_once(call.arguments, self.inputs)
            if on_device:
                is_left = not call.is_short or not queue.is_soon_free()
            else:
                is_left = loaded.busy_seconds > _SHORT_WAIT_SECONDS
            if is_left:
                call.put_aside(is_awaited=not on_device)
                queue.put(call)
                if on_device:
                    return results
                call.result()
                return call.take_hosts()
        try:
            queue.do(call)
        except (MachineFault, ResourceExhaustedError):
            if not on_device:
                raise  # else whoever asks for a value gets it
        return results if on_device else call.take_hosts()

    def _results(self, call: ProgramCall) -> list[Array]:
        """The outputs of a call that is about to be made."""
        device = call.loaded.device
        memory = device.memory
        buffers = [Buffer(memory, p.size_bytes, len(p.buffers), call) for p in self.outputs]
        call.outputs = [ref(buffer) for buffer in buffers]
        return [
            Array(device, port.device_shape, buffer)
            for port, buffer in zip(self.outputs, buffers, strict=True)
        ]

    def prepare(self) -> None:
        """Translate to native code now instead of at the first call."""
        self._on(self.device)

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

    def report_of(self, call: Execution) -> Report:
        """What a call of this program cost; waits for it, and raises what it failed with."""
        call.result()
        if call.report is None:
            assert call.cost is not None
            compiled = self.compile_seconds + self.stages["translate"]
            chip, stages = self.device.chip, dict(self.stages)
            call.report = build_report(
                self.program, chip, call.cost, compiled, call.seconds, stages
            )
        return call.report

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

    def loaded_on(self, device: Device) -> LoadedProgram | None:
        """The program on a device, if it was called there."""
        return self._loaded.get(device)

    def _on(self, device: Device) -> LoadedProgram:
        """The program on a device, made ready at its first call there; translated once for all."""
        loaded = self._loaded.get(device)
        if loaded is None:
            with self._lock.here:
                loaded = self._loaded.get(device) or self._load(device)
                self._loaded[device] = loaded
        return loaded

    def _load(self, device: Device) -> LoadedProgram:
        core, runnable = device.core, self._runnable
        if runnable is None:
            started = time.perf_counter()
            runnable = self._runnable = core.prepare(self.program, self.options, self.digest)
            self.stages["translate"] = time.perf_counter() - started
        else:
            runnable = runnable.on(core, self.options)
        both, use_cache = (self.inputs, self.outputs), self.options.cache
        return LoadedProgram(self.program, both, device, runnable, use_cache=use_cache)

    def _place(self, values: Sequence[npt.ArrayLike | Array], device: Device | None) -> Device:
        """The device that a call runs on: where its arguments lie."""
        chip = self.device.chip
        for value in values:
            if device is None and isinstance(value, Array) and value.device.chip == chip:
                device = value.device
        return device or self.device

    def _each_checked(
        self, args: Iterable[npt.ArrayLike | Array], device: Device
    ) -> Iterator[HostArray | Array]:
        count = 0
        for value in args:
            if count == len(self.inputs):
                self.expect_count(count + 1)
            yield checked(count, value, self.inputs[count], device)
            count += 1
        self.expect_count(count)

    def expect_count(self, count: int) -> None:
        """Raise CompileError unless the model takes so many inputs."""
        if count != len(self.inputs):
            raise CompileError(f"the model takes {len(self.inputs)} inputs, got {count}")
