"""A point's time in the model: compiled for a chip and estimated, without values."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from benchmarks.calibration.points import Point, module_text
from compiler.driver import compile_module
from compiler.frontends.models import parse_model
from tpu_sim.isa.causes import Cause
from tpu_sim.isa.chips import Chip
from tpu_sim.jit.llvm_machine import LlvmMachine


@dataclass(frozen=True)
class Outcome:
    """What the model says of a point. `cpu_seconds`: the host's CPU time of compiling and estimating."""

    point: Point
    seconds: float
    cycles: int
    note: str
    causes: dict[str, int]
    cpu_seconds: float

    @property
    def error(self) -> float:
        """Relative error of the time: 0.1 is 10 % too long."""
        return self.seconds / self.point.seconds - 1

    @property
    def bound_by(self) -> str:
        """The cause of most cycles."""
        return max(self.causes, key=lambda label: self.causes[label])


def simulate(point: Point, chip: Chip) -> Outcome:
    """Compile a point's module for `chip` and count its cycles."""
    start = time.process_time()
    module = parse_model(module_text(point))
    program = compile_module(module, chip).program
    result = LlvmMachine(chip, cache=not os.environ.get("TPUC_NO_CACHE")).estimate(program)
    totals = [sum(run.causes[c] for run in result.kernels) for c in Cause]
    causes = {c.label: cycles for c, cycles in zip(Cause, totals, strict=True) if cycles}
    note = ", ".join(kernel.note for kernel in program.kernels.values())
    return Outcome(
        point,
        result.cycles / chip.clock_hz,
        result.cycles,
        note,
        causes,
        time.process_time() - start,
    )
