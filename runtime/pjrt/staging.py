"""How programs in stages are made; the compiler is imported for it."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.driver import run_passes
from compiler.frontends.models import parse_model
from compiler.hlo.ir import HloModule
from compiler.hlo.replica_groups import device_counts
from compiler.hlo.result_memories import result_memories
from compiler.options import CompileOptions
from compiler.partitioner.placement_text import INPUTS, OUTPUTS, entry_shapes, placement_texts
from compiler.passes.context import PassContext
from compiler.passes.host_transfers import stage_program
from compiler.passes.pipeline import PARTITIONING
from compiler.passes.transfer_devices import note_transfer_devices
from runtime.api import compile as compile_for
from runtime.client import Device
from runtime.pjrt.staged import Staged
from runtime.spread import Spread
from runtime.spreads import stated_spreads


def compile_staged(code: bytes, devices: Sequence[Device], options: CompileOptions) -> Staged:
    """Cut a program at its transfers, and compile each part. One for several devices is partitioned
    first, so that a part is what each of them runs. Raises `CompileError`."""
    module, chip = parse_model(code, "<bytes>"), devices[0].chip
    given: list[Spread] = []
    made: list[Spread] = []
    if len(devices) > 1:
        note_transfer_devices(module)
        shapes = entry_shapes(module)
        run_passes(module, chip, PARTITIONING, options)
        given, made = _spreads(module, placement_texts(module, shapes))
    memories = result_memories(module)
    program = stage_program(module, PassContext(chip))
    target = devices if len(devices) > 1 else devices[0]
    stages = {stage: compile_for(stage.text, target, options=options) for stage in program.stages()}
    return Staged(program, stages, given, made, memories)


def _spreads(module: HloModule, texts: dict[str, str]) -> tuple[list[Spread], ...]:
    """How arguments and results lie on the devices."""
    counts, locals_ = device_counts(module), entry_shapes(module)
    return tuple(
        stated_spreads(texts[kind], shapes, counts.replicas, counts.partitions)
        for kind, shapes in zip((INPUTS, OUTPUTS), locals_, strict=True)
    )
