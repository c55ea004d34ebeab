"""The compiler as the runtime calls it; imported when there is something to compile."""

from __future__ import annotations

import time
from collections.abc import Callable

from compiler.diagnostics import DeviceCountError
from compiler.driver import CompiledModule, CompileOptions, compile_module
from compiler.frontends.models import parse_model
from compiler.hlo.ir import HloModule
from compiler.hlo.origins import locate_by_text
from compiler.hlo.replica_groups import device_counts
from compiler.partitioner.placement_text import sharded_devices
from compiler.sharding.resizing import resize_mesh
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.torus import Slice


def compile_source(
    text: str | bytes,
    name: str,
    cores: Slice,
    chip: Chip,
    options: CompileOptions,
    watch: Callable[[HloModule], None] | None = None,
) -> CompiledModule:
    """Compile a model's text or bytecode; `timings` begins with parsing.

    A program of as many devices as the target has (`cores`) is compiled for all of them. On a target
    of one device it is compiled for one, as if nobody else were there. `watch` is given the module as it
    was parsed; it is changed in place from then on, as `options.progress` is told.
    """
    started = time.perf_counter()
    module = parse_model(text, name)
    is_for_all = fit_to_devices(module, len(cores.chips), options)
    if options.text_file is not None and isinstance(text, str):  # bytes have no lines
        locate_by_text(module, options.text_file)
    parsed = time.perf_counter()
    if watch is not None:
        watch(module)
    compiled = compile_module(module, chip, options, cores if is_for_all else None)
    compiled.timings = {"parse": parsed - started, **compiled.timings}
    return compiled


def fit_to_devices(module: HloModule, size: int, options: CompileOptions) -> bool:
    """Whether a parsed module is a program of all `size` devices of a target, else of one.

    The header gets what the text leaves out, and its mesh the target's size under `resize_mesh`. Raises
    `DeviceCountError` for a program of another number of devices.
    """
    if size > 1 and device_counts(module).devices == 1:
        module.attrs["num_partitions"] = sharded_devices(module)  # JAX's HLO text leaves it out
    if options.resize_mesh and size > 1 and device_counts(module).partitions not in (1, size):
        resize_mesh(module, size)
    counts = device_counts(module)
    if size > 1 and counts.devices not in (1, size):
        raise DeviceCountError(
            f"HloModule {module.name} is a program of {counts.devices} devices (replica_count="
            f"{counts.replicas}, num_partitions={counts.partitions}), the target has {size}: "
            "choose a slice of as many"
        )
    return size > 1 and counts.devices == size
