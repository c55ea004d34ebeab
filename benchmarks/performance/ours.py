"""This project's side: compile for the emulated chip, execute on the LLVM machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

import tpuc
from benchmarks.performance.protocol import Compiled, Place
from benchmarks.performance.texts import dot
from runtime.machines import MachineOptions
from runtime.storage import stored_bytes

STAGES = {
    "parse": ("parse",),
    "passes": ("verify", "passes"),
    "translate": ("translate",),
}
"""Stages of the page by those of an executable; all other time is the backend's."""


class Ours:
    """`threads` host threads; code is kept on disk in the folder that TPUC_CACHE_DIR names."""

    def __init__(self, threads: int) -> None:
        self._options = MachineOptions(threads=threads)
        self._executable: tpuc.Executable | None = None
        self._arguments: list[tpuc.Array] = []
        self._make: Place | None = None
        self._results: Sequence[object] = ()

    def warm_up(self) -> None:
        """A small product: the kernel library and the parsers are ready after it."""
        small = tpuc.compile(dot("f32", 8, 128, 128), machine=self._options)
        small(np.zeros((8, 128), np.float32), np.zeros((128, 128), np.float32))

    def compile(self, text: str) -> Compiled:
        """Compile, and translate to native code."""
        started = time.perf_counter()
        self._executable = executable = tpuc.compile(text, machine=self._options)
        executable.prepare()
        seconds = time.perf_counter() - started
        found = executable.stages
        stages = {
            stage: sum(found.get(name, 0.0) for name in names) for stage, names in STAGES.items()
        }
        stages["backend"] = seconds - sum(stages.values())
        inputs = sum(stored_bytes(port.device_shape) for port in executable.inputs)
        needed = executable.program.hbm_bytes + inputs
        return Compiled(seconds, stages, needed, is_loaded="load" in found)

    def place(self, make: Place) -> None:
        """Inputs in HBM."""
        assert self._executable is not None
        self._make = make
        shapes = [port.shape for port in self._executable.inputs]
        self._arguments = [tpuc.device_put(make(shape, n)) for n, shape in enumerate(shapes)]

    def replace_donated(self) -> None:
        """Inputs that were deleted, placed again."""
        assert self._executable is not None and self._make is not None
        for number, (array, port) in enumerate(
            zip(self._arguments, self._executable.inputs, strict=True)
        ):
            if array.is_deleted():
                self._arguments[number] = tpuc.device_put(self._make(port.shape, number))

    def execute(self) -> None:
        """One call with results in HBM; those of the call before are freed first."""
        assert self._executable is not None
        self._results = ()
        run = self._executable.call(self._arguments, on_device=True).wait()
        self._results = run.results

    def outputs(self) -> Sequence[object]:
        """Arrays of the device."""
        return self._results

    def facts(self) -> dict[str, object]:
        """Cycles, the HBM peak, and the kernels that take most cycles."""
        assert self._executable is not None
        report = self._executable.report
        if report is None:
            return {}
        kernels = sorted(report.kernels, key=lambda k: -k.cycles)[:3]
        return {
            "cycles": report.cycles,
            "hbm_peak_bytes": report.hbm_peak_bytes,
            "kernels": [[k.note, k.calls, k.cycles / report.cycles, k.bound_by] for k in kernels],
        }
