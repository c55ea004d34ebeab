"""Loops that are kernels of their own: their arrays lie in the part of VMEM that the loop has for itself."""

from __future__ import annotations

from compiler.analysis.buffer_assignment import assign_buffers
from compiler.analysis.resident_arrays import may_be_one_kernel
from compiler.analysis.vmem_scope import scoped_bytes
from compiler.analysis.window_planner import WindowPlanner
from compiler.backend.kernel_library import KernelLibrary
from compiler.backend.kernel_options import KernelOptions, KernelTarget
from compiler.backend.loop_kernels import LoopKernels
from compiler.backend.smem_scratch import SmemScratch
from compiler.diagnostics import ResourceExhaustedError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.kernel_scopes import part_for

_ROOM = 1.25
"""Times its rows that a loop gets: which of its arrays share a place may change."""


def own_loops(module: HloModule, planner: WindowPlanner) -> dict[HloInstruction, int]:
    """The loops that are kernels as things lie, and the bytes of VMEM that each has for itself."""
    chip = planner.chip
    found = [loop for loop in _loops(module) if may_be_one_kernel(loop, chip.vmem_bytes)]
    if not found:
        return {}
    try:
        kernels = _kernels(module, planner)
    except ResourceExhaustedError:  # arrays that go to VMEM may make room
        return dict.fromkeys(found, chip.vmem_bytes)
    needed = {loop: kernels.needed_rows(loop) for loop in found}
    return {
        loop: part_for(int(_ROOM * rows), chip.vmem_bytes)
        for loop, rows in needed.items()
        if rows is not None
    }


def loops_fit(module: HloModule, planner: WindowPlanner) -> bool:
    """Whether loops that have a part of VMEM for themselves are kernels as things lie now."""
    scoped = [loop for loop in _loops(module) if scoped_bytes(loop) is not None]
    if not scoped:
        return True
    kernels = _kernels(module, planner)
    return all(kernels.needed_rows(loop) is not None for loop in scoped)


def _loops(module: HloModule) -> list[HloInstruction]:
    return [i for c in control_computations(module) for i in c if i.opcode == "while"]


def _kernels(module: HloModule, planner: WindowPlanner) -> LoopKernels:
    smem = SmemScratch(0, planner.chip.smem_words)
    target = KernelTarget(planner.chip, KernelOptions(planner.precision), smem)
    return LoopKernels(assign_buffers(module, planner.chip), KernelLibrary(target))
