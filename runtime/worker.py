"""What runs on each worker of a slice on several processes: its devices, turn by turn (docs/workers.md)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from runtime.client import client_of, cores_of
from runtime.loaded import ProgramCall
from runtime.machines import MachineOptions
from runtime.slice_executable import SliceExecutable
from runtime.slice_part import started
from runtime.topology import Topology
from tpu_sim.isa.container import load_program
from tpu_sim.isa.source_digest import source_digest
from tpu_sim.machine.far_core import Letter
from tpu_sim.machine.result import ExecutionResult
from tpu_sim.system.slice import Place, SlicePart

HostArray = npt.NDArray[np.generic]
Letters = dict[int, Letter]


@dataclass(frozen=True)
class WorkAssignment:
    """A program (as in a `.tpux` file), the devices by id that it runs on, in its order, and the `numbers` of
    those that a worker has; `owners` says of each number which worker has it."""

    program: bytes
    digest: str | None
    topology: Topology
    device_ids: tuple[int, ...]
    options: MachineOptions
    owners: tuple[int, ...]


@dataclass(frozen=True)
class Turn:
    """How a worker's turn ended: where each core stands that is not done, and to which workers it wrote."""

    waiting: Mapping[int, Place]
    written: frozenset[int]


class Worker:
    """Some devices of a slice: `start`, as many turns of `advance` as it takes, `finish`."""

    def __init__(self, rank: int) -> None:
        self._rank = rank

    def version(self) -> str:
        """Equal for workers and drivers of one version."""
        return source_digest("compiler", "runtime", "tpu_sim")

    def prepare(self, assignment: WorkAssignment) -> float:
        """Translate the program, or find what another worker of this host made; seconds that it took."""
        client = client_of(assignment.topology)
        devices = [client.devices[id] for id in assignment.device_ids]
        mine = [n for n, owner in enumerate(assignment.owners) if owner == self._rank]
        self._executable = SliceExecutable(
            load_program(assignment.program, lazily=True),
            devices[mine[0]],
            assignment.options,
            digest=assignment.digest,
            devices=devices,
            slice=cores_of(devices),
        )
        self._owners = assignment.owners
        self._executable.prepare()
        return self._executable.stages["translate"]

    def start(self, pieces: Mapping[int, Sequence[HostArray]]) -> None:
        """Stand at the start of the program, each core with its arguments."""
        executable = self._executable
        self._calls = {
            number: ProgramCall(executable.loaded(number), list(own))
            for number, own in pieces.items()
        }
        self._stack, self._seconds = ExitStack(), 0.0
        run = started(self._calls, executable.program, executable.options.threads)
        self._part: SlicePart = self._stack.enter_context(run)

    def advance(self, *letters: Letters) -> tuple[Turn | Letters, ...]:
        """Open `letters`, and run until all cores wait for those of others: how that went, and for each
        worker what is for it."""
        before = time.perf_counter()
        for one in letters:
            self._part.deliver({n: letter for n, letter in one.items() if n in self._calls})
        self._part.advance()
        boxes: list[Letters] = [{} for _ in range(max(self._owners) + 1)]
        for number, letter in self._part.take().items():
            boxes[self._owners[number]][number] = letter
        written = frozenset(rank for rank, box in enumerate(boxes) if box)
        self._seconds += time.perf_counter() - before
        return Turn(self._part.waiting, written), *boxes

    def finish(self) -> tuple[dict[int, ExecutionResult], dict[int, list[HostArray]], float]:
        """What each core took, its results, and the seconds of all turns."""
        self._stack.close()
        costs = {number: call.cost for number, call in self._calls.items()}
        hosts = {number: call.take_hosts() for number, call in self._calls.items()}
        return {n: cost for n, cost in costs.items() if cost is not None}, hosts, self._seconds


def shared_options(options: MachineOptions, workers: int) -> MachineOptions:
    """The options of each of so many workers of a host."""
    return replace(options, threads=max(1, options.threads // workers))
