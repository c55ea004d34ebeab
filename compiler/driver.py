"""The compiler on one page: HLO in, program out.

verify                is the module well-formed?
run_pipeline          simplify, canonicalise, fuse, assign layouts and memory spaces, schedule
assign_buffers        an address for every array (checked with check_buffers where all is verified)
lower_module          fusions to LLO to bundles; control flow to main
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from compiler.analysis.buffer_assignment import BufferAssignment, assign_buffers
from compiler.analysis.buffer_check import check_buffers
from compiler.analysis.window_planner import WindowPlanner
from compiler.backend.kept_kernels import KeptKernels
from compiler.backend.kernel_options import KernelOptions
from compiler.backend.lower_module import LoweredModule, lower_module
from compiler.diagnostics import CompileError, KernelLimitError
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.origins import origins_said
from compiler.hlo.printer import print_module
from compiler.hlo.replica_groups import device_counts
from compiler.hlo.result_memories import result_memories
from compiler.hlo.shape import TupleShape, token_numbers
from compiler.hlo.verifier import Level, verify
from compiler.options import CompileOptions as CompileOptions
from compiler.options import Progress
from compiler.partitioner.placement_text import (
    devices_text,
    entry_shapes,
    placement_texts,
)
from compiler.partitioner.traffic import collectives_of
from compiler.pass_pipeline import find_passes
from compiler.passes.pass_manager import PassTiming
from compiler.passes.pipeline import (
    INDISPENSABLE,
    PARTITIONING,
    PASSES,
    PIPELINE,
    release_kernels,
    run_pipeline,
    split_kernels,
)
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.collector import collect_if_much_was_made, no_cyclic_gc
from tpu_sim.isa.program import Program
from tpu_sim.isa.torus import Slice
from tpu_sim.isa.verification import is_verifying


@dataclass
class CompiledModule:
    """A program and how it came about. `timings` are seconds by stage."""

    program: Program
    module: HloModule
    buffers: BufferAssignment
    lowered: LoweredModule
    timings: dict[str, float]
    passes: list[PassTiming] = field(default_factory=list)

    def hlo_text(self) -> str:
        """The module after all passes."""
        return print_module(self.module)

    def llo_text(self, kernel: str | None = None) -> str:
        """The LLO of one kernel, or of all; lowered anew when asked for."""
        return self.lowered.llo_text(kernel)


def compile_module(
    module: HloModule,
    chip: Chip,
    options: CompileOptions | None = None,
    cores: Slice | None = None,
) -> CompiledModule:
    """Compile a parsed module for a chip, or for the cores of a slice; the module is changed in place.

    Raises VerifyError, UnsupportedError, ResourceExhaustedError or CompileError for the user.
    """
    collect_if_much_was_made()
    with no_cyclic_gc(), origins_said(module):
        return _compile(module, chip, options or CompileOptions(), cores)


def _compile(
    module: HloModule, chip: Chip, options: CompileOptions, cores: Slice | None
) -> CompiledModule:
    timings: dict[str, float] = {}
    with _timed("verify", timings, options.progress):
        verify(module, Level.PARSED)
    tokens, memories = _entry_tokens(module), result_memories(module)
    passes, placed = optimise(module, chip, options, cores, timings)
    lowered = _lowered(module, chip, options, timings, passes, cores)
    lowered.program.metadata |= {"precision": options.precision, **placed}
    if any(tokens):
        lowered.program.metadata["tokens"] = json.dumps(tokens)
    if memories:
        lowered.program.metadata["result_memories"] = json.dumps(memories)
    remarks = [*(text for item in passes for text in item.fallbacks), *lowered.remarks]
    if remarks:
        lowered.program.metadata["remarks"] = "\n".join(remarks)
    if module.made_up:
        lowered.program.metadata["made_up_constants"] = " ".join(module.made_up)
    timings.update(lowered.timings)
    return CompiledModule(lowered.program, module, lowered.buffers, lowered, timings, passes)


def _entry_tokens(module: HloModule) -> tuple[list[int], list[int]]:
    """Which parameters and which results are tokens: the compiled program has neither."""
    result = module.entry.root_instruction.shape
    results = result.elements if isinstance(result, TupleShape) else (result,)
    return token_numbers([p.shape for p in module.entry.parameters]), token_numbers(results)


def optimise(
    module: HloModule,
    chip: Chip,
    options: CompileOptions,
    cores: Slice | None,
    timings: dict[str, float],
) -> tuple[list[PassTiming], dict[str, str]]:
    """Partition a verified module for `cores` and run all passes, in place.

    Adds to `timings`; what the program of a slice says of the devices and their arrays comes beside
    the passes.
    """
    placed = {} if cores is None else devices_text(module)
    passes: list[PassTiming] = []
    if cores is not None and device_counts(module).partitions > 1:
        with _timed("partition", timings, options.progress):
            shapes = entry_shapes(module)
            passes = run_passes(module, chip, PARTITIONING, options)
            placed |= placement_texts(module, shapes)
    if cores is not None:
        placed["slice"] = json.dumps([cores.torus.dims, cores.chips])
        placed["collectives"] = json.dumps([t.to_json() for t in collectives_of(module)])
    with _timed("passes", timings, options.progress):
        passes += run_passes(module, chip, None, options, cores, len(passes))
    return passes, placed


def _lowered(
    module: HloModule,
    chip: Chip,
    options: CompileOptions,
    timings: dict[str, float],
    passes: list[PassTiming],
    cores: Slice | None,
) -> LoweredModule:
    """Addresses and the program; a kernel that breaks a limit of the machine is split.

    What stays in VMEM between kernels goes back to HBM first. That ends: what is split has fewer
    operations each time. Kernels that no split has touched are kept, and what was planned for them.
    """
    kept, planner = KeptKernels(), WindowPlanner(chip, options.precision)
    kernel_options = KernelOptions(options.precision)
    kernel_dir = None if options.dump_dir is None else options.dump_dir / "kernels"
    while True:
        with _timed("buffers", timings, options.progress):
            buffers = assign_buffers(module, chip)
            if is_verifying():
                check_buffers(module, buffers, WindowPlanner(chip, options.precision))
        try:
            with _timed("lower", timings, options.progress):
                lowered = lower_module(
                    module, buffers, chip, kernel_options, options.progress, cores, kernel_dir, kept,
                    options.processes,
                )  # fmt: skip
        except KernelLimitError as error:
            fusions = [i for i in error.instructions if isinstance(i, HloInstruction)]
            loops = frozenset(i.name for i in fusions if i.opcode == "while")
            if loops:
                left = kernel_options.loops_in_main | loops
                kernel_options = replace(kernel_options, loops_in_main=left)
                continue
            with _timed("passes", timings, options.progress):
                again = release_kernels(module, planner, cores)
                if again is None:
                    again = split_kernels(module, fusions, planner, cores)
            if again is None:
                raise
            passes += again
        else:
            return lowered


def run_passes(
    module: HloModule,
    chip: Chip,
    names: Sequence[str] | None = None,
    options: CompileOptions | None = None,
    cores: Slice | None = None,
    passes_before: int = 0,
) -> list[PassTiming]:
    """Run the named HLO passes (all of the pipeline for None) in place; `cores` is a slice that runs them.
    So many have run before."""
    options = options or CompileOptions()
    if options.skip:
        _check_skipped(options.skip)
        wanted = PIPELINE if names is None else names
        names = tuple(n for n in wanted if n not in options.skip)
    return run_pipeline(
        module,
        chip,
        passes=names,
        precision=options.precision,
        dump_dir=options.dump_dir,
        progress=options.progress,
        windows=options.windows,
        on_request=("double-precision-narrower",) if options.f64_as_f32 else (),
        cores=cores,
        passes_before=passes_before,
    )


def _check_skipped(names: Sequence[str]) -> None:
    """Raise CompileError for an unknown pass, and for one that cannot be left out."""
    find_passes(names, PASSES)
    for name in names:
        if name in INDISPENSABLE:
            raise CompileError(f"pass '{name}' cannot be left out: {INDISPENSABLE[name]}")


@contextmanager
def _timed(stage: str, timings: dict[str, float], progress: Progress | None) -> Iterator[None]:
    if progress is not None:
        progress(stage)
    start = time.perf_counter()
    yield
    timings[stage] = timings.get(stage, 0.0) + time.perf_counter() - start
