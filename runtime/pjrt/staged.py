"""Programs that talk to the host: stages, each a program of its own, with transfers between them, and loops
and branches of such programs, which the host goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compiler.passes.stages import HostTransfer, Stage, StagedProgram, StageLoop, Step
from runtime.buffer import Array, place
from runtime.client import Device
from runtime.executable import Executable
from runtime.pjrt.failures import PjrtError
from runtime.pjrt.host_calls import HostCalls
from runtime.pjrt.layouts import ErrorCode
from runtime.pjrt.profile import profile
from runtime.report import Report
from runtime.slice_executable import SliceExecutable
from runtime.spread import Spread

_MARK = b"_xla_host_transfer"
"""How the attributes of JAX's host transfers begin; bytecode keeps strings as they are."""


def talks_to_host(code: bytes) -> bool:
    """Whether a program may have transfers with the host."""
    return _MARK in code


Pieces = Sequence[Array]
"""A value: what each device has of it, in their order."""


@dataclass
class Staged:
    """A program in steps, with the executable of each of its stages; of several devices, also how
    arguments and results lie on them (tokens left out)."""

    program: StagedProgram
    executables: dict[Stage, Executable]
    spreads_in: list[Spread] = field(default_factory=list)
    spreads_out: list[Spread] = field(default_factory=list)
    memories: dict[int, str] = field(default_factory=dict)  # of results that are not to lie in HBM

    def run(
        self, rows: Sequence[Sequence[Array]], devices: Sequence[Device], hosts: Sequence[HostCalls]
    ) -> StagedRun:
        """Run all steps, with a row of arguments and the host's callbacks for each device."""
        run = StagedRun(self.executables, devices, hosts)
        given = [
            pieces
            for argument, *pieces in zip(self.program.arguments, *rows, strict=True)
            if argument is not None
        ]
        made = iter(run.results_of(self.program, given))
        values = [None if result is None else next(made) for result in self.program.results]
        run.results = [
            [None if pieces is None else pieces[number] for pieces in values]
            for number in range(len(devices))
        ]
        return run


class StagedRun:
    """A run of a program in steps: `results` has a row for each device, None for tokens; `reports` say
    what each stage cost."""

    def __init__(
        self,
        executables: dict[Stage, Executable],
        devices: Sequence[Device],
        hosts: Sequence[HostCalls],
    ) -> None:
        self._executables, self._devices, self._hosts = executables, devices, hosts
        self._reports: list[Report] = []
        self.results: list[list[Array | None]] = []

    def reports(self) -> list[Report]:
        """What each stage cost, in order, if the run was profiled."""
        return self._reports

    def results_of(self, program: StagedProgram, values: Sequence[Pieces]) -> list[Pieces]:
        """What a program, or one inside of a loop or a branch, makes of values."""
        names = [argument[0] for argument in program.arguments if argument is not None]
        known = dict(zip(names, values, strict=True))
        for step in program.steps:
            known.update(self._made(step, known))
        return [known[result[0]] for result in program.results if result is not None]

    def _made(self, step: Step, known: Mapping[str, Pieces]) -> dict[str, Pieces]:
        """The values that a step makes, by their names."""
        if isinstance(step, Stage):
            made = self._run(self._executables[step], [known[name] for name in step.inputs])
            return dict(zip(step.outputs, made, strict=True))
        if isinstance(step, HostTransfer):
            return self._transfer(step, known)
        if isinstance(step, StageLoop):
            state = [known[name] for name in step.operands]
            while _decision(self.results_of(step.condition, state)[0]):
                state = self.results_of(step.body, state)
            return {name: state[number] for name, number in step.results}
        index = _decision(known[step.index])
        last = len(step.branches) - 1
        taken = int(not index) if isinstance(index, bool) else index
        taken = taken if 0 <= taken <= last else last
        operands = [known[name] for name in step.operands[taken]]
        results = self.results_of(step.branches[taken], operands)
        return {name: results[number] for name, number in step.results}

    def _run(self, executable: Executable, arguments: Sequence[Pieces]) -> list[Pieces]:
        """Run a stage; its results."""
        if isinstance(executable, SliceExecutable):
            count = range(len(self._devices))
            rows = executable.call_pieces([[pieces[n] for pieces in arguments] for n in count])
            if profile.is_on and executable.report is not None:
                self._reports.append(executable.report)
            return list(zip(*rows, strict=True))
        given = [pieces[0] for pieces in arguments]
        run = executable.call(given, on_device=True, device=self._devices[0]).wait()
        if profile.is_on:
            self._reports.append(run.report())
        return [[result] for result in run.results if isinstance(result, Array)]

    def _transfer(self, step: HostTransfer, known: Mapping[str, Pieces]) -> dict[str, Pieces]:
        dtype, several = step.shape.dtype, len(self._devices) > 1
        hosts = self._hosts
        if several and step.device is not None:
            hosts = [self._hosts[step.device]]
        if step.is_send:
            for host, piece in zip(hosts, known[step.value], strict=False):
                host.send(step.channel, piece.numpy().astype(dtype.numpy, copy=False))
            return {}
        received = [host.receive(step.channel, step.shape) for host in hosts]
        each = received * (len(self._devices) // len(received))
        placed = zip(each, self._devices, strict=True)
        return {step.value: [place(value, dtype, device) for value, device in placed]}


def _decision(pieces: Pieces) -> bool | int:
    """What decides a loop or a branch: the same on all devices, which go through it together. Raises
    `PjrtError` if it is not."""
    found = {piece.item() for piece in pieces}
    if len(found) > 1:
        raise PjrtError(
            "a loop or branch around a callback that goes on differently on several devices; decide it by a "
            "value that is the same on all (lax.psum, lax.pmax)",
            ErrorCode.UNIMPLEMENTED,
        )
    decision: bool | int = found.pop()
    return decision
