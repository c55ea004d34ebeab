"""Values of no elements become constants, so that nothing after has to think of them.

What is computed into an empty array cannot be seen; only side effects must stay.
"""

from __future__ import annotations

import numpy as np

from compiler.hlo.call_graph import reachable
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext

_KEPT = Trait.GIVEN | Trait.SIDE_EFFECT


def eliminate_zero_sized(module: HloModule, context: PassContext) -> bool:
    """Replace every empty array by an empty constant."""
    count = 0
    for computation in reachable(module):
        for instr in list(computation):
            if not _is_empty(instr):
                continue
            literal = np.zeros(instr.array.dims, instr.array.dtype.numpy)
            empty = HloInstruction("constant", "empty", instr.shape, (), {"literal": literal})
            empty.location = instr.location
            computation.add(empty)
            instr.replace_all_uses_with(empty)
            count += 1
        computation.sort()
    context.counts["instructions"] = count
    return bool(count)


def _is_empty(instr: HloInstruction) -> bool:
    if not isinstance(instr.shape, ArrayShape) or instr.array.element_count:
        return False
    return not OPCODES[instr.opcode].traits & _KEPT
