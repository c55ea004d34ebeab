"""The commands of RUN lines that concern LLO: parse, verify, schedule.

llo %s                     prints the kernel back
llo-fails %s               prints the error that parsing or verifying must raise
schedule %s [--chip=v5e]   prints the scheduled kernel as bundles
schedule-fails %s          prints the error that scheduling must raise
llo-opt %s --passes=a,b    prints the kernels after LLO passes, verified before and after each
llo-opt-fails %s --passes=a,b   prints the error that a pass or its place must raise
plan %s                    prints the plans of an HLO module's kernels, after all passes
lower-dot %s --size=MxKxN [--transposed]   prints the LLO of a matmul stage
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from compiler.analysis.kernel_vmem import held_rows
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.backend.dot import emit_matmul_stage
from compiler.backend.vector.arrays import whole_array
from compiler.diagnostics import CompileError
from compiler.hlo.dtypes import BF16, F32
from compiler.hlo.parser import parse_module
from compiler.hlo.shape import ArrayShape
from compiler.kernels.printer import print_plan
from compiler.llo.builder import LloBuilder
from compiler.llo.finalize import finalize_kernel
from compiler.llo.optimize import optimized_text
from compiler.llo.parser import parse_llo
from compiler.llo.printer import print_llo
from compiler.llo.verifier import verify_llo
from compiler.passes.pipeline import run_pipeline
from tests.support.filecheck import command
from tests.support.filecheck_commands import option
from tpu_sim.isa.assembly import print_kernel
from tpu_sim.isa.checker import check_kernel
from tpu_sim.isa.chips import Chip, load_chip


@command("llo")
def llo(path: Path, arguments: Sequence[str]) -> str:
    """Print the verified kernel; parsing that again must change nothing."""
    kernel = parse_llo(path.read_text(), path.name)
    verify_llo(kernel)
    text = print_llo(kernel)
    assert parse_llo(text) == kernel, "parse and print are not inverse"
    return text


@command("llo-fails")
def llo_fails(path: Path, arguments: Sequence[str]) -> str:
    """Print the error of a kernel that must not parse or verify."""
    try:
        verify_llo(parse_llo(path.read_text(), path.name))
    except CompileError as error:
        return str(error)
    raise AssertionError(f"{path.name} is accepted")


@command("schedule")
def schedule(path: Path, arguments: Sequence[str]) -> str:
    """Print the kernel's bundles, checked against its LLO and by the machine's rules."""
    chip = load_chip(option(arguments, "chip", "v5e"))
    kernel = finalize_kernel(parse_llo(path.read_text(), path.name), chip, check=True)
    check_kernel(kernel, chip)
    return print_kernel(kernel)


@command("schedule-fails")
def schedule_fails(path: Path, arguments: Sequence[str]) -> str:
    """Print the error of a kernel that cannot be scheduled."""
    try:
        schedule(path, arguments)
    except CompileError as error:
        return str(error)
    raise AssertionError(f"{path.name} is scheduled")


@command("llo-opt")
def llo_opt(path: Path, arguments: Sequence[str]) -> str:
    """Print the kernels after the passes named by ``--passes=``, on ``--chip=``."""
    chip = load_chip(option(arguments, "chip", "v5e"))
    names = option(arguments, "passes").split(",")
    return optimized_text(path.read_text(), path.name, few_registers(chip, arguments), names)


def few_registers(chip: Chip, arguments: Sequence[str]) -> Chip:
    """The chip with as many vregs, vmasks and sregs as ``--vregs=`` .. say."""
    counts = {name: option(arguments, name) for name in ("vregs", "vmasks", "sregs")}
    return replace(chip, **{name: int(count) for name, count in counts.items() if count})


@command("llo-opt-fails")
def llo_opt_fails(path: Path, arguments: Sequence[str]) -> str:
    """Print the error of a kernel that some LLO pass must refuse."""
    try:
        llo_opt(path, arguments)
    except CompileError as error:
        return str(error)
    raise AssertionError(f"{path.name} passes")


@command("plan")
def plan(path: Path, arguments: Sequence[str]) -> str:
    """Print the plan of every kernel of windows, under its name."""
    chip = load_chip(option(arguments, "chip", "v5e"))
    precision = option(arguments, "precision", "default")
    module = parse_module(path.read_text(), path.name)
    run_pipeline(module, chip, precision=precision)
    planner = WindowPlanner(chip, precision)
    planned = [i for i in module.entry if i.attrs.get("kind") in PLANNED_KINDS]
    return "\n".join(f"{i.name}: {print_plan(planner.kernel(i))}" for i in planned)


@command("lower-dot")
def lower_dot(path: Path, arguments: Sequence[str]) -> str:
    """Print the LLO of a matmul stage of ``--size=MxKxN``."""
    m, k, n = (int(size) for size in option(arguments, "size").split("x"))
    chip = load_chip(option(arguments, "chip", "v5e"))
    is_transposed = "--transposed" in arguments
    b = LloBuilder("dot", chip)
    shapes = (
        ArrayShape(BF16, (m, k)),
        ArrayShape(BF16, (n, k) if is_transposed else (k, n)),
        ArrayShape(F32, (m, n)),
    )
    lhs, rhs, out = (
        whole_array(shape, b.window(name, held_rows(shape, shape.dims)))
        for name, shape in zip(("lhs", "rhs", "out"), shapes, strict=True)
    )
    emit_matmul_stage(b, chip, lhs, rhs, is_transposed, out)
    kernel = b.finish()
    verify_llo(kernel)
    return print_llo(kernel)
