"""Layout stripping: forget the layouts of the input text.

A frontend's layouts (``{3,1,2,0}`` on a transpose's result) are another backend's choice.
Passes up to layout assignment compare bare shapes; `entry_computation_layout` is kept, since
it is what the caller hands in. A bitcast means by its two layouts which element is which, so
where they are not row-major, or its types differ, it is written as what it does. That a scatter's indices are
sorted is a claim which nobody checks: it goes, too.

    f32[5,7,3]{2,1,0} bitcast(f32[3,5,7]{0,2,1} x)  ->  transpose(x), dimensions={1,2,0}
"""

from __future__ import annotations

import numpy as np

from compiler.analysis.scatter_dims import SORTED
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.hlo.shape_inference import without_layout
from compiler.passes.context import PassContext
from compiler.rewrite import make
from compiler.rewrite.graph import emit, replace


def strip_layouts(module: HloModule, context: PassContext) -> bool:
    """Remove the layout of every instruction's shape."""
    for computation in module.computations.values():
        moving = [instr for instr in computation if _moves(instr)]
        for instr in moving:
            replace(instr, _written_out(instr))
            context.counts["bitcasts"] += 1
        if moving:
            computation.sort()
        for instr in computation:
            bare = without_layout(instr.shape)
            if bare != instr.shape:
                instr.shape = bare
                context.counts["shapes"] += 1
            if instr.opcode == "scatter" and instr.attrs.pop(SORTED, None) is not None:
                context.counts["claims"] += 1
    return bool(context.counts)


def _moves(instr: HloInstruction) -> bool:
    """Whether this is a bitcast between arrays that are not of one type and row-major."""
    if instr.opcode != "bitcast" or not isinstance(instr.shape, ArrayShape):
        return False
    shapes = (instr.array, instr.operands[0].array)
    is_plain = all(_order(shape) == tuple(range(shape.rank)) for shape in shapes)
    return not is_plain or shapes[0].dtype != shapes[1].dtype


def _order(shape: ArrayShape) -> tuple[int, ...]:
    """The dimensions from the outermost in memory to the innermost."""
    return tuple(reversed(shape.minor_to_major))


def _written_out(bitcast: HloInstruction) -> HloInstruction:
    """The operand in the order of its memory, as the other type, in the order of the result."""
    operand, result = bitcast.operands[0], bitcast.array
    order = _order(result)
    rows = make.transpose(operand, _order(operand.array))
    if operand.array.dtype != result.dtype:
        rows = _as_type(rows, result.dtype)
    rows = make.reshape(rows, tuple(result.dims[d] for d in order))
    return make.transpose(rows, tuple(int(d) for d in np.argsort(order)))


def _as_type(rows: HloInstruction, dtype: DType) -> HloInstruction:
    """The same bits in row-major order; narrow elements are put together or wide ones cut."""
    old, count = rows.array.dtype, rows.array.element_count
    dims: tuple[int, ...] = rows.array.dims
    if old.bits < dtype.bits:
        ratio = dtype.bits // old.bits
        dims = (count // ratio,)
        rows = make.reshape(rows, (*dims, ratio))
    elif old.bits > dtype.bits:
        dims = (*dims, old.bits // dtype.bits)
    return emit(rows, "bitcast-convert", ArrayShape(dtype, dims), (rows,))
