"""VMEM prefetch: operands of coming kernels are fetched while one runs that leaves HBM idle.

    r = (f32[64,512]{1,0:T(8,128)}, f32[512,512]{1,0:T(8,128)S(1)}) fusion(x, y, w), ...
    v = f32[512,512]{1,0:T(8,128)S(1)} get-tuple-element(r), index=1
    z = f32[64,512]{1,0:T(8,128)} fusion(d, v), ...

A kernel that waits for HBM wishes for its operands; one before it that computes longer than it moves
may carry them, in parts, a part in each step of its grid (`compiler.passes.carried_results`). The array
lies in VMEM from then until its readers have run, so nothing else is written there meanwhile.

Wishes that save most cycles for their bytes come first; each goes to the last kernel that has time for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compiler.analysis.code_costs import KernelCosts
from compiler.analysis.kernel_vmem import arrangement, held_rows
from compiler.analysis.resident_arrays import (
    ResidentArrays,
    instructions_inside,
    may_be_one_kernel,
    resident_arrays,
)
from compiler.analysis.tiled_layout import byte_size, memory_space
from compiler.analysis.vmem_packing import aligned_rows
from compiler.analysis.vmem_scope import scoped_bytes
from compiler.analysis.windows import Blocks
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.carried_results import Read, carry, drop_carried
from compiler.passes.context import PassContext
from compiler.passes.kernel_results import array_of, results_of, shared_bodies
from compiler.passes.kernel_scopes import KernelScopes
from compiler.passes.residency_choice import crowded, is_as_good
from tpu_sim.isa.geometry import GRANULE_BYTES
from tpu_sim.isa.program import HBM

_LEAST_BYTES = 1 << 15
_LEAST_SHARE = 0.25
"""Of the cycles that a transfer takes, what it must save."""
_FAR = 40
"""Kernels that may run between one that fetches and one that reads."""
_SOON = 6
"""Kernels that may run between one reader and the next."""


@dataclass
class _Kernel:
    """A kernel of windows: where it runs, cycles that HBM is idle, cycles that it waits for HBM.

    `moved` are bytes by operand.
    """

    instr: HloInstruction
    place: int
    position: int
    idle: float
    waits: float
    moved: tuple[int | None, ...]


@dataclass
class _Wish:
    """An array that readers, the first one first, would have in VMEM, and the cycles that this saves."""

    value: HloInstruction
    reads: list[tuple[_Kernel, Read]]
    transfer: float
    saved: float

    @property
    def first(self) -> _Kernel:
        """The first reader."""
        return self.reads[0][0]

    def late(self, carrier: _Kernel) -> float:
        """Cycles by which a kernel ends later if it carries the array."""
        return max(0.0, self.transfer - max(0.0, carrier.idle))

    @property
    def worth(self) -> float:
        """Cycles saved by those that the transfer takes."""
        return self.saved / self.transfer


def prefetch(module: HloModule, context: PassContext) -> bool:
    """Let kernels bring arrays to VMEM that later ones read."""
    if context.planner is None:
        return False
    scopes = KernelScopes(module, context.planner, keeps=True)
    own_loops = _scoped_loops(module)
    offers = _Offers(module, scopes, own_loops)
    offers.make()
    found = _settle(scopes, own_loops, offers)
    if offers.saved:
        requests = [array.request for array in found.held]
        vmem = scopes.vmem(found.liveness, own_loops)
        scopes.widen(found.liveness, vmem.lowest(requests, vmem.pack(requests)))
    scopes.write(crowded(found))
    for element, saved in offers.saved.items():
        kernel = element.operands[0]
        context.remarks.append(f"%{kernel.name} fetches %{element.name}: saves {saved:.0f} cycles")
    context.counts["arrays"] = len(offers.saved)
    return bool(offers.saved)


def _scoped_loops(module: HloModule) -> dict[HloInstruction, int]:
    """Loops with a part of VMEM for themselves beside what lies there."""
    loops = [i for c in control_computations(module) for i in c if i.opcode == "while"]
    sizes = {loop: scoped_bytes(loop) for loop in loops}
    return {loop: size for loop, size in sizes.items() if size is not None}


class _Offers:
    """Finds carriers for wishes. `saved` are elements that kernels carry, and hoped-for cycles."""

    def __init__(
        self,
        module: HloModule,
        scopes: KernelScopes,
        own_loops: dict[HloInstruction, int],
    ) -> None:
        found = _held(module, own_loops)
        self.module = module
        self.saved: dict[HloInstruction, float] = {}
        self._scopes = scopes
        self._rate = scopes.planner.chip.hbm_bytes_per_cycle
        self._least_saved = KernelCosts.of(scopes.planner.chip).fetched_array
        self._liveness = found.liveness
        self._free = _free_rows(scopes, own_loops, found)
        self._shared = shared_bodies(module)
        self._blocks: dict[HloInstruction, Blocks] = {}
        self._readers: dict[HloInstruction, list[HloInstruction]] = {}

    def make(self) -> None:
        """Let kernels carry arrays, which lie in VMEM from then on."""
        inside = _inside_loop_kernels(self.module, self._scopes.planner.chip.vmem_bytes)
        for computation in control_computations(self.module):
            if computation not in inside:
                self._of_computation(computation)

    def keep_blocks(self) -> None:
        """Let carriers have the blocks that they had."""
        for kernel in dict.fromkeys(element.operands[0] for element in self.saved):
            with self._scopes.scoped(kernel):
                self._scopes.planner.adopt(kernel, self._blocks[kernel])

    def by_kernel(self) -> dict[HloInstruction, list[HloInstruction]]:
        """The elements that each kernel carries or reads."""
        found: dict[HloInstruction, list[HloInstruction]] = {}
        for element in self.saved:
            for kernel in dict.fromkeys((element.operands[0], *self._readers[element])):
                found.setdefault(kernel, []).append(element)
        return found

    def take_away(self, gone: Collection[HloInstruction]) -> None:
        """Let nothing be carried for these elements."""
        for element in dict.fromkeys(gone):
            drop_carried(element)
            del self.saved[element]

    def _of_computation(self, computation: HloComputation) -> None:
        order = {instr: n for n, instr in enumerate(computation)}
        chosen: list[tuple[_Kernel, _Wish]] = []
        for kernels in self._runs(order):
            for wish in sorted(self._wishes(kernels), key=lambda w: -w.worth):
                made = -1 if _is_there_at_once(wish.value) else order[wish.value]
                carrier = self._carrier(wish, [k for k in kernels if k.place > made])
                if carrier is not None:
                    chosen.append((carrier, wish))
        _put_first(computation, [w.value for k, w in chosen if order[w.value] > k.place])
        for carrier, _ in chosen:
            with self._scopes.scoped(carrier.instr):
                self._blocks[carrier.instr] = self._scopes.planner.plan(carrier.instr).blocks
        for carrier, wish in chosen:
            value = array_of(wish.value)  # a kernel of one result may carry something by now
            element = carry(carrier.instr, value, [read for _, read in wish.reads])
            self.saved[element] = wish.saved
            self._readers[element] = [kernel.instr for kernel, _ in wish.reads]

    def _runs(self, order: Mapping[HloInstruction, int]) -> list[list[_Kernel]]:
        """The kernels of a computation between its loops, which may want all of VMEM."""
        runs: list[list[_Kernel]] = [[]]
        for instr, place in order.items():
            if OPCODES[instr.opcode].has(Trait.HANDS_STATE):
                runs.append([])
            elif instr in self._scopes.planned:
                runs[-1].append(self._kernel(instr, place))
        return runs

    def _kernel(self, instr: HloInstruction, place: int) -> _Kernel:
        with self._scopes.scoped(instr):
            facts = self._scopes.planner.facts(instr)
        cost = facts.traffic.cost
        position = self._liveness.positions[instr].start
        return _Kernel(instr, place, position, cost.idle, cost.waits, facts.window_bytes)

    def _wishes(self, kernels: list[_Kernel]) -> Iterator[_Wish]:
        """What kernels read in HBM, by readers that follow each other soon."""
        reads: dict[HloInstruction, list[tuple[_Kernel, Read]]] = {}
        for kernel in kernels:
            for number, operand in enumerate(kernel.instr.operands):
                value = _source(operand)
                if kernel.moved[number] and _is_fetched(value, operand):
                    reads.setdefault(value, []).append((kernel, Read(kernel.instr, number)))
        numbers = {kernel.instr: n for n, kernel in enumerate(kernels)}
        for value, all_reads in reads.items():
            group: list[tuple[_Kernel, Read]] = []
            for kernel, read in all_reads:
                if group and numbers[kernel.instr] - numbers[group[-1][0].instr] > _SOON:
                    yield self._wish(value, group)
                    group = []
                group.append((kernel, read))
            yield self._wish(value, group)

    def _wish(self, value: HloInstruction, reads: list[tuple[_Kernel, Read]]) -> _Wish:
        saved = sum(self._saved(kernel, read) for kernel, read in reads)
        return _Wish(value, reads, byte_size(value.array) / self._rate, saved)

    def _saved(self, kernel: _Kernel, read: Read) -> float:
        """Cycles that a kernel does not wait any more where an operand lies in VMEM."""
        return min(kernel.waits, (kernel.moved[read.number] or 0) / self._rate)

    def _carrier(self, wish: _Wish, kernels: list[_Kernel]) -> _Kernel | None:
        """The last of some kernels before a wish's readers with time, and room in VMEM from there on, for it.

        Where none has time enough, the one that is held up least.
        """
        wish.saved = sum(self._saved(kernel, read) for kernel, read in wish.reads)
        least = max(self._least_saved, _LEAST_SHARE * wish.transfer)
        best: _Kernel | None = None
        end = wish.reads[-1][0].position
        shape = wish.value.array
        rows = aligned_rows(held_rows(shape, shape.dims) * GRANULE_BYTES)
        before = [k for k in kernels if k.place < wish.first.place]
        for kernel in before[: -_FAR - 1 : -1]:
            if self._free[kernel.position : end + 1].min() < rows:
                break
            is_better = best is None or kernel.idle > best.idle
            if (
                is_better
                and wish.saved - wish.late(kernel) >= least
                and self._may_carry(kernel.instr)
            ):
                best = kernel
            if best is not None and best.idle >= wish.transfer:
                break
        if best is not None:
            self._free[best.position : end + 1] -= rows
            self._scopes.allow(best.instr, wish.late(best))
            wish.saved -= wish.late(best)
            best.idle -= wish.transfer
            for reader, read in wish.reads:
                reader.waits -= self._saved(reader, read)
        return best

    def _may_carry(self, kernel: HloInstruction) -> bool:
        return kernel.calls not in self._shared and bool(results_of(kernel))


def _settle(
    scopes: KernelScopes, own_loops: dict[HloInstruction, int], offers: _Offers
) -> ResidentArrays:
    """Take offers away until the others fit VMEM together and no kernel of theirs is worse than before.

    Returns what lies in VMEM then.
    """
    found = _held(offers.module, own_loops)
    while offers.saved:
        ours = {a: [i for i, _ in a.slots if i in offers.saved] for a in found.held}
        placed = scopes.vmem(found.liveness, own_loops).pack([a.request for a in found.held])
        gone = [e for a, elements in ours.items() if a.request.key not in placed for e in elements]
        if not gone:
            offers.keep_blocks()
            kernels = offers.by_kernel()
            gone = [
                e for kernel in kernels if not is_as_good(scopes, kernel) for e in kernels[kernel]
            ]
        if not gone:
            break
        offers.take_away(gone)
        found = _held(offers.module, own_loops)
    return found


def _held(module: HloModule, own_loops: dict[HloInstruction, int]) -> ResidentArrays:
    """What lies in VMEM, and when."""
    return resident_arrays(module, own_loops, lambda _: None)


def _free_rows(
    scopes: KernelScopes, own_loops: dict[HloInstruction, int], found: ResidentArrays
) -> NDArray[np.int64]:
    """Rows of VMEM that neither kernels nor arrays have, by position."""
    free = scopes.rows - np.asarray(scopes.floors(found.liveness, own_loops))
    for array in found.held:
        request = array.request
        free[request.start : request.end + 1] -= aligned_rows(request.size_bytes)
    return free


def _inside_loop_kernels(module: HloModule, vmem_bytes: int) -> set[HloComputation]:
    """Computations of loops that may be kernels of their own."""
    loops = [i for c in control_computations(module) for i in c if i.opcode == "while"]
    found: set[HloComputation] = set()
    for loop in loops:
        if may_be_one_kernel(loop, vmem_bytes):
            inside = {i.computation for i in instructions_inside(loop)}
            found |= {computation for computation in inside if computation is not None}
    return found


def _source(operand: HloInstruction) -> HloInstruction:
    """The array that an operand is, or is a view of."""
    while operand.opcode == "bitcast" and isinstance(operand.operands[0].shape, ArrayShape):
        operand = operand.operands[0]
    return operand


def _is_fetched(value: HloInstruction, view: HloInstruction) -> bool:
    """Whether an array lies in HBM as in VMEM its view may, and is worth a transfer of its own."""
    shape = value.shape
    if not isinstance(shape, ArrayShape) or memory_space(shape) != HBM or shape.layout is None:
        return False
    if shape.rank == 0 or byte_size(shape) < _LEAST_BYTES or shape.dtype.bits > 32:
        return False
    is_descending = shape.layout.minor_to_major == tuple(reversed(range(shape.rank)))
    return is_descending and arrangement(shape) == arrangement(view.array)


def _is_there_at_once(value: HloInstruction) -> bool:
    """Whether a value is there from the start of its computation."""
    if value.opcode == "get-tuple-element":
        return value.operands[0].opcode == "parameter"
    return OPCODES[value.opcode].has(Trait.GIVEN)


def _put_first(computation: HloComputation, values: list[HloInstruction]) -> None:
    """Schedule values that are there at once before all else."""
    first = dict.fromkeys(o for v in values for o in (*v.operands, v))
    computation.instructions = dict.fromkeys((*first, *computation))
