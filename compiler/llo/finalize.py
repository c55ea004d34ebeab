"""From lowered LLO to a kernel of bundles: passes, VMEM addresses, schedule.

finalize_kernel(llo_kernel, chip) -> Kernel      for a kernel called by main
finalize_main(llo_kernel, chip) -> list[Node]    for the control flow that calls kernels

Where everything is verified (`tpu_sim.isa.verification`, as in the tests), the LLO is verified as it
comes and after every pass, and every schedule against its block (`schedule.schedule_check`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from compiler.diagnostics import KernelLimitError
from compiler.llo.ir import LloKernel
from compiler.llo.passes.pass_manager import LloPassManager, llo_passes, require
from compiler.llo.passes.pipeline import LLO_PIPELINE, SCHEDULE, SCHEDULE_REQUIRES
from compiler.llo.schedule.bundles import schedule_nodes
from compiler.pass_pipeline import write_dump
from tpu_sim.isa.assembly import print_kernel, print_main
from tpu_sim.isa.checker import check_kernel
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import Kernel, Node, Window
from tpu_sim.isa.verification import is_verifying

_ROWS_PER_SPILL_SLOT = 8
_WINDOW_ALIGNMENT = 8
MAX_WINDOWS, MAX_DESCRIPTORS, MAX_FLAGS = 256, 1024, 1024
"""What the encoding's window, descriptor and flag fields can name."""


def finalize_kernel(
    llo: LloKernel,
    chip: Chip,
    check: bool | None = None,
    dump_dir: Path | None = None,
    passes: Sequence[str] = LLO_PIPELINE,
    vmem_rows: int | None = None,
) -> Kernel:
    """Schedule a kernel. Consumes `llo`: its blocks are rewritten in place.

    `vmem_rows` are those it may use for itself, without what lies at places; None: all.

    `check` verifies every stage and holds the bundles against the rules of the machine (slots, unit
    spacing, latencies over block ends), whatever the environment says. `dump_dir` gets a folder of
    the kernel's LLO after every pass that changed it, and of its bundles.
    """
    _check_tables(llo)
    checks = _checks(check, dump_dir)
    body = _scheduled(llo, chip, checks, dump_dir, passes)
    windows, spill_base = _place_windows(
        llo, chip, chip.vmem_rows if vmem_rows is None else vmem_rows
    )
    kernel = Kernel(
        name=llo.name,
        arg_count=llo.arg_count,
        windows=windows,
        descriptors=list(llo.descriptors),
        body=body,
        spill_slots=llo.spill_slots,
        spill_base_row=spill_base,
        flags=llo.flags,
        cores=llo.cores,
        flops=llo.flops,
        element_ops=llo.element_ops,
        least_bytes=llo.least_bytes,
        note=llo.note,
    )
    if checks:
        check_kernel(kernel, chip)
    if dump_dir is not None:
        _dump_bundles(dump_dir / llo.name, print_kernel(kernel))
    return kernel


def finalize_main(
    llo: LloKernel,
    chip: Chip,
    check: bool | None = None,
    dump_dir: Path | None = None,
    passes: Sequence[str] = LLO_PIPELINE,
) -> list[Node]:
    """Schedule main: scalar code, control flow and calls; options as for a kernel."""
    body = _scheduled(llo, chip, _checks(check, dump_dir), dump_dir, passes)
    if dump_dir is not None:
        _dump_bundles(dump_dir / llo.name, print_main(body))
    return body


def _checks(check: bool | None, dump_dir: Path | None) -> bool:
    """Whether to verify; who wants to see every stage wants them right."""
    return is_verifying() or dump_dir is not None if check is None else check


def _scheduled(
    llo: LloKernel, chip: Chip, checks: bool, dump_dir: Path | None, passes: Sequence[str]
) -> list[Node]:
    held = LloPassManager(chip, llo_passes(passes), checks, dump_dir).run(llo)
    require(llo, chip, SCHEDULE, SCHEDULE_REQUIRES, held)
    return schedule_nodes(llo, chip, check=checks)


def _dump_bundles(folder: Path, text: str) -> None:
    write_dump(folder, len(LLO_PIPELINE) + 1, SCHEDULE, "tpu", text)


def _check_tables(llo: LloKernel) -> None:
    for what, count, most in (
        ("windows", len(llo.windows), MAX_WINDOWS),
        ("DMA descriptors", len(llo.descriptors), MAX_DESCRIPTORS),
        ("sync flags", llo.flags, MAX_FLAGS),
    ):
        if count > most:
            raise KernelLimitError(f"kernel {llo.name}: {count} {what}, the encoding has {most}")


def _place_windows(llo: LloKernel, chip: Chip, vmem_rows: int) -> tuple[list[Window], int]:
    """Windows without a place one after another from row 0, then the spill slots."""
    windows: list[Window] = []
    row = 0
    for window in llo.windows:
        if window.place >= 0:
            windows.append(Window(window.name, window.place, window.rows, kept=True))
            continue
        windows.append(Window(window.name, row, window.rows))
        row += -(-window.rows // _WINDOW_ALIGNMENT) * _WINDOW_ALIGNMENT
    total = row + llo.spill_slots * _ROWS_PER_SPILL_SLOT
    if total > vmem_rows:
        own = [w for w in llo.windows if w.place < 0]
        largest = sorted(own, key=lambda w: -w.rows)[:4]
        raise KernelLimitError(
            f"kernel {llo.name}: needs {total * 512} bytes of VMEM, {chip.name} has "
            f"{vmem_rows * 512} for it; largest windows: "
            + ", ".join(f"{w.name} {w.rows * 512}" for w in largest)
        )
    return windows, row
