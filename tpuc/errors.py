"""The exceptions that are a user's error, not ours."""

from __future__ import annotations

from compiler.diagnostics import CompileError
from runtime.workers import WorkerLostError
from tpu_sim.isa.chips import ChipError
from tpu_sim.isa.errors import ProgramError
from tpu_sim.jit.host import UnsupportedHostError
from tpu_sim.machine.disk_cache import CacheError
from tpu_sim.machine.faults import MachineFault

USER_ERRORS: tuple[type[Exception], ...] = (
    CompileError,
    ChipError,
    ProgramError,
    MachineFault,
    UnsupportedHostError,
    CacheError,
    WorkerLostError,
)
