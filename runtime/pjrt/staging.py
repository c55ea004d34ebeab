"""How programs in stages are made; the compiler is imported for it."""

from __future__ import annotations

from compiler.frontends.models import parse_model
from compiler.options import CompileOptions
from compiler.passes.context import PassContext
from compiler.passes.host_transfers import stage_program
from runtime.api import compile as compile_for
from runtime.client import Device
from runtime.pjrt.staged import Staged


def compile_staged(code: bytes, device: Device, options: CompileOptions) -> Staged:
    """Cut a program at its transfers, and compile each part. Raises `CompileError`."""
    program = stage_program(parse_model(code, "<bytes>"), PassContext(device.chip))
    stages = {stage: compile_for(stage.text, device, options=options) for stage in program.stages()}
    return Staged(program, stages)
