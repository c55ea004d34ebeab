"""A program on a device, and one call of it: arguments into its arena, run, results out."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from weakref import ReferenceType

import numpy as np
import numpy.typing as npt

from compiler.hlo.host_types import fitted
from runtime.arena import Arena
from runtime.buffer import Array, Buffer
from runtime.client import Device
from runtime.machines import Runnable
from runtime.ports import Port
from runtime.queue import Task
from runtime.report import Report
from runtime.storage import read_planes, write_planes
from runtime.transfer import Bytes
from tpu_sim.isa.program import Program
from tpu_sim.machine.result import ExecutionResult

HostArray = npt.NDArray[np.generic]

SHORT_SECONDS = 2e-4
"""A program that runs no longer is run by the thread that calls it: to hand it to the device's thread
and back takes about as long."""
_SURELY_LONG_SECONDS = 0.01
"""So long no short run takes on the clock, which counts pauses that the host makes too."""


class LoadedProgram:
    """A program on one device: where it lies there, and the machine it is ready for.

    `busy_seconds` is how long a call keeps a thread busy, as far as known: the least that was
    measured (the first call touches fresh memory).
    """

    def __init__(
        self,
        program: Program,
        ports: tuple[Sequence[Port], Sequence[Port]],
        device: Device,
        runnable: Runnable,
        *,
        use_cache: bool,
    ) -> None:
        self.device = device
        self.runnable = runnable
        self.inputs, self.outputs = ports
        self.arena = Arena(device.memory, program)
        self.busy_seconds = inf
        self._use_cache = use_cache

    def execute(self, call: ProgramCall) -> None:
        """Do `call` now. The device's turn is this thread's."""
        with self.loaded(call):
            self._run(call)
            self.hand_out(call)

    @contextmanager
    def loaded(self, call: ProgramCall) -> Iterator[None]:
        """The arguments of `call` are in the arena, which nobody else uses meanwhile."""
        arena = self.arena
        with self.device.memory.lock.here:
            arena.in_use = True
            try:
                self._load(call.arguments)
            except BaseException:
                arena.in_use = False
                raise
        try:
            yield
        finally:
            arena.in_use = False

    def hand_out(self, call: ProgramCall) -> None:
        """Give the outputs of a run to its call: copied to the host, or lying where they are."""
        if call.outputs is None:
            call.hosts = [self._host_output(port) for port in self.outputs]
        else:
            self._lend(call.outputs)

    def _run(self, call: ProgramCall) -> None:
        busy, started = time.thread_time() if call.is_measured else 0.0, time.perf_counter()
        try:
            is_cancelled = (lambda: call.is_cancelled) if call.is_measured else None
            call.cost = self.runnable.run(self.arena.hbm, is_cancelled)
        except BaseException:
            self.arena.spoil()
            raise
        call.seconds = time.perf_counter() - started
        if call.is_measured:
            self.busy_seconds = min(self.busy_seconds, time.thread_time() - busy)
        elif call.seconds > 10 * self.busy_seconds + _SURELY_LONG_SECONDS:
            self.busy_seconds = inf  # its data make it longer than it was: the next is measured

    def _load(self, arguments: Iterable[HostArray | Array]) -> None:
        """Bring constants and inputs into the arena, save what is there since the last call."""
        known = arguments if isinstance(arguments, list) else []  # an iterator's come one by one
        for number, value in enumerate(known):
            if isinstance(value, Array):
                self._keep_result(number, value, self.inputs[number])
        self.arena.enter(staying=self._in_place(known))
        donated: list[tuple[int, Array]] = []
        for number, value in enumerate(arguments):
            port = self.inputs[number]
            if not isinstance(value, Array):
                self._load_host(number, value, port)
                continue
            if value.device_shape == port.device_shape:
                self._load_resident(number, value.buffer(), port)
            else:
                self._load_host(number, value.numpy(), port)
            if port.is_donated:
                donated.append((number, value))
        for number, array in donated:  # not before all are there
            array.delete(why_donated(number, self.inputs[number]))

    def _keep_result(self, number: int, value: Array, port: Port) -> None:
        """A result of this program that comes back as an argument which the program leaves as it is
        moves there at once, while everything else lies as the program left it."""
        buffer = value.buffer()
        if not port.is_kept or not buffer.is_lent_by(self.arena):
            return
        if value.device_shape == port.device_shape:
            self.arena.let_go(number)
            self.device.memory.copy(buffer.planes(), self._planes(port))
            self.arena.hold(number, buffer)
            buffer.settle(self.arena, port.places)

    def _load_host(self, number: int, host: HostArray, port: Port) -> None:
        self.arena.let_go(number)
        host = fitted(host, port.shape.dtype.numpy)  # an array of another type on the device
        write_planes(host, port.shape, self._planes(port), use_cache=self._use_cache)

    def _load_resident(self, number: int, buffer: Buffer, port: Port) -> None:
        arena = self.arena
        held = arena.held.get(number)
        if held is not None and held() is buffer:
            return
        buffer.wait()
        arena.let_go(number)
        if not buffer.lies_at(arena, port.places):
            self.device.memory.copy(buffer.planes(), self._planes(port))
        if port.is_kept:
            arena.hold(number, buffer)
            buffer.settle(arena, port.places)

    def _in_place(self, values: Sequence[HostArray | Array]) -> list[Buffer]:
        """What lies already where it is wanted, to be overwritten there."""
        return [
            value.buffer()
            for value, port in zip(values, self.inputs, strict=False)
            if port.is_donated
            and isinstance(value, Array)
            and value.device_shape == port.device_shape
            and value.buffer().lies_at(self.arena, port.places)
        ]

    def _host_output(self, port: Port) -> HostArray:
        return read_planes(self._planes(port), port.shape, use_cache=self._use_cache)

    def _lend(self, outputs: Sequence[ReferenceType[Buffer]]) -> None:
        """The outputs lie where the program left them, for now."""
        for port, output in zip(self.outputs, outputs, strict=True):
            buffer = output()
            if buffer is not None:
                buffer.lie_at(self.arena, port.places)
                self.arena.lend(output)

    def _planes(self, port: Port) -> list[Bytes]:
        """The bytes of a port's planes in the arena."""
        hbm = self.arena.hbm
        return [hbm.view(b.offset_bytes, b.size_bytes) for b in port.buffers]


class Execution(Task):
    """One execution of a program, and what it cost."""

    def __init__(self) -> None:
        super().__init__()
        self.cost: ExecutionResult | None = None
        self.seconds = 0.0
        self.report: Report | None = None  # made when somebody asks


class ProgramCall(Execution):
    """One call of a program on a device.

    `outputs` are the buffers that its results get; without them it copies them to `hosts`.
    """

    def __init__(self, loaded: LoadedProgram, arguments: Iterable[HostArray | Array]) -> None:
        super().__init__()
        self.loaded = loaded
        self.arguments = arguments
        self.outputs: list[ReferenceType[Buffer]] | None = None
        self.hosts: list[HostArray] = []
        self.is_measured = (
            False  # whether it runs on a thread of the device, which has no other work
        )
        self._donors: list[
            tuple[Array, Array]
        ] = []  # the caller's arrays, and what stands for them

    @property
    def is_short(self) -> bool:
        """Whether to wait for it takes no longer than to leave it to another thread."""
        return self.loaded.busy_seconds <= SHORT_SECONDS

    def work(self) -> None:
        """Run the program."""
        self.loaded.execute(self)

    def end(self) -> None:
        """Let go of the arguments; what was donated to a call that never ran is there again."""
        for donor, stand_in in self._donors:
            donor.undelete(stand_in)
        self._donors = []
        self.arguments = ()
        super().end()

    def take_hosts(self) -> list[HostArray]:
        """The results on the host, which are the caller's from now on."""
        hosts, self.hosts = self.hosts, []
        return hosts

    def put_aside(self, *, is_awaited: bool) -> None:
        """Take hold of the arguments, for a time when the caller may have changed or deleted them.

        What is donated is gone for the caller from now on. Nobody changes what a caller that waits
        passed (`is_awaited`).
        """
        assert isinstance(self.arguments, list)
        self.is_measured = True
        kept: list[HostArray | Array] = []
        for number, (value, port) in enumerate(
            zip(self.arguments, self.loaded.inputs, strict=True)
        ):
            if not isinstance(value, Array):
                kept.append(value if is_awaited else value.copy())
                continue
            stand_in = Array(value.device, value.device_shape, value.buffer())
            kept.append(stand_in)
            if port.is_donated:
                self._donors.append((value, stand_in))
                value.delete(why_donated(number, port))
        self.arguments = kept


def why_donated(number: int, port: Port) -> str:
    """Why an array is deleted that was passed for a donated input."""
    return f"when a program took it for its donated input {number} ({port.buffers[0].name})"
