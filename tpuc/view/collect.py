"""Makes the document of a model: compiles it under observation, runs or estimates it, gathers all parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compiler.driver import CompiledModule
from compiler.options import CompileOptions
from runtime.api import read_source
from runtime.client import client_for
from runtime.compilation import compile_source
from runtime.executable import Executable
from runtime.machines import MachineOptions
from runtime.program_store import executable_of
from runtime.report import Report
from tpu_sim.isa.origins import Origin, origin_table
from tpu_sim.machine.kernel_profile import profile_kernel
from tpuc.own_lines import are_own_lines, text_file
from tpuc.view.document import ViewDocument
from tpuc.view.graphs import graph_of
from tpuc.view.kernel_code import KernelCodes, kernel_time
from tpuc.view.recording import Recorder
from tpuc.view.run_facts import RunFacts, calls_of

Arrays = Callable[[Executable], Sequence[npt.NDArray[np.generic]]]


@dataclass(frozen=True)
class ViewOptions:
    """What to look at: a target, how it is compiled, and whether it is run (with which arguments)."""

    target: str
    compiling: CompileOptions
    machine: MachineOptions
    arguments: Arrays | None = None  # None: estimated
    trips: int = 10


def collect(source: str | bytes | Path, name: str, options: ViewOptions) -> ViewDocument:
    """The document of a model; raises what compiling and running raise."""
    recorder = Recorder()
    compiled, executable = _compiled(source, options, recorder)
    report = _report(executable, options)
    facts = RunFacts(name, compiled, executable, report, recorder.number)
    main = facts.main()
    codes = KernelCodes(compiled, executable.device.chip, _sources(executable, recorder))
    document = ViewDocument({"main": main})
    document.parts["passes"] = recorder.passes(compiled.passes)
    if recorder.graph is not None:
        document.parts["graph.input"] = recorder.graph
    document.parts["graph.final"] = graph_of(compiled.module, recorder.number)
    runs = {run.name: run for run in reversed(facts.runs) if run.calls == 1}
    for kernel in compiled.program.kernels.values():
        profile = profile_kernel(kernel, executable.device.chip, compiled.program.routes)
        document.parts[f"kernel.{kernel.name}"] = codes.code(kernel, profile)
        time = kernel_time(kernel, profile, runs.get(kernel.name))
        document.parts[f"time.{kernel.name}"] = time
    main.kernels = list(compiled.program.kernels)
    main.origins = [[o.op_name, o.file, o.line] for o in recorder.origins]
    file = _file_of(source)
    main.lines = facts.lines(recorder.origins, file)
    main.has_own_lines = are_own_lines(recorder.origins, file)
    return document


def _file_of(source: str | bytes | Path) -> str:
    return str(source) if isinstance(source, Path) else text_file("-")


def _compiled(
    source: str | bytes | Path, options: ViewOptions, recorder: Recorder
) -> tuple[CompiledModule, Executable]:
    text, name = read_source(source)
    assert text is not None, "a compiled program has no passes"
    client = client_for(options.target)
    chip = client.devices[0].chip
    compiling = replace(options.compiling, progress=recorder.progress, text_file=_file_of(source))
    made: list[CompiledModule] = []

    def compile_now() -> CompiledModule:
        made.append(compile_source(text, name, client.cores, chip, compiling, recorder.watch))
        return made[0]

    machine = replace(options.machine, cache=False)  # a program that is found had no passes
    executable = executable_of(text, client.devices, compiling, machine, compile_now, client.cores)
    executable.options = options.machine
    return made[0], executable


def _report(executable: Executable, options: ViewOptions) -> Report:
    if options.arguments is None:
        return executable.estimate(options.trips)
    return executable.call(options.arguments(executable)).report()


def _sources(executable: Executable, recorder: Recorder) -> Callable[[str, str], list[int]]:
    """Origins of what a kernel calls an instruction, at all sites that call the kernel."""
    table = origin_table(executable.program.metadata)
    sites: dict[str, list[str]] = {}
    for kernel, site in calls_of(executable.program.main):
        sites.setdefault(kernel, []).append(site)

    def of(kernel: str, source: str) -> list[int]:
        found: dict[Origin, None] = {}
        for site in sites.get(kernel, ()):
            found |= dict.fromkeys(table.of(site, source))
        return [recorder.number(origin) for origin in found]

    return of
