"""Integer powers of 64-bit integers: 64 squarings in a loop."""

from __future__ import annotations

from compiler.diagnostics import UnsupportedError
from compiler.hlo.call_graph import control_computations
from compiler.hlo.dtypes import PRED, S32, U32
from compiler.hlo.ir import HloComputation, HloInstruction, HloModule
from compiler.hlo.shape import ArrayShape, TupleShape
from compiler.passes.pair_types.emitter import Emitter
from compiler.passes.pair_types.int64_arithmetic import Int64
from compiler.passes.pair_types.values import Pair
from compiler.rewrite.graph import emit

Instr = HloInstruction
_STEPS = 64


def power(i: Int64, base: Pair, exponent: Pair) -> Pair:
    """``base ** exponent`` modulo 2**64; a negative exponent gives the truncated reciprocal."""
    e = i.e
    result = _loop(i, base, exponent)
    if not base.dtype.is_signed:
        return result
    zero, one, minus_one = (i.constant(n, base.dims, base.dtype) for n in (0, 1, -1))
    is_odd = e.ne(e.and_(exponent.first, e.like(exponent.first, 1)), 0)
    alternating = i.select(is_odd, minus_one, one)
    inverse = i.select(i.compare("EQ", base, one), one, zero)
    inverse = i.select(i.compare("EQ", base, minus_one), alternating, inverse)
    return i.select(i.is_negative(exponent), inverse, result)


def _loop(i: Int64, base: Pair, exponent: Pair) -> Pair:
    """Square and multiply, lowest bit first."""
    near = i.e.near
    computation = near.computation
    assert computation is not None
    module = computation.module
    assert module is not None
    if computation not in control_computations(module):
        message = f"%{near.name}: power of {base.dtype} inside a reducer; multiply instead"
        raise UnsupportedError(message, near.span)
    one = i.constant(1, base.dims, base.dtype)
    count = i.e.constant(S32, 0, ())
    state = [count, *one.parts, *base.parts, *exponent.parts]
    shape = TupleShape(tuple(part.array for part in state))
    start = emit(near, "tuple", shape, state)
    attrs: dict[str, object] = {
        "condition": _condition(module, shape),
        "body": _body(module, shape, base),
        "backend_config": f'{{"known_trip_count":{{"n":"{_STEPS}"}}}}',
    }
    loop = emit(near, "while", shape, (start,), attrs, "power")
    return Pair(_element(loop, 1), _element(loop, 2), base.dtype)


def _element(tuple_: Instr, index: int) -> Instr:
    assert isinstance(tuple_.shape, TupleShape)
    shape = tuple_.shape.elements[index]
    return emit(tuple_, "get-tuple-element", shape, (tuple_,), {"index": index})


def _parameter(module: HloModule, name: str, shape: TupleShape) -> tuple[HloComputation, Instr]:
    computation = module.add_computation(HloComputation(name))
    attrs: dict[str, object] = {"parameter_number": 0}
    return computation, computation.add(HloInstruction("parameter", "state", shape, (), attrs))


def _condition(module: HloModule, shape: TupleShape) -> HloComputation:
    computation, state = _parameter(module, "power_condition", shape)
    count = _element(state, 0)
    steps = Emitter(state).constant(S32, _STEPS, ())
    test = ArrayShape(PRED, ())
    computation.root = emit(state, "compare", test, (count, steps), {"direction": "LT"})
    return computation


def _body(module: HloModule, shape: TupleShape, like: Pair) -> HloComputation:
    computation, state = _parameter(module, "power_body", shape)
    e = Emitter(state)
    i = Int64(e)
    parts = [_element(state, k) for k in range(len(shape.elements))]
    result, base, left = (Pair(parts[k], parts[k + 1], like.dtype) for k in (1, 3, 5))
    is_odd = e.ne(e.and_(left.first, e.like(left.first, 1)), 0)
    result = i.select(is_odd, i.multiply(result, base), result)
    square = i.multiply(base, base)
    rest = i.shift_right_logical(left, e.constant(U32, 1, like.dims))
    count = e.add(parts[0], e.constant(S32, 1, ()))
    next_state = [count, *result.parts, *square.parts, *rest.parts]
    computation.root = emit(state, "tuple", shape, next_state)
    return computation
