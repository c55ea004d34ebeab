"""Dots that the vector unit does: outer products, and small dots of high precision.

A dot that sums nothing, with one contracted element or none, is a product of each pair: in f32, and
one operation that fuses with others. XLA does the same.

The matrix unit makes an f32 product of three or six bf16 passes: what is left when large products
cancel is theirs, and each pass loads weights anew. Up to 32 vregs of products are multiplied and
added in f32 instead: rounded like plain f32 arithmetic, and no slower, since so small a kernel
mostly waits for its operands. Larger ones are no faster, as what makes their operands may be
fused into the products and so repeated.
"""

from __future__ import annotations

from compiler.analysis.dot_parts import dot_parts
from compiler.hlo.dtypes import F32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.passes.context import PassContext
from compiler.passes.dot_canonicalizer import DotSide, dot_sides
from compiler.passes.expanders.driver import expand
from compiler.rewrite.emitter import Emitter

Instr = HloInstruction
MAX_CONTRACTED = 32
MAX_LANES = 1 << 15  # of products, padded to whole vregs: 32 vregs
SUBLANES, LANES = 8, 128


def expand_small_dots(module: HloModule, context: PassContext) -> bool:
    """Expand outer products, and small dots that would take more than one pass of the matrix unit."""
    precision = context.planner.precision if context.planner is not None else "default"
    return expand(module, context, {"dot": lambda instr: expand_small_dot(instr, precision)})


def expand_small_dot(instr: Instr, precision: str) -> Instr | None:
    """The dot as products ``[K, B, M, N]`` summed over the first dimension, or None."""
    if not _is_float(instr):
        return None
    left, right = dot_sides(instr)
    batch, k = left.size(left.batch), left.size(left.contracting)
    if k > 1 and dot_parts(instr, precision).passes == 1:
        return None
    m, n = left.size(left.free), right.size(right.free)
    is_swapped = n == 1
    if is_swapped:
        left, right, m, n = right, left, n, m
    lanes = k * batch * _rounded(m, SUBLANES) * _rounded(n, LANES)
    if lanes == 0 or k > MAX_CONTRACTED or (k > 1 and lanes > MAX_LANES):
        return None
    e = Emitter.at(instr)
    full = (k, batch, m, n)
    rows = e.broadcast(_matrix(e, left), full, (0, 1, 2))
    columns = e.broadcast(_matrix(e, right), full, (0, 1, 3))
    products = e.multiply(rows, columns)
    total = e.shaped(products, full[1:]) if k == 1 else e.total(products, 0)
    return e.cast(e.shaped(total, instr.array.dims), instr.array.dtype)


def _is_float(instr: Instr) -> bool:
    dtypes = (instr.array.dtype, *(operand.array.dtype for operand in instr.operands))
    return all(dtype.is_float and dtype.bits <= F32.bits for dtype in dtypes)


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _matrix(e: Emitter, side: DotSide) -> Instr:
    """The operand in f32 as ``[contracted, batch, free]``, contracted dimensions in one order."""
    order = (*side.contracting, *side.batch, *side.free)
    operand = e.cast(side.operand, F32)
    turned = operand if order == tuple(range(len(order))) else e.transpose(operand, order)
    return e.shaped(turned, tuple(side.size(d) for d in (side.contracting, side.batch, side.free)))
