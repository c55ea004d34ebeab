"""``tpuc opt``: a text after passes."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from compiler.hlo.ir import HloModule
from compiler.options import CompileOptions
from runtime.api import DEFAULT_TARGET, read_source
from runtime.topology import Topology
from tpu_sim.isa.chips import Chip
from tpuc.commands.models import (
    as_usage_error,
    listed,
    made_up,
    named_chip,
    named_topology,
    parsed,
)
from tpuc.commands.terminal import warn_of_f32, warn_of_made_up


def opt(
    model: str, passes: str | None, style: str | None, target: str | None, f64_as_f32: bool
) -> None:
    """``tpuc opt``: HLO in, HLO out; of a ``.llo`` text LLO."""
    if model.endswith(".llo"):
        if style is not None or f64_as_f32:
            raise click.UsageError(f"{model} is LLO: --style and --f64-as-f32 are for HLO")
        sys.stdout.write(
            _optimized_llo(model, passes, named_chip(DEFAULT_TARGET if target is None else target))
        )
        return
    from compiler.driver import optimise, run_passes
    from compiler.hlo.printer import print_module
    from compiler.hlo.styled_printer import STYLES, print_styled
    from compiler.passes.pipeline import hlo_passes

    names = None if passes is None else listed(passes)
    as_usage_error(lambda: hlo_passes(names or ()))
    is_changed = names is None or bool(names) or f64_as_f32
    module = parsed(model, is_verified=is_changed or style is None)
    warn_of_made_up(made_up(module), is_run=False)
    warn_of_f32(f64_as_f32)
    if is_changed:
        options = CompileOptions(f64_as_f32=f64_as_f32)
        topology = named_topology(DEFAULT_TARGET if target is None else target)
        cores = topology.cores if _is_for_all(module, topology, options) else None
        if names is None:
            optimise(module, topology.chip, options, cores, {})
        else:
            run_passes(module, topology.chip, names, options, cores)
    sys.stdout.write(print_module(module) if style is None else print_styled(module, STYLES[style]))


def _is_for_all(module: HloModule, topology: Topology, options: CompileOptions) -> bool:
    """Whether it is a program of all devices of the target."""
    from runtime.compilation import fit_to_devices

    return fit_to_devices(module, len(topology.cores.chips), options)


def _optimized_llo(path: str, passes: str | None, chip: Chip) -> str:
    """The kernels of a ``.llo`` text after LLO passes."""
    from compiler.llo.optimize import check_names, optimized_text
    from compiler.llo.passes.pipeline import LLO_PIPELINE

    names = LLO_PIPELINE if passes is None else listed(passes)
    as_usage_error(lambda: check_names(names))
    text, name = read_source(Path(path))
    if not isinstance(text, str):
        raise click.UsageError(f"{path} is no LLO text")
    return optimized_text(text, name, chip, names)
