"""Programs that talk to the host: stages, each a program of its own, with transfers between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.passes.stages import HostTransfer, StagedProgram
from runtime.buffer import Array, place
from runtime.client import Device
from runtime.executable import Executable
from runtime.pjrt.host_calls import HostCalls
from runtime.report import Report

_MARK = b"_xla_host_transfer"
"""How the attributes of JAX's host transfers begin; bytecode keeps strings as they are."""


def talks_to_host(code: bytes) -> bool:
    """Whether a program may have transfers with the host."""
    return _MARK in code


@dataclass
class Staged:
    """A program in stages; `executables` are those of its `Stage` steps, in order."""

    program: StagedProgram
    executables: list[Executable]

    def run(
        self, values: Sequence[Array], device: Device, host: HostCalls
    ) -> tuple[list[Array | None], list[Report]]:
        """Run all steps; the results, None for tokens, and what each stage cost."""
        known: dict[str, Array] = {
            argument[0]: value
            for argument, value in zip(self.program.arguments, values, strict=True)
            if argument is not None
        }
        reports: list[Report] = []
        executables = iter(self.executables)
        for step in self.program.steps:
            if isinstance(step, HostTransfer):
                self._transfer(step, known, device, host)
                continue
            executable = next(executables)
            arguments = [known[name] for name in step.inputs]
            run = executable.call(arguments, on_device=True, device=device).wait()
            reports.append(run.report())
            made = [result for result in run.results if isinstance(result, Array)]
            known.update(zip(step.outputs, made, strict=True))
        results = [None if r is None else known[r[0]] for r in self.program.results]
        return results, reports

    def _transfer(
        self, step: HostTransfer, known: dict[str, Array], device: Device, host: HostCalls
    ) -> None:
        dtype = step.shape.dtype
        if step.is_send:
            value = known[step.value].numpy().astype(dtype.numpy, copy=False)
            host.send(step.channel, value)
        else:
            known[step.value] = place(host.receive(step.channel, step.shape), dtype, device)
