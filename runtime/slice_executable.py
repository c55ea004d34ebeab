"""A program for all devices of a slice: called with global arrays, run on each device's core."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy.typing as npt

from compiler.diagnostics import CompileError
from compiler.hlo.shape import ArrayShape
from runtime.arguments import checked_shape, expect_shape
from runtime.buffer import Array
from runtime.chakra import write_chakra
from runtime.client import Device
from runtime.executable import Executable, Results, Run
from runtime.link_use import link_use
from runtime.loaded import Execution, LoadedProgram, ProgramCall
from runtime.mesh import Mesh
from runtime.report import Report
from runtime.sharded_array import ShardedArray
from runtime.slice_part import started
from runtime.spread import HostArray
from runtime.spreads import device_shape, program_spreads
from tpu_sim.isa.torus import Slice, Torus
from tpu_sim.jit.translated import DEFAULT_TRIPS
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.system.slice import expect_done


@dataclass(eq=False)
class SliceExecutable(Executable):
    """Call it with one global array per parameter; it returns the global results as a list.

    Each device gets its piece of an argument, and the results are put together from the pieces, or
    stay on the devices if all arguments lie there (`ShardedArray`). A
    program of replicas has one more leading dimension in each: the replica's number.
    `devices` run it in this order: piece p is on device p.
    """

    devices: Sequence[Device] = ()
    slice: Slice = field(default_factory=lambda: Slice(Torus(), (0,)))
    cores: list[ExecutionResult] = field(default_factory=list)
    """What the last call took on each device."""
    mesh: Mesh | None = None
    """The mesh that the program was made for, by which results say their shardings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.spreads_in = program_spreads(self.program, self.inputs, "input")
        self.spreads_out = program_spreads(self.program, self.outputs, "output")
        count = len(self.spreads_in[0].places if self.spreads_in else self.devices)
        if len(self.devices) < count:
            raise CompileError(
                f"the program runs on {count} devices, there are {len(self.devices)}"
            )

    @property
    def collectives(self) -> list[dict[str, object]]:
        """The collectives of the program, loops counted once: kind, bytes on a device, group size."""
        found: list[dict[str, object]] = json.loads(self.program.metadata.get("collectives", "[]"))
        return found

    @property
    def device_count(self) -> int:
        """On how many devices it runs."""
        replicas, partitions = device_shape(self.program)
        return replicas * partitions

    @property
    def argument_shapes(self) -> list[ArrayShape]:
        """The global shape of each argument."""
        return [spread.shape for spread in self.spreads_in]

    @property
    def result_shapes(self) -> list[ArrayShape]:
        """The global shape of each result."""
        return [spread.shape for spread in self.spreads_out]

    def call(
        self,
        args: Iterable[npt.ArrayLike | Array | ShardedArray],
        *,
        on_device: bool | None = None,
        device: Device | None = None,
    ) -> Run:
        """Run once; it has ended when this returns.

        An argument that lies as the program wants it stays where it is; any other is cut on the host.
        Without `on_device` the results are `ShardedArray` if all arguments are, else NumPy arrays.
        """
        if device is not None:
            raise CompileError("a program of several devices runs on all of them, not on one")
        self._warn_of_made_up()
        values = list(args)
        self.expect_count(len(values))
        if on_device is None:
            on_device = bool(values) and all(isinstance(value, ShardedArray) for value in values)
        pieces = [self._pieces(number, value) for number, value in enumerate(values)]
        mesh = next((v.mesh for v in values if isinstance(v, ShardedArray) and v.mesh), self.mesh)
        rows = [[piece[number] for piece in pieces] for number in range(len(self.devices))]
        calls, made = self._call_rows(rows, on_device=on_device)
        results: Results
        if on_device:
            results = [
                ShardedArray(spread, self.devices, [device[number] for device in made], mesh)
                for number, spread in enumerate(self.spreads_out)
            ]
        else:
            hosts = [call.take_hosts() for call in calls]
            results = [
                spread.join([host[number] for host in hosts])
                for number, spread in enumerate(self.spreads_out)
            ]
        assert self._last is not None
        return Run(self, self._last, results)

    def call_pieces(self, rows: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Run once with each device's own pieces, a row for each device in order; rows of results.

        Each piece lies on its device and has the shape and type of the program's input.
        """
        self._warn_of_made_up()
        for row in rows:
            self.expect_count(len(row))
        return self._call_rows(rows, on_device=True)[1]

    def _call_rows(
        self, rows: Sequence[Sequence[HostArray | Array]], *, on_device: bool
    ) -> tuple[list[ProgramCall], list[list[Array]]]:
        """The calls, one for each device, which have ended, and their results if these stay there."""
        calls = [
            ProgramCall(self.loaded(number), list(row))
            for number, row in zip(range(len(self.devices)), rows, strict=True)
        ]
        made = [self._results(call) for call in calls] if on_device else []
        self._execute(calls)
        self._last = max(calls, key=lambda call: call.cost.cycles if call.cost else 0)
        return calls, made

    def loaded(self, number: int) -> LoadedProgram:
        """The program on the device of that number in its order."""
        return self._on(self.devices[number])

    def _pieces(
        self, number: int, value: npt.ArrayLike | Array | ShardedArray
    ) -> Sequence[HostArray | Array]:
        """What each device gets of an argument."""
        port, spread = self.inputs[number], self.spreads_in[number]
        if isinstance(value, ShardedArray):
            expect_shape(number, value, port, spread.shape)
            found = value.lies_as(spread, self.devices)
            if found is not None:
                return found
        return spread.cut(checked_shape(number, value, port, spread.shape))

    def report_of(self, call: Execution) -> Report:
        """What a call cost; see `Report.links`."""
        report = super().report_of(call)
        if report.links is None and call.cost is not None:
            report = call.report = self._with_links(report, self.cores)
        return report

    def estimate(self, trips: int = DEFAULT_TRIPS) -> Report:
        """Report what a call would cost: every device takes what one core does."""
        report = super().estimate(trips)
        assert report.traced is not None
        return self._with_links(report, [report.traced[2]] * len(self.slice.chips))

    def _with_links(self, report: Report, cores: Sequence[ExecutionResult]) -> Report:
        chip, sent = self.device.chip, [core.route_bytes for core in cores]
        cycles = [core.cycles for core in cores]
        links = link_use(self.slice, self.program.routes, sent, cycles, chip)
        target = self.device.topology.name
        return replace(report, links=links, target=target, cores=tuple(cores))

    def write_chakra(self, folder: str | Path, report: Report) -> None:
        """Write Chakra execution traces (`runtime.chakra`) of an estimate or of the last call.

        Raises UnsupportedError without the package protobuf.
        """
        assert report.traced is not None
        is_estimate = report.assumed_trips is not None
        cores = [report.traced[2]] * self.device_count if is_estimate else self.cores
        write_chakra(Path(folder), self.program, self.device.chip, cores)

    def _execute(self, calls: Sequence[ProgramCall]) -> None:
        """Run the calls together, each on its device, which are nobody else's meanwhile."""
        with started(dict(enumerate(calls)), self.program, self.options.threads) as part:
            before = time.perf_counter()
            part.advance()
            expect_done(part.waiting)
            seconds = time.perf_counter() - before
        self.cores = [part.runs[number].result for number in range(len(calls))]
        for call in calls:
            call.seconds = seconds

    def _load(self, device: Device) -> LoadedProgram:
        """One thread for a core: cores run at the same time."""
        options, self.options = self.options, replace(self.options, threads=1)
        try:
            return super()._load(device)
        finally:
            self.options = options
