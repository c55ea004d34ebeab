"""Which arrays stay in VMEM: the most bytes saved by rows and time, where their kernels cost no more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from compiler.analysis.buffer_packing import Request
from compiler.analysis.resident_arrays import ResidentArray, ResidentArrays, by_kernel
from compiler.analysis.vmem_packing import VmemRows, aligned_rows
from compiler.analysis.vmem_scope import set_scope
from compiler.diagnostics import UnsupportedError
from compiler.hlo.ir import HloInstruction
from compiler.passes.array_places import move_arrays
from compiler.passes.kernel_scopes import KernelScopes
from tpu_sim.isa.program import HBM, VMEM

_MUCH_MORE = 1.25
"""Times what small arrays save together that large ones in their place must."""
_NO_WORSE = 1.02
"""Times the cycles before that a kernel may take with operands or results in VMEM."""


@dataclass
class ResidencyChoice:
    """Chooses among `arrays`, beside those `held` in VMEM already."""

    scopes: KernelScopes
    found: ResidentArrays
    own_loops: Mapping[HloInstruction, int]
    refused: set[int] = field(default_factory=set)

    def choose(self) -> list[ResidentArray]:
        """The arrays of most use that fit together, by room and time, or else by what they save alone."""
        vmem = self.scopes.vmem(self.found.liveness, self.own_loops)
        dense = self._first_fit(lambda array: array.worth, vmem)
        large = self._first_fit(lambda array: array.saved_bytes, vmem)
        is_much_more = _saved_bytes(large) > _MUCH_MORE * _saved_bytes(dense)
        return large if is_much_more else dense

    def _first_fit(
        self, order: Callable[[ResidentArray], float], vmem: VmemRows
    ) -> list[ResidentArray]:
        """The arrays that fit together when those of most use are taken first."""
        held = [array.request for array in self.found.held]
        free = vmem.rows - np.asarray(vmem.floors)
        for request in held:
            free[request.start : request.end + 1] -= aligned_rows(request.size_bytes)
        chosen: list[ResidentArray] = []
        for array in sorted(self.found.arrays, key=order, reverse=True):
            request = array.request
            rows = aligned_rows(request.size_bytes)
            part = free[request.start : request.end + 1]
            if request.key not in self.refused and part.min() >= rows:
                part -= rows
                chosen.append(array)
        while chosen:
            placed = vmem.pack([*held, *(array.request for array in chosen)])
            moved = [request for request in held if request.key not in placed]
            if not moved:
                return [array for array in chosen if array.request.key in placed]
            gone = {array for request in moved for array in _least_beside(request, chosen)}
            gone = gone or set(chosen[len(chosen) * 3 // 4 :])
            chosen = [array for array in chosen if array not in gone]
        return []

    def apply(self, kept: list[ResidentArray]) -> bool:
        """Put arrays into VMEM; False where kernels have no plan then, or a worse one.

        The arrays of such kernels are refused, unless only what the kernel was hoped to need is wrong.
        """
        for array in kept:
            move_arrays(array.slots, VMEM)
        kernels = by_kernel(kept)
        worse = [
            kernel
            for kernel in dict.fromkeys((*self.scopes.hoped, *kernels))
            if not is_as_good(self.scopes, kernel)
        ]
        for kernel in worse:
            if not self.scopes.despair(kernel):
                self.refuse(kernels[kernel])
        return not worse

    def undo(self, kept: list[ResidentArray]) -> None:
        """Put arrays back into HBM."""
        for array in kept:
            move_arrays(array.slots, HBM)
            for kernel in array.kernels:
                set_scope(kernel, None)

    def refuse(self, arrays: list[ResidentArray]) -> None:
        """Choose these no more."""
        self.refused |= {array.request.key for array in arrays}


def is_as_good(scopes: KernelScopes, kernel: HloInstruction) -> bool:
    """Whether a kernel has a plan as things lie that is no worse, and may be in place as before."""
    before, planner = scopes.facts(kernel), scopes.planner
    set_scope(kernel, before.scope_bytes)
    if kernel in scopes.custom:
        return True
    try:
        now = planner.facts(kernel)
    except UnsupportedError:
        return False
    is_disjoint = now.is_disjoint or not before.is_disjoint
    return is_disjoint and now.cycles <= _NO_WORSE * before.cycles


def _least_beside(request: Request, chosen: list[ResidentArray]) -> list[ResidentArray]:
    """A quarter, of least use, of the arrays that live when a request does."""
    beside = [
        a for a in chosen if a.request.start <= request.end and request.start <= a.request.end
    ]
    return beside[len(beside) * 3 // 4 :]


def _saved_bytes(arrays: list[ResidentArray]) -> int:
    return sum(array.saved_bytes for array in arrays)


def crowded(found: ResidentArrays) -> set[HloInstruction]:
    """Kernels during which something lies in VMEM."""
    taken = np.zeros(found.liveness.length + 1, np.bool_)
    for array in found.held:
        taken[array.request.start : array.request.end + 1] = True
    return {i for i, at in found.liveness.positions.items() if taken[at.start]}
