"""Shapes of the custom calls that are executed: what their targets take and give.

Element types are the caller's; a target without a row gives what is declared, and is refused where
it is executed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from compiler.hlo.ops.inference import Inference, dims_text
from compiler.hlo.shape import ArrayShape, Shape, leaves

Dims = tuple[int, ...]
Rule = Callable[[Inference], list[Dims]]


def custom_call(q: Inference) -> Shape:
    """The declared shape, which has the dimensions that a known target gives."""
    shape = q.declared_shape()
    target = q.attrs.get("custom_call_target")
    rule = RULES.get(target) if isinstance(target, str) else None
    if rule is not None:
        found, want = [leaf.dims for leaf in leaves(shape)], rule(q)
        q.require(found == want, f"{target} gives {_listed(want)}, declared are {_listed(found)}")
    return shape


def _listed(dims: Sequence[Dims]) -> str:
    return ", ".join(f"[{','.join(map(str, d))}]" for d in dims) or "no results"


def _matrix(q: Inference, operands: int) -> ArrayShape:
    q.require(len(q.shapes) == operands, f"want {operands} operands, found {len(q.shapes)}")
    matrix = q.array(0)
    q.require(matrix.rank >= 2, f"operand is {dims_text(matrix)}, want matrices")
    return matrix


def _buffer(q: Inference) -> list[Dims]:
    q.require(not q.shapes, f"want no operands, found {len(q.shapes)}")
    return [leaf.dims for leaf in leaves(q.declared_shape())]


def _qr(q: Inference) -> list[Dims]:
    matrix = _matrix(q, 1)
    return [matrix.dims, (*matrix.dims[:-2], min(matrix.dims[-2:]))]


def _lu(q: Inference) -> list[Dims]:
    matrix = _matrix(q, 1)
    batch, (m, n) = matrix.dims[:-2], matrix.dims[-2:]
    return [matrix.dims, (*batch, min(m, n)), (*batch, m)]


def _eigh(q: Inference) -> list[Dims]:
    matrix = _matrix(q, 1)
    q.require(matrix.dims[-1] == matrix.dims[-2], f"{dims_text(matrix)} is not square")
    return [matrix.dims, matrix.dims[:-1]]


def _reflectors(q: Inference) -> list[Dims]:
    matrix, scales = _matrix(q, 2), q.array(1)
    fits = scales.rank == matrix.rank - 1 and scales.dims[:-1] == matrix.dims[:-2]
    q.require(fits, f"scales are {dims_text(scales)} for {dims_text(matrix)}")
    q.require(scales.dims[-1] <= min(matrix.dims[-2:]), "more scales than columns or rows")
    return [matrix.dims]


def _top_k(q: Inference) -> list[Dims]:
    q.require(len(q.shapes) in (1, 2), f"want 1 or 2 operands, found {len(q.shapes)}")
    operand = q.array(0)
    declared = leaves(q.declared_shape())
    q.require(operand.rank >= 1 and bool(declared), "want an array of one dimension or more")
    count = declared[0].dims[-1:]
    q.require(bool(count) and count[0] <= operand.dims[-1], "more results than elements")
    return [(*operand.dims[:-1], *count)] * 2


def _approximate_top_k(q: Inference) -> list[Dims]:
    """Arrays and their start values; one dimension becomes shorter."""
    arrays = q.arrays()
    count = len(arrays) // 2
    q.require(count > 0 and len(arrays) == 2 * count, "want arrays and as many start values")
    operand, result = arrays[0], leaves(q.declared_shape())[0]
    q.require(result.rank == operand.rank >= 1, f"{dims_text(operand)} to {dims_text(result)}")
    pairs = list(zip(result.dims, operand.dims, strict=True))
    shorter = all(a <= b for a, b in pairs) and sum(a != b for a, b in pairs) <= 1
    q.require(shorter, f"{dims_text(operand)} to {dims_text(result)}: more than one dimension")
    same = all(a.dims == operand.dims for a in arrays[:count])
    q.require(same and all(math.prod(a.dims) == 1 for a in arrays[count:]), "operands differ")
    return [result.dims] * count


RULES: dict[str, Rule] = {
    "AllocateBuffer": _buffer,
    "ApproxTopK": _approximate_top_k,
    "Eigh": _eigh,
    "LuDecomposition": _lu,
    "PartialReduce": _approximate_top_k,
    "ProductOfElementaryHouseholderReflectors": _reflectors,
    "Qr": _qr,
    "QrDecomposition": _qr,
    "TopK": _top_k,
}
"""By target; `compiler.passes.expanders.custom_call_expander` has what each means."""
