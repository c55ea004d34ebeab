"""VMEM residency: arrays that one kernel makes and later ones read stay in VMEM, ``S(1)``.

    a = f32[1024,1024]{1,0:T(8,128)S(1)} fusion(x), ...
    b = f32[1024,1024]{1,0:T(8,128)} fusion(a, y), ...

A window of such an array is a view of it: nothing is moved, there is no buffer, and a grid that only
hid transfers is not needed. Every kernel keeps a part of VMEM for itself (`vmem_scope`), from an eighth
up to all of it; the arrays of most use, bytes saved by rows and time taken, share the rest.

An array stays if everything that makes or reads it is a kernel of windows that reads its boxes as
runs of rows, or a gather, scatter or update that has it in VMEM whole. Parameters, results and constants
of the program, what other kernels touch, and the state of loops that are one kernel lie in HBM.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from compiler.analysis.aliasing import Slot, leaf_count
from compiler.analysis.buffer_assignment import assign_buffers
from compiler.analysis.in_place import blocks_are_disjoint
from compiler.analysis.liveness import Liveness
from compiler.analysis.resident_arrays import (
    ResidentArray,
    may_be_one_kernel,
    resident_arrays,
)
from compiler.analysis.tiled_layout import HBM, VMEM, memory_space
from compiler.analysis.vmem_packing import VmemRows, aligned_rows
from compiler.analysis.vmem_scope import set_scope
from compiler.analysis.window_planner import PLANNED_KINDS, WindowPlanner
from compiler.backend.kernel_library import KernelLibrary
from compiler.backend.kernel_options import KernelOptions, KernelTarget
from compiler.backend.loop_kernel import LoopKernels
from compiler.backend.smem_scratch import SmemScratch
from compiler.diagnostics import ResourceExhaustedError, UnsupportedError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, Shape, TupleShape, leaves
from compiler.passes.context import PassContext
from compiler.passes.kernel_scopes import KernelScopes, write_windows
from compiler.passes.layout_assignment import in_space
from compiler.passes.vmem_copies import copy_invariants
from compiler.rewrite.graph import replace

_ROUNDS = 4
_NO_WORSE = 1.02
"""Times the cycles before that a kernel may take with operands or results in VMEM."""


def keep_in_vmem(module: HloModule, context: PassContext) -> bool:
    """Choose what stays in VMEM and plan the kernels around it anew."""
    if context.planner is None:
        return False
    own_loops = _own_loops(module, context.planner)
    copies = copy_invariants(module, context.planner.chip.vmem_bytes, own_loops)
    scopes = KernelScopes(module, context.planner)
    found = resident_arrays(module, own_loops, scopes.moves, copies)
    vmem = VmemRows(scopes.rows, scopes.floors(found.liveness, own_loops))
    choice = _Choice(scopes, found.arrays, vmem)
    kept: list[ResidentArray] = []
    for number in range(_ROUNDS):
        kept = choice.choose()
        refused = choice.apply(kept)
        if not refused:
            break
        choice.undo(kept)
        choice.refuse(refused if number + 2 < _ROUNDS else kept)
        kept = []
    scopes.write(choice.crowded(kept, found.liveness))
    for copy in copies:
        if memory_space(copy.array) != VMEM:
            replace(copy, copy.operands[0])
    context.counts["arrays"] = len(kept)
    context.counts["bytes"] = sum(array.request.size_bytes for array in kept)
    for array in kept:
        instr, _ = array.slots[0]
        context.remarks.append(f"%{instr.name} stays in VMEM: saves {array.saved_bytes} bytes")
    return bool(kept)


def _own_loops(module: HloModule, planner: WindowPlanner) -> set[HloInstruction]:
    """The loops that are kernels of their own as things lie, which have all of VMEM."""
    found = [
        instr
        for computation in control_computations(module)
        for instr in computation
        if instr.opcode == "while" and may_be_one_kernel(instr, planner.chip.vmem_bytes)
    ]
    if not found:
        return set()
    try:
        buffers = assign_buffers(module, planner.chip)
    except ResourceExhaustedError:  # arrays that go to VMEM may make room
        return set(found)
    smem = SmemScratch(0, planner.chip.smem_words)
    target = KernelTarget(planner.chip, KernelOptions(planner.precision), smem)
    kernels = LoopKernels(buffers, KernelLibrary(target))
    return {loop for loop in found if kernels.fits(loop)}


def release_vmem(module: HloModule, planner: WindowPlanner) -> bool:
    """Put everything that stays in VMEM back into HBM; False where nothing does."""
    moved: dict[HloInstruction, None] = {}
    for computation in control_computations(module):
        for instr in computation:
            set_scope(instr, None)
            for leaf, shape in enumerate(leaves(instr.shape)):
                if memory_space(shape) == VMEM:
                    _move([(instr, leaf)], HBM)
                    moved |= dict.fromkeys((instr, *instr.users))
    for kernel in moved:
        if kernel.attrs.get("kind") in PLANNED_KINDS:
            write_windows(kernel, None)
            write_windows(kernel, planner)
    return bool(moved)


@dataclass
class _Choice:
    scopes: KernelScopes
    arrays: list[ResidentArray]
    vmem: VmemRows
    refused: set[int] = field(default_factory=set)

    def choose(self) -> list[ResidentArray]:
        """The arrays of most use that fit together."""
        free = self.vmem.rows - np.asarray(self.vmem.floors)
        chosen: list[ResidentArray] = []
        for array in sorted(self.arrays, key=lambda a: -a.worth):
            request = array.request
            rows = aligned_rows(request.size_bytes)
            part = free[request.start : request.end + 1]
            if request.key not in self.refused and part.min() >= rows:
                part -= rows
                chosen.append(array)
        placed = self.vmem.pack([array.request for array in chosen])
        return [array for array in chosen if array.request.key in placed]

    def apply(self, kept: list[ResidentArray]) -> list[ResidentArray]:
        """Put arrays into VMEM; those whose kernels have no plan, or a worse one, are returned."""
        by_kernel: dict[HloInstruction, list[ResidentArray]] = {}
        for array in kept:
            _move(array.slots, VMEM)
            for kernel in array.kernels:
                by_kernel.setdefault(kernel, []).append(array)
        refused: dict[int, ResidentArray] = {}
        for kernel, arrays in by_kernel.items():
            if not self._is_as_good(kernel):
                refused.update({array.request.key: array for array in arrays})
        return list(refused.values())

    def _is_as_good(self, kernel: HloInstruction) -> bool:
        """Whether a kernel has a plan as things lie that is no worse, and may be in place as before."""
        before, planner = self.scopes.facts(kernel), self.scopes.planner
        set_scope(kernel, before.scope_bytes)
        if kernel in self.scopes.custom:
            return True
        try:
            cycles = planner.plan(kernel).estimated_cycles
        except UnsupportedError:
            return False
        is_disjoint = not before.is_disjoint or blocks_are_disjoint(kernel, planner)
        return is_disjoint and cycles <= _NO_WORSE * before.cycles

    def undo(self, kept: list[ResidentArray]) -> None:
        """Put arrays back into HBM."""
        for array in kept:
            _move(array.slots, HBM)
            for kernel in array.kernels:
                set_scope(kernel, None)

    def refuse(self, arrays: list[ResidentArray]) -> None:
        """Choose these no more."""
        self.refused |= {array.request.key for array in arrays}

    def crowded(self, kept: list[ResidentArray], liveness: Liveness) -> set[HloInstruction]:
        """Kernels during which something lies in VMEM."""
        taken = np.zeros(len(self.vmem.floors), np.bool_)
        for array in kept:
            taken[array.request.start : array.request.end + 1] = True
        return {i for i, at in liveness.positions.items() if taken[at.start]}


def _move(slots: list[Slot], space: int) -> None:
    for instr, leaf in slots:
        instr.shape = _with_space(instr.shape, leaf, space)


def _with_space(shape: Shape, leaf: int, space: int) -> Shape:
    """The shape with one of its arrays in another memory space."""
    if isinstance(shape, ArrayShape):
        return in_space(shape, space)
    assert isinstance(shape, TupleShape)
    elements = list(shape.elements)
    for number, element in enumerate(elements):
        count = leaf_count(element)
        if leaf < count:
            elements[number] = _with_space(element, leaf, space)
            break
        leaf -= count
    return TupleShape(tuple(elements))
