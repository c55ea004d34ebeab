"""The compiler as the runtime calls it; imported when there is something to compile."""

from __future__ import annotations

import time

from compiler.diagnostics import UnsupportedError
from compiler.driver import CompiledModule, CompileOptions, compile_module
from compiler.frontends.models import parse_model
from compiler.hlo.ir import HloModule
from compiler.hlo.replica_groups import device_counts
from tpu_sim.isa.chips import Chip


def compile_source(
    text: str | bytes, name: str, client_size: int, chip: Chip, options: CompileOptions
) -> CompiledModule:
    """Compile a model's text or bytecode; `timings` begins with parsing.

    Programs of several devices are compiled for none: where a target of several (`client_size`) asks
    for it, that is said at once.
    """
    started = time.perf_counter()
    module = parse_model(text, name)
    wanted = device_counts(module).devices
    if client_size > 1 and wanted > 1:
        raise UnsupportedError(
            f"HloModule {module.name} is a program of {wanted} devices "
            f"(replica_count={module.attrs.get('replica_count', 1)}, "
            f"num_partitions={module.attrs.get('num_partitions', 1)}): programs of several devices "
            "are not compiled yet; compile one for a single device, which runs on any of a slice"
        )
    parsed = time.perf_counter()
    compiled = compile_module(module, chip, options)
    compiled.timings = {"parse": parsed - started, **compiled.timings}
    return compiled


def compile_hlo(module: HloModule, chip: Chip, options: CompileOptions) -> CompiledModule:
    """Compile a module in place."""
    return compile_module(module, chip, options)
