"""Data movement, constants, tuples and control flow on pairs: the same on each part."""

from __future__ import annotations

import numpy as np

from compiler.hlo.ir import HloInstruction
from compiler.hlo.opcodes import Trait, with_any
from compiler.hlo.ops.indexing import index_operands
from compiler.hlo.shape import ArrayShape
from compiler.passes.pair_types.elementwise_rules import Rule
from compiler.passes.pair_types.scope import (
    Scope,
    emit_control,
    kept_attrs,
    refuse,
    unpacked,
)
from compiler.passes.pair_types.values import Pair, TupleValue, Value, lowered, part_dtype
from compiler.rewrite.graph import emit

Instr = HloInstruction


def _moved(scope: Scope, instr: Instr) -> Value:
    """The same movement of each part; indices are made 32 bits wide."""
    numbers = index_operands(instr)
    data = [scope.parts(o) for n, o in enumerate(instr.operands) if n not in numbers]
    indices = [scope.index(instr.operands[n]) for n in numbers]
    dtype = instr.array.dtype
    part = part_dtype(dtype)
    results = [
        emit(
            instr,
            instr.opcode,
            ArrayShape(dtype if part is None else part, instr.array.dims),
            [*(d[number] for d in data), *indices],
            kept_attrs(instr),
            instr.name,
        )
        for number in range(1 if part is None else 2)
    ]
    return results[0] if part is None else Pair(results[0], results[1], dtype)


def _constant(scope: Scope, instr: Instr) -> Value:
    literal = instr.attrs["literal"]
    if not isinstance(literal, np.ndarray):
        raise refuse(instr, "a tuple constant; use one constant per element")
    part = part_dtype(instr.array.dtype)
    assert part is not None
    shape = ArrayShape(part, instr.array.dims)
    words = np.ascontiguousarray(literal).reshape(-1).view(part.numpy).reshape(-1, 2)
    first, second = (
        emit(instr, "constant", shape, (), {"literal": words[:, k].reshape(shape.dims).copy()})
        for k in range(2)
    )
    return Pair(first, second, instr.array.dtype)


def _tuple(scope: Scope, instr: Instr) -> Value:
    return TupleValue(tuple(scope.value(operand) for operand in instr.operands))


def _get_tuple_element(scope: Scope, instr: Instr) -> Value:
    value = scope.value(instr.operands[0])
    index = instr.index
    assert isinstance(value, TupleValue)
    return value.elements[index]


def _control(scope: Scope, instr: Instr) -> Value:
    """while and conditional hand one value to each computation."""
    return emit_control(scope, instr, [scope.packed(operand) for operand in instr.operands])


def _call(scope: Scope, instr: Instr) -> Value:
    """call hands one value per parameter."""
    return emit_control(scope, instr, scope.spread(instr.operands))


def _barrier(scope: Scope, instr: Instr) -> Value:
    packed = scope.packed(instr.operands[0])
    new = emit(instr, instr.opcode, lowered(instr.shape), (packed,), kept_attrs(instr), instr.name)
    return unpacked(new, instr.shape)


_MOVEMENT = with_any(Trait.INDEX_MAP | Trait.PIECEWISE) | {
    "copy", "gather",
    "all-gather", "all-to-all", "collective-broadcast", "collective-permute",
}  # fmt: skip

STRUCTURE_RULES: dict[str, Rule] = {
    **dict.fromkeys(_MOVEMENT, _moved),
    "call": _call,
    "conditional": _control,
    "constant": _constant,
    "get-tuple-element": _get_tuple_element,
    "opt-barrier": _barrier,
    "tuple": _tuple,
    "while": _control,
}
