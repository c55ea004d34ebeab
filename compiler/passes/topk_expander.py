"""Top-k expander: the k greatest elements of each row, for small k, by k rounds of maximum.

    m = max over the row of what is left; i = the first position that holds m; strike i out

A NaN counts as the greatest element, and equal elements come in order of position, as a stable
sort would give them. The rounds are row reductions of one array, so they are one kernel.
"""

from __future__ import annotations

from compiler.analysis.call_graph import drop_unreachable, reachable
from compiler.hlo.dtypes import PRED, S32
from compiler.hlo.ir import HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.context import PassContext
from compiler.passes.reducers import extreme
from compiler.rewrite import make
from compiler.rewrite.graph import emit, replace

MAX_K = 16


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
    operand, k = instr.operands[0].array, instr.attrs["k"]
    assert isinstance(k, int)
    if instr.attrs.get("largest", True) is not True:
        return False  # minimum would put a NaN first, where it belongs last
    is_small = 0 < k <= min(MAX_K, operand.dims[-1])
    return is_small and (operand.dtype.is_float or operand.dtype.is_integer)


def _expanded(instr: HloInstruction) -> HloInstruction:
    operand, k = instr.operands[0], instr.attrs["k"]
    assert isinstance(k, int)
    search = _Search(instr, operand)
    rounds = [search.next() for _ in range(k)]
    values = _stacked(instr, [value for value, _ in rounds])
    indices = _stacked(instr, [index for _, index in rounds])
    shape = TupleShape((values.shape, indices.shape))
    return emit(instr, "tuple", shape, (values, indices))


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
        worst = extreme("maximum", self.operand.array.dtype)
        left = self.operand
        if self.taken is not None:
            fill = make.splat(self.near, self.operand.array, worst)
            left = emit(self.near, "select", left.array, (self.taken, fill, left))
        best = self._reduce("maximum", left, worst)
        hit = self._is_hit(self._wide(best))
        end = make.splat(self.near, self.position.array, self.dims[-1])
        places = emit(self.near, "select", self.position.array, (hit, self.position, end))
        index = self._reduce("minimum", places, extreme("minimum", S32))
        here = self._compare(self.position, self._wide(index))
        self.taken = here if self.taken is None else self._logical("or", self.taken, here)
        return best, index

    def _is_hit(self, best: HloInstruction) -> HloInstruction:
        """Where an element that is left equals the best one (NaN equals NaN)."""
        hit = self._compare(self.operand, best)
        if self.operand.array.dtype.is_float:
            nan = self._logical("and", self._is_nan(self.operand), self._is_nan(best))
            hit = self._logical("or", hit, nan)
        if self.taken is None:
            return hit
        left = emit(self.near, "not", self.mask, (self.taken,))
        return self._logical("and", hit, left)

    def _is_nan(self, value: HloInstruction) -> HloInstruction:
        return emit(self.near, "compare", self.mask, (value, value), {"direction": "NE"})

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
