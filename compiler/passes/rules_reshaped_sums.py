"""Sums of all elements, taken where the arrays lie.

    sum of reshape(a) * reshape(b)   ==   sum of a * b, over all their dimensions

`vdot` and norms of what has several dimensions see it as one long vector, which is put together of rows that
do not fill their registers before a single number is made of it.
"""

from __future__ import annotations

from compiler.analysis.kernel_vmem import box_vreg_tiles
from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.rewrite import make
from compiler.rewrite.dims import Dims
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op
from compiler.rewrite.rewriter import ANY_ORDER, rule

_MOST_NODES = 32
_MOST_WASTE = 2.0
"""How many times the registers the arrays may take where they lie."""


# reduce(f(reshape(a), reshape(b)) over all) == reduce(f(a, b) over all)
@rule("reduce-of-reshaped", Op("reduce"), ANY_ORDER)
def reduce_of_reshaped(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Reduce all elements in the dimensions that they had before, where rows were others."""
    if len(instr.operands) != 2 or instr.array.rank != 0:
        return None
    value, init = instr.operands
    nodes = _elementwise(value)
    if nodes is None:
        return None
    found = {n.operands[0].array.dims for n in nodes if n.opcode == "reshape"}
    if len(found) != 1:
        return None
    (dims,) = found
    if _rows(dims) == _rows(value.array.dims):
        return None  # rows stay what they are: nothing moves
    if _registers(value, dims) > _MOST_WASTE * _registers(value, value.array.dims):
        return None  # what is computed with few lanes filled takes longer than moving
    attrs = {**instr.attrs, "dimensions": tuple(range(len(dims)))}
    return emit(instr, "reduce", instr.array, (_before(value, dims), init), attrs)


def _rows(dims: Dims) -> int:
    """The length of rows; dimensions of size 1 make no others, and leave the reduce by themselves."""
    return next((size for size in reversed(dims) if size != 1), 1)


def _registers(value: HloInstruction, dims: Dims) -> int:
    return box_vreg_tiles(value.array.with_dims(dims), dims)


def _elementwise(value: HloInstruction) -> list[HloInstruction] | None:
    """The operations on elements that make a value, with the reshapes and spread scalars behind them; None
    where something else is."""
    found: list[HloInstruction] = []
    pending = [value]
    while pending:
        node = pending.pop()
        found.append(node)
        if len(found) > _MOST_NODES:
            return None
        if node.opcode == "reshape" or _is_spread(node):
            continue
        if not OPCODES[node.opcode].traits & Trait.ELEMENTWISE or len(node.users) != 1:
            return None
        pending.extend(node.operands)
    return found


def _is_spread(node: HloInstruction) -> bool:
    return node.opcode == "broadcast" and node.operands[0].array.rank == 0


def _before(node: HloInstruction, dims: Dims) -> HloInstruction:
    """The same value in the dimensions before the reshapes."""
    if node.opcode == "reshape":
        return node.operands[0]
    if _is_spread(node):
        return make.broadcast(node.operands[0], dims, ())
    operands = [_before(operand, dims) for operand in node.operands]
    return emit(node, node.opcode, node.array.with_dims(dims), operands, node.attrs)
