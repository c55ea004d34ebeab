"""Results that lie in HBM for those that read them late, and in VMEM for those that read them soon.

    r = (f32[512,512]{1,0:T(8,128)}, f32[512,512]{1,0:T(8,128)S(1)}) fusion(x, y), calls=f
    far = f32[512,512]{1,0:T(8,128)} get-tuple-element(r), index=0
    near = f32[512,512]{1,0:T(8,128)S(1)} get-tuple-element(r), index=1

where the root of f is ``tuple(v, v)``. What a training step saves for its gradient is read by the next
kernels, and again long after them: VMEM holds it until then at no one's cost. The second result is a
twin of the first; `drop_twins` takes those away that do not stay in VMEM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from compiler.analysis.tiled_layout import byte_size, memory_space
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.kernel_results import (
    add_result,
    drop_elements,
    has_results,
    put_after,
    results_of,
    shared_bodies,
    view_of,
)
from tpu_sim.isa.program import HBM

_LEAST_BYTES = 1 << 16
_SHARE = 2
"""A twin takes at most this part of VMEM."""
_SOON = 6
"""Kernels that may run between one reader and the next that is soon after it."""


@dataclass(frozen=True)
class _Read:
    """An operand of a user, the kernels run before it, and whether VMEM may hold it for the user."""

    user: HloInstruction
    number: int
    time: int
    is_kernel: bool


def add_twins(
    module: HloModule,
    kernels: Collection[HloInstruction],
    readers: Collection[HloInstruction],
    vmem_bytes: int,
) -> dict[HloInstruction, int]:
    """Give results of `kernels` twins for the next of `readers`, where others read them late.

    Returns the twins: the new last elements of kernels' results, and the numbers of the elements that
    they are twins of.
    """
    shared = shared_bodies(module)
    twins: dict[HloInstruction, int] = {}
    for computation in control_computations(module):
        times = _times(computation)
        made: dict[HloInstruction, list[HloInstruction]] = {}
        for kernel in [i for i in computation if i in kernels and i.calls not in shared]:
            for value in results_of(kernel):
                if _fits(value, vmem_bytes) and (soon := _soon(value, kernel, times, readers)):
                    new = _twin(kernel, value, soon)
                    made.setdefault(kernel, []).extend(new)
                    twin = [i for i in new if i.opcode == "get-tuple-element"][-1]
                    twins[twin] = value.index if value.opcode == "get-tuple-element" else 0
        put_after(computation, made)
    return twins


def drop_twins(
    module: HloModule, but: Collection[HloInstruction] = ()
) -> dict[HloInstruction, set[int]]:
    """Take away results in HBM that are what an earlier one is, `but` these elements.

    Returns the kernels that had them, and which of their results they were.
    """
    shared = shared_bodies(module)
    shrunk: dict[HloInstruction, set[int]] = {}
    for computation in control_computations(module):
        for kernel in [i for i in computation if has_results(i) and i.calls not in shared]:
            kept: dict[HloInstruction, HloInstruction] = {}
            gone: dict[HloInstruction, HloInstruction] = {}
            roots = kernel.calls.root_instruction.operands
            for element in sorted(results_of(kernel), key=lambda e: e.index):
                first = kept.setdefault(roots[element.index], element)
                is_twin = first is not element and memory_space(element.array) == HBM
                if is_twin and element not in but:
                    gone[element] = first
            if gone:
                shrunk[kernel] = {element.index for element in gone}
                drop_elements(kernel, gone)
    return shrunk


def _times(computation: HloComputation) -> dict[HloInstruction, int]:
    """How many kernels run before each instruction."""
    times: dict[HloInstruction, int] = {}
    count = 0
    for instr in computation:
        times[instr] = count
        count += OPCODES[instr.opcode].has(Trait.KERNEL)
    return times


def _fits(value: HloInstruction, vmem_bytes: int) -> bool:
    shape = value.shape
    if not isinstance(shape, ArrayShape) or memory_space(shape) != HBM or shape.dtype.bits > 32:
        return False
    return shape.rank > 0 and _LEAST_BYTES <= byte_size(shape) <= vmem_bytes // _SHARE


def _soon(
    value: HloInstruction,
    kernel: HloInstruction,
    times: dict[HloInstruction, int],
    readers: Collection[HloInstruction],
) -> list[_Read]:
    """Who reads a value soon after it is made, where somebody needs it later; else nobody."""
    reads = sorted(_reads(value, times, readers), key=lambda read: read.time)
    last, soon = times[kernel], 0
    for read in reads:
        if not read.is_kernel or read.time - last > _SOON:
            break
        last, soon = read.time, soon + 1
    is_needed_later = soon < len(reads) or _is_returned(value)
    return reads[:soon] if is_needed_later else []


def _reads(
    value: HloInstruction,
    times: dict[HloInstruction, int],
    readers: Collection[HloInstruction],
) -> Iterator[_Read]:
    for user in value.users:
        if user.opcode == "bitcast" and isinstance(user.shape, ArrayShape):
            yield from _reads(user, times, readers)
            continue
        for number, operand in enumerate(user.operands):
            if operand is value:
                yield _Read(user, number, times[user], user in readers)


def _is_returned(value: HloInstruction) -> bool:
    if value.home.root is value:
        return True
    return any(u.opcode == "bitcast" and _is_returned(u) for u in value.users)


def _twin(kernel: HloInstruction, value: HloInstruction, soon: list[_Read]) -> list[HloInstruction]:
    """Another result that is the same; `soon` read it. Returns what is new in the computation."""
    root = kernel.calls.root_instruction
    same = root if value is kernel else root.operands[value.index]
    twin, made = add_result(kernel, same, value.array)
    views = {made[0] if value is kernel else value: twin}
    for read in soon:
        read.user.set_operand(read.number, view_of(read.user.operands[read.number], views, made))
    return made
