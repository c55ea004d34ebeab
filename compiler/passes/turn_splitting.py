"""Turn splitting: a transpose that moves lanes far is a turn of blocks, and a choice of rows.

    t = f32[224,224,3,64] transpose(x), dimensions={2,3,1,0}

Each register of `t` has rows from eight registers and lanes from 64. Turned first and picked then, it
takes the transpose unit a block of 128x128 at a time and whole rows afterwards:

    u = f32[3,224,224,64] transpose(x), dimensions={1,2,3,0}
    t = f32[224,224,3,64] transpose(u), dimensions={1,2,0,3}

`u` is stored (`fusion_nodes`): were both in one kernel, each row would be turned by itself.
"""

from __future__ import annotations

from compiler.hlo.call_graph import control_computations
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.opcodes import Trait, with_any
from compiler.passes.context import PassContext
from compiler.rewrite import make
from compiler.rewrite.dims import without_ones
from compiler.rewrite.graph import replace

_LEAST_ELEMENTS = 1 << 17
"""Of an array, for which one more kernel pays."""
_LEAST_TURNED = 16
"""Rows and columns of blocks that are turned before their rows are picked."""

_KEPT = with_any(Trait.ELEMENTWISE | Trait.DATA_MOVEMENT)
"""Operations after which dimensions may still be merged."""


def split_turns(module: HloModule, context: PassContext) -> bool:
    """Split the transposes of every computation that move lanes far."""
    for computation in control_computations(module):
        for instr in list(computation):
            first = _first_turn(instr)
            if first is not None:
                turned = make.transpose(instr.operands[0], first)
                rest = tuple(first.index(d) for d in instr.dimensions)
                replace(instr, make.transpose(turned, rest))
                context.counts["transposes"] += 1
        computation.sort()
    return bool(context.counts["transposes"])


def _first_turn(instr: HloInstruction) -> tuple[int, ...] | None:
    """The transpose to store, where lanes leave the last two dimensions."""
    if instr.opcode != "transpose" or instr.array.element_count < _LEAST_ELEMENTS:
        return None
    dims, target = instr.operands[0].array.dims, instr.dimensions
    before, after = ([d for d in order if dims[d] != 1] for order in (range(len(dims)), target))
    old, new = before[-1], after[-1]
    if old in after[-2:] or min(dims[old], dims[new]) < _LEAST_TURNED:
        return None
    if new in before[-2:] and _is_merged(instr):
        return None
    return (*(d for d in range(len(dims)) if d not in (old, new)), old, new)


def _is_merged(instr: HloInstruction) -> bool:
    """Whether the last dimension is merged with others, perhaps padded before: then heads of features,
    say, or positions of images are turned as the matrix that they become."""
    pending, seen = list(instr.users), set(instr.users)
    while pending:
        user = pending.pop()
        if user.opcode == "reshape" and not _keeps_last(user):
            return True
        if user.opcode in _KEPT:
            fresh = [u for u in user.users if u not in seen]
            seen.update(fresh)
            pending += fresh
    return False


def _keeps_last(reshape: HloInstruction) -> bool:
    """Whether the last dimension stays by itself."""
    before, after = (without_ones(i.array.dims) for i in (reshape.operands[0], reshape))
    return before[-1:] == after[-1:]
