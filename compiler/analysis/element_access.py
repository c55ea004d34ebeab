"""Elements of arrays in SMEM, which the scalar unit reads and writes by itself.

    fusion(array, index), kind=kScalar             ROOT reshape(dynamic-slice(array, index)), a scalar
    fusion(array, value, index), kind=kScalar      ROOT dynamic-update-slice(array, reshape(value), index)

The array has one dimension of 32-bit elements; its elements are consecutive words. The index lies within it.
"""

from __future__ import annotations

from collections.abc import Iterator

from compiler.analysis.aliasing import Slot, leaf_count, shared_slots
from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule

ELEMENT_KIND = "kScalar"
"""The kind of these fusions."""


def is_element_access(instr: HloInstruction) -> bool:
    """Whether an instruction reads or writes an element of an array in SMEM."""
    return instr.opcode == "fusion" and instr.kind == ELEMENT_KIND


def arrays_of_elements(module: HloModule) -> Iterator[Slot]:
    """All slots of the arrays that are accessed so: they lie in SMEM."""
    instrs = [instr for c in control_computations(module) for instr in c]
    arrays = [instr.operands[0] for instr in instrs if is_element_access(instr)]
    if not arrays:
        return
    sets = shared_slots(module)
    roots = {sets.find((array, 0)) for array in arrays}
    for instr in instrs:
        for leaf in range(leaf_count(instr.shape)):
            if sets.find((instr, leaf)) in roots:
                yield instr, leaf
