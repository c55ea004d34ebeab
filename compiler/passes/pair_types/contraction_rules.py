"""dot and convolution of pairs.

Complex: a dot is two real ones of twice the contracted length, so that what cancels is summed
exactly alike; a convolution is four real ones. Integers: products of all pairs of rows and columns,
summed; the matrix unit multiplies floats only.
"""

from __future__ import annotations

from compiler.hlo.dtypes import C64, DType
from compiler.hlo.expression import Expr
from compiler.hlo.ir import HloInstruction
from compiler.hlo.shape import ArrayShape
from compiler.passes.pair_types.elementwise_rules import Rule, converted
from compiler.passes.pair_types.int64_conversion import from_int64
from compiler.passes.pair_types.scope import Scope, kept_attrs, refuse
from compiler.passes.pair_types.sums import sum_pairs
from compiler.passes.pair_types.values import Pair, Value, is_wide
from compiler.passes.pair_types.wide import int64_of, pair_of
from compiler.rewrite import make
from compiler.rewrite.emitter import Emitter
from compiler.rewrite.graph import emit

Instr = HloInstruction
Dims = tuple[int, ...]


def _contraction(scope: Scope, instr: Instr) -> Value:
    operands = [scope.value(operand) for operand in instr.operands]
    if any(isinstance(v, Pair) and v.dtype.is_complex for v in operands):
        product = _complex(instr, [_as_complex(instr, v) for v in operands])
        return product if instr.array.dtype.is_complex else _real_part(instr, product)
    if instr.opcode != "dot":
        raise refuse(instr, "convolutions of 64-bit integers have no expansion; use s32 or f32")
    e = Emitter.at(instr)
    dtype = instr.array.dtype if is_wide(instr.shape) else instr.operands[0].array.dtype
    pairs = [v if isinstance(v, Pair) else _converted(e, v, instr.array.dtype) for v in operands]
    total = _integer(e, instr, pairs)
    if is_wide(instr.shape):
        return total.retyped(dtype)
    return from_int64(int64_of(e, total), instr.array.dtype).instr


def _real_part(instr: Instr, product: Pair) -> Instr:
    """What is left of a complex product that is declared as real numbers, as a conversion leaves it."""
    if product.first.array.dtype == instr.array.dtype:
        return product.first
    return emit(instr, "convert", instr.array.with_layout(None), (product.first,))


def _as_complex(instr: Instr, value: Value) -> Pair:
    return value if isinstance(value, Pair) else _converted(Emitter.at(instr), value, C64)


def _converted(e: Emitter, value: Value, dtype: DType) -> Pair:
    assert isinstance(value, HloInstruction)
    pair = converted(Expr(e, value), dtype)
    assert isinstance(pair, Pair)
    return pair


def _complex(instr: Instr, operands: list[Pair]) -> Pair:
    """``(xr yr - xi yi) + i (xr yi + xi yr)``."""
    e = Emitter.at(instr)
    x, y = operands
    if instr.opcode == "dot" and instr.lhs_contracting_dims:
        return _long_dots(e, instr, x, y)

    def product(a: Instr, b: Instr) -> Instr:
        shape = ArrayShape(a.array.dtype, instr.array.dims)
        return emit(instr, instr.opcode, shape, (a, b), kept_attrs(instr), instr.name)

    real = e.subtract(product(x.first, y.first), product(x.second, y.second))
    imag = e.add(product(x.first, y.second), product(x.second, y.first))
    return Pair(real, imag, C64)


def _long_dots(e: Emitter, instr: Instr, x: Pair, y: Pair) -> Pair:
    """``[xr, -xi] . [yr, yi]`` and ``[xr, xi] . [yi, yr]`` along a contracted dimension."""
    left, right = (instr.ints(f"{side}_contracting_dims")[0] for side in ("lhs", "rhs"))
    shape = ArrayShape(x.first.array.dtype, instr.array.dims)
    pairs = (
        (_joined(e, x.first, e.negate(x.second), left), _joined(e, y.first, y.second, right)),
        (_joined(e, x.first, x.second, left), _joined(e, y.second, y.first, right)),
    )
    real, imag = (
        emit(instr, "dot", shape, operands, kept_attrs(instr), instr.name) for operands in pairs
    )
    return Pair(real, imag, C64)


def _joined(e: Emitter, a: Instr, b: Instr, dimension: int) -> Instr:
    return e.concatenate((a, b), dimension)


def _integer(e: Emitter, instr: Instr, operands: list[Pair]) -> Pair:
    """Both operands as ``[batch.., lhs free.., rhs free.., contracted..]``, multiplied, summed."""
    left, right = instr.operands[0].array.dims, instr.operands[1].array.dims
    batch = instr.lhs_batch_dims, instr.rhs_batch_dims
    inner = instr.lhs_contracting_dims, instr.rhs_contracting_dims
    free = [
        tuple(d for d in range(len(dims)) if d not in batch[side] + inner[side])
        for side, dims in enumerate((left, right))
    ]
    inner_dims = tuple(left[d] for d in inner[0])
    full = instr.array.dims + inner_dims
    rank = len(instr.array.dims)
    batch_count, left_count = len(batch[0]), len(free[0])
    positions = {
        0: [*range(batch_count + left_count), *range(rank, len(full))],
        1: [*range(batch_count), *range(batch_count + left_count, len(full))],
    }
    spread = [
        _spread(operands[side], batch[side] + free[side] + inner[side], positions[side], full)
        for side in range(2)
    ]
    product = int64_of(e, spread[0]) * int64_of(e, spread[1])
    return sum_pairs(e, pair_of(product), tuple(range(rank, len(full))))


def _spread(operand: Pair, order: Dims, positions: list[int], full: Dims) -> Pair:
    first, second = (
        make.broadcast(make.transpose(part, order), full, tuple(positions))
        for part in operand.parts
    )
    return Pair(first, second, operand.dtype)


CONTRACTION_RULES: dict[str, Rule] = {"convolution": _contraction, "dot": _contraction}
