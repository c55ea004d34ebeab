"""Which while loops of a program are kernels of their own (`loop_kernel`), and what VMEM these need."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

from compiler.analysis import vmem_shares
from compiler.analysis.aliasing import leaf_count
from compiler.analysis.buffer_assignment import BufferAssignment
from compiler.analysis.trip_count import expected_trips
from compiler.analysis.vmem_scope import scoped_bytes, scoped_chip
from compiler.backend.kernel_library import KernelLibrary
from compiler.backend.loop_kernel import LoopKernel, computations_of
from compiler.diagnostics import CompileError
from compiler.hlo.call_graph import post_order
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.keys import Key, computation_hash
from compiler.llo.ir import LloKernel

_MOST_ROWS = 0.92  # with what stages keep


class LoopKernels:
    """Which loops of a program are kernels of their own."""

    def __init__(self, buffers: BufferAssignment, library: KernelLibrary) -> None:
        self.buffers = buffers
        self.library = library
        self._names: dict[HloInstruction, str | None] = {}

    def kernel_for(self, loop: HloInstruction) -> str | None:
        """The name of the kernel that runs a loop; None where main runs it."""
        options = self.library.target.options
        if not options.loops_in_vmem or loop.name in options.loops_in_main:
            return None
        if scoped_bytes(loop) is None and self.buffers.holds_vmem(loop):
            return None
        if loop not in self._names:
            self._names[loop] = self._made(loop)
        return self._names[loop]

    def needed_rows(self, loop: HloInstruction) -> int | None:
        """The rows of VMEM that a loop needs as a kernel of its own; None where it cannot be one."""
        made = self._emitted(loop)
        return None if made is None else int(_rows(made) / vmem_shares.WINDOWS) + 1

    def _made(self, loop: HloInstruction) -> str | None:
        first = self._emitted(loop)
        if first is None:
            return None
        del _LAST[loop.body]  # lowering consumes it
        made = [first]
        return self.library.loop_kernel(loop, lambda: made.pop() if made else self._emit(loop)[0])

    def _emit(self, loop: HloInstruction) -> tuple[LloKernel, int]:
        """A loop as a kernel, and the rows of its arrays."""
        emitter = LoopKernel(loop, self.buffers, self.library)
        return emitter.emit(), emitter.array_rows

    def _emitted(self, loop: HloInstruction) -> LloKernel | None:
        key, last = self._key(loop), _LAST.get(loop.body)
        if last is None or last.key != key:
            try:
                last = _LAST[loop.body] = _Emitted(key, *self._emit(loop))
            except CompileError:
                return None
        vmem_rows = scoped_chip(self.library.target.chip, loop).vmem_rows
        fits = last.array_rows <= vmem_shares.WINDOWS * vmem_rows and _rows(last.llo) <= (
            _MOST_ROWS * vmem_rows
        )
        return last.llo if fits else None

    def _key(self, loop: HloInstruction) -> Key:
        """All that a loop's code depends on: what it computes, and where its arrays lie."""
        target, body = self.library.target, computations_of(loop)
        hashes = [computation_hash(c) for c in post_order(body)]
        values = [loop, loop.operands[0], *(instr for computation in body for instr in computation)]
        places = [
            (place.space, place.offset, place.size_bytes)
            for instr in values
            for place in (self.buffers.allocation(instr, n) for n in range(leaf_count(instr.shape)))
        ]
        trips, precision = expected_trips(loop), target.options.precision
        return (loop.name, trips, target.chip, precision, tuple(hashes), tuple(places))


class _Emitted(NamedTuple):
    key: Key
    llo: LloKernel
    array_rows: int


_LAST: WeakKeyDictionary[HloComputation, _Emitted] = WeakKeyDictionary()
"""By a loop's body what was emitted for it last. Passes ask which loops can be kernels and what VMEM
these need, which the code alone says; lowering takes the code if nothing has changed since."""


def _rows(kernel: LloKernel) -> int:
    """Rows of a kernel's own windows."""
    return sum(window.rows for window in kernel.windows if window.place < 0)
