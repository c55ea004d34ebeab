"""Top-k expander: the k greatest elements of each row, for small k, by k rounds of maximum.

    m = max over the row of what is left; i = the first position that holds m; strike i out

Floats are searched as integers in their total order (-NaN < -inf < .. < -0 < 0 < .. < inf < NaN),
and equal elements come in order of position, as a stable sort would give them. The rounds are row
reductions of one array, so they are one kernel.
"""

from __future__ import annotations

import numpy as np

from compiler.hlo.call_graph import drop_unreachable, reachable
from compiler.hlo.dtypes import F32, PRED, S32, DType
from compiler.hlo.identities import identity
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext
from compiler.rewrite import make
from compiler.rewrite.graph import emit, replace

MAX_K = 16
"""Rounds of maximum that are unrolled; they cost k passes over the rows, which then outweigh a sort
(assumed)."""


def expand_topk(module: HloModule, context: PassContext) -> bool:
    """Expand every `topk` of few elements of a 32-bit or narrower real type."""
    for computation in reachable(module):
        for instr in list(computation):
            if instr.opcode == "topk" and _is_expandable(instr):
                replace(instr, _expanded(instr))
                context.counts["topk"] += 1
        computation.sort()
    drop_unreachable(module)
    return bool(context.counts["topk"])


def _is_expandable(instr: HloInstruction) -> bool:
    operand, k = instr.operands[0].array, instr.k
    if instr.largest is not True:
        return False
    is_small = 0 < k <= min(MAX_K, operand.dims[-1])
    return is_small and (operand.dtype.is_float or operand.dtype.is_integer)


def _expanded(instr: HloInstruction) -> HloInstruction:
    operand, k = instr.operands[0], instr.k
    is_float = operand.array.dtype.is_float
    search = _Search(instr, order_key(instr, operand) if is_float else operand)
    rounds = [search.next() for _ in range(k)]
    values = _stacked(instr, [value for value, _ in rounds])
    if is_float:
        values = of_order_key(instr, values, operand.array.dtype)
    indices = _stacked(instr, [index for _, index in rounds])
    shape = TupleShape((values.shape, indices.shape))
    return emit(instr, "tuple", shape, (values, indices))


def order_key(near: HloInstruction, operand: HloInstruction) -> HloInstruction:
    """Floats of at most 32 bits as s32 in the total order."""
    shape = operand.array.with_layout(None)
    wide = operand
    if shape.dtype != F32:
        wide = emit(near, "convert", shape.with_dtype(F32), (operand,))
    bits = emit(near, "bitcast-convert", shape.with_dtype(S32), (wide,))
    return _flipped(near, bits)


def of_order_key(near: HloInstruction, key: HloInstruction, dtype: DType) -> HloInstruction:
    """The floats of a type that have these keys."""
    value = emit(near, "bitcast-convert", key.array.with_dtype(F32), (_flipped(near, key),))
    if dtype == F32:
        return value
    return emit(near, "convert", key.array.with_dtype(dtype), (value,))


def _flipped(near: HloInstruction, bits: HloInstruction) -> HloInstruction:
    """The order of negative numbers reversed; its own inverse."""
    shape = bits.array
    sign = emit(near, "shift-right-arithmetic", shape, (bits, make.splat(near, shape, 31)))
    mask = emit(near, "and", shape, (sign, make.splat(near, shape, 0x7FFFFFFF)))
    return emit(near, "xor", shape, (bits, mask))


def _stacked(near: HloInstruction, columns: list[HloInstruction]) -> HloInstruction:
    """Values per row side by side."""
    wide = [make.reshape(c, (*c.array.dims, 1)) for c in columns]
    if len(wide) == 1:
        return wide[0]
    dims = (*columns[0].array.dims, len(columns))
    dim = {"dimensions": (len(dims) - 1,)}
    return emit(near, "concatenate", columns[0].array.with_dims(dims), wide, dict(dim))


class _Search:
    """The rounds over one operand; remembers what was struck out."""

    def __init__(self, near: HloInstruction, operand: HloInstruction) -> None:
        self.near = near
        self.operand = operand
        self.dims = operand.array.dims
        self.mask = ArrayShape(PRED, self.dims)
        self.position = emit(
            near, "iota", ArrayShape(S32, self.dims), (), {"iota_dimension": len(self.dims) - 1}
        )
        self.taken: HloInstruction | None = None

    def next(self) -> tuple[HloInstruction, HloInstruction]:
        """The greatest element left of each row, and its position."""
        worst = identity("maximum", self.operand.array.dtype)
        assert worst is not None
        left = self.operand
        if self.taken is not None:
            fill = make.splat(self.near, self.operand.array, worst)
            left = emit(self.near, "select", left.array, (self.taken, fill, left))
        best = self._reduce("maximum", left, worst)
        hit = self._is_hit(self._wide(best))
        end = make.splat(self.near, self.position.array, self.dims[-1])
        places = emit(self.near, "select", self.position.array, (hit, self.position, end))
        index = self._reduce("minimum", places, np.iinfo(np.int32).max)
        here = self._compare(self.position, self._wide(index))
        self.taken = here if self.taken is None else self._logical("or", self.taken, here)
        return best, index

    def _is_hit(self, best: HloInstruction) -> HloInstruction:
        """Where an element that is left equals the best one."""
        hit = self._compare(self.operand, best)
        if self.taken is None:
            return hit
        left = emit(self.near, "not", self.mask, (self.taken,))
        return self._logical("and", hit, left)

    def _compare(self, a: HloInstruction, b: HloInstruction) -> HloInstruction:
        return emit(self.near, "compare", self.mask, (a, b), {"direction": "EQ"})

    def _logical(self, opcode: str, a: HloInstruction, b: HloInstruction) -> HloInstruction:
        return emit(self.near, opcode, self.mask, (a, b))

    def _wide(self, rows: HloInstruction) -> HloInstruction:
        return make.broadcast(rows, self.dims, tuple(range(len(self.dims) - 1)))

    def _reduce(self, kind: str, value: HloInstruction, init: float) -> HloInstruction:
        dtype = value.array.dtype
        start = make.constant(self.near, dtype, init)
        attrs = {
            "dimensions": (len(self.dims) - 1,),
            "to_apply": make.reducer(self.near, kind, dtype),
        }
        shape = value.array.with_dims(self.dims[:-1])
        return emit(self.near, "reduce", shape, (value, start), attrs)
