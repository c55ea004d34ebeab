"""Programs that talk to the host: stages, each a program of its own, with transfers between them, and loops
and branches of such programs, which the host goes through."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.passes.stages import HostTransfer, Loop, Stage, StagedProgram, Step
from runtime.buffer import Array, place
from runtime.client import Device
from runtime.executable import Executable, Run
from runtime.pjrt.host_calls import HostCalls
from runtime.pjrt.profile import profile
from runtime.report import Report

_MARK = b"_xla_host_transfer"
"""How the attributes of JAX's host transfers begin; bytecode keeps strings as they are."""


def talks_to_host(code: bytes) -> bool:
    """Whether a program may have transfers with the host."""
    return _MARK in code


@dataclass
class Staged:
    """A program in steps, with the executable of each of its stages."""

    program: StagedProgram
    executables: dict[Stage, Executable]

    def run(self, values: Sequence[Array], device: Device, host: HostCalls) -> StagedRun:
        """Run all steps."""
        run = StagedRun(self.executables, device, host)
        given = [
            value
            for argument, value in zip(self.program.arguments, values, strict=True)
            if argument is not None
        ]
        made = iter(run.results_of(self.program, given))
        run.results = [None if result is None else next(made) for result in self.program.results]
        return run


class StagedRun:
    """A run of a program in steps: `results` has None for tokens, `reports` what each stage cost."""

    def __init__(
        self, executables: dict[Stage, Executable], device: Device, host: HostCalls
    ) -> None:
        self._executables, self._device, self._host = executables, device, host
        self._runs: list[Run] = []
        self.results: list[Array | None] = []

    def reports(self) -> list[Report]:
        """What each stage cost, in order."""
        return [run.report() for run in self._runs]

    def results_of(self, program: StagedProgram, values: Sequence[Array]) -> list[Array]:
        """What a program, or one inside of a loop or a branch, makes of arrays."""
        names = [argument[0] for argument in program.arguments if argument is not None]
        known = dict(zip(names, values, strict=True))
        for step in program.steps:
            known.update(self._made(step, known))
        return [known[result[0]] for result in program.results if result is not None]

    def _made(self, step: Step, known: Mapping[str, Array]) -> dict[str, Array]:
        """The values that a step makes, by their names."""
        if isinstance(step, Stage):
            return self._run(step, [known[name] for name in step.inputs])
        if isinstance(step, HostTransfer):
            return self._transfer(step, known)
        if isinstance(step, Loop):
            state = [known[name] for name in step.operands]
            while bool(self.results_of(step.condition, state)[0]):
                state = self.results_of(step.body, state)
            return {name: state[number] for name, number in step.results}
        index = known[step.index].numpy()
        last = len(step.branches) - 1
        taken = int(not index) if index.dtype == np.bool_ else int(index)
        taken = taken if 0 <= taken <= last else last
        made = self.results_of(step.branches[taken], [known[name] for name in step.operands[taken]])
        return {name: made[number] for name, number in step.results}

    def _run(self, stage: Stage, arguments: Sequence[Array]) -> dict[str, Array]:
        executable = self._executables[stage]
        run = executable.call(arguments, on_device=True, device=self._device).wait()
        if profile.is_on:
            self._runs.append(run)
        made = (result for result in run.results if isinstance(result, Array))
        return dict(zip(stage.outputs, made, strict=True))

    def _transfer(self, step: HostTransfer, known: Mapping[str, Array]) -> dict[str, Array]:
        dtype = step.shape.dtype
        if not step.is_send:
            value = self._host.receive(step.channel, step.shape)
            return {step.value: place(value, dtype, self._device)}
        self._host.send(step.channel, known[step.value].numpy().astype(dtype.numpy, copy=False))
        return {}
