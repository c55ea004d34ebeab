"""running-totals: a running total that is worth it becomes a `running-total`, one kernel over its blocks.

    reduce-window over all before, add    running-total, kind=add
    the same from the end                 running-total, kind=add, is_reverse=true
    of bf16, s8 ..                        of f32, s32, converted before and after

Each block goes on from what the one before it has combined, so that all is read and written once. Small
ones are left to the tap expander, whose shifts become parts of the kernels beside them.
"""

from __future__ import annotations

import math

import numpy as np

from compiler.analysis.code_costs import KernelCosts, RunningCosts
from compiler.analysis.indexing_boxes import tile_units
from compiler.analysis.kernel_vmem import VREG_TILE_BYTES
from compiler.analysis.reducers import has_identity_init, reducer_kind
from compiler.hlo.dtypes import F32, S32, U32, DType
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape
from compiler.passes.context import PassContext
from compiler.passes.expanders.driver import expand
from compiler.passes.expanders.running_dims import running_dim
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import splat_value
from tpu_sim.isa.chips import Chip
from tpu_sim.isa.program import HBM, VMEM
from tpu_sim.isa.timing import dma_cost

Instr = HloInstruction


def make_running_totals(module: HloModule, context: PassContext) -> bool:
    """Make kernels of all running totals that are cheaper so."""
    return expand(module, context, {"reduce-window": lambda i: _running_total(i, context.chip)})


def _running_total(window: Instr, chip: Chip) -> Instr | None:
    """The total as an operation of its own, or None where it is none or does not pay."""
    if len(window.operands) != 2 or 0 in window.array.dims:
        return None
    operand, init = window.operands
    kind, running = reducer_kind(window.to_apply), running_dim(operand, window.window.dims)
    dtype = _computed(operand.array.dtype)
    if kind is None or running is None or dtype is None or not has_identity_init(window):
        return None
    start = splat_value(init)
    is_negative_zero = kind == "add" and start == 0 and np.signbit(start)
    if is_negative_zero or identity(kind, dtype) is None:
        return None
    dim, is_reverse = running
    if not _pays(ArrayShape(dtype, operand.array.dims), dim, chip):
        return None
    attrs: dict[str, object] = {"dimensions": (dim,), "kind": kind, "is_reverse": is_reverse}
    wide = make.convert(operand, dtype)
    total = emit(window, "running-total", wide.array, (wide,), attrs)
    return make.convert(total, window.array.dtype)


def _computed(dtype: DType) -> DType | None:
    """The type in which the kernel combines; None of types that it has none for."""
    if dtype.is_float and dtype.bits <= F32.bits:
        return F32
    if dtype.is_integer and dtype.bits <= S32.bits:
        return S32 if dtype.is_signed else U32
    return None


def _pays(shape: ArrayShape, dim: int, chip: Chip) -> bool:
    """Whether a kernel of its own takes less than shifts that double, in kernels that there are anyway."""
    costs = RunningCosts.of(chip)
    sides = zip(shape.dims, tile_units(shape), strict=True)
    registers = math.prod(-(-size // unit) for size, unit in sides)
    behind = shape.rank - 1 - dim
    one = (costs.lanes, costs.sublanes)[behind] if behind < 2 else costs.elements
    moved = 2 * dma_cost(HBM, VMEM, chip).cycles(registers * VREG_TILE_BYTES)
    shifts = (shape.dims[dim] - 1).bit_length()
    doubled = registers * shifts * costs.doubled
    return KernelCosts.of(chip).alone + max(moved, registers * one) < doubled
