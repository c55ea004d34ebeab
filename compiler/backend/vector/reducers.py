"""Reducer computations on vregs: combine two states, fold a state over lanes or sublanes.

A state has one vreg per operand of the reduce (pred as 0 or 1). The common reducers (add, multiply,
maximum, minimum, and, or, xor) are recognised: they have an identity and fold instructions.
Others are emitted as they are written and fold by halving with rotations; for them the init values
are taken to be an identity, as XLA's definition of reduce asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler.analysis.reducers import position_kind, widened_kind
from compiler.backend.vector.constants import emit_constant
from compiler.backend.vector.elementwise import emit_elementwise
from compiler.backend.vector.ops import MAGNITUDE, Ops, compare_type, value_class
from compiler.diagnostics import UnsupportedError
from compiler.hlo.dtypes import DType
from compiler.hlo.identities import MONOIDS, identity
from compiler.hlo.ir import HloComputation, HloInstruction
from compiler.hlo.opcodes import OPCODES, Trait
from compiler.llo.builder import f32_bits
from compiler.llo.ir import VReg

State = list[VReg]

_ROWS = {
    "add": "add",
    "multiply": "mul",
    "maximum": "max",
    "minimum": "min",
    "and": "and",
    "or": "or",
    "xor": "xor",
}


def monoid_row(monoid: str, dtype: DType) -> str:
    """Suffix of the rows that combine values of a type, such as ``add.f32`` or ``or``."""
    name = _ROWS[monoid]
    if name in ("and", "or", "xor"):
        return name
    if value_class(dtype) == "m":
        return {"add": "or", "max": "or", "mul": "and", "min": "and"}[name]
    is_plain = dtype.is_float or name in ("max", "min")
    return f"{name}.{compare_type(dtype) if is_plain else 's32'}"


def identity_bits(monoid: str, dtype: DType) -> int:
    """The identity of a monoid, as an immediate; 0.0 for a sum of floats."""
    value = identity(monoid, dtype)
    assert value is not None
    if dtype.is_float:
        return 0 if monoid == "add" else f32_bits(float(value))
    return int(value) - (1 << 32) if value >= 1 << 31 else int(value)


@dataclass(frozen=True)
class Reducer:
    """The `to_apply` of a reduce: `monoid` is its opcode when it is one of the common ones.

    `position` is the opcode of the values of an argmax or argmin.
    """

    computation: HloComputation
    dtypes: tuple[DType, ...]
    monoid: str = ""
    position: str = ""

    @property
    def fold_name(self) -> str:
        """Suffix of the fold rows, such as ``add.f32`` or ``or``."""
        return monoid_row(self.monoid, self.dtypes[0])

    def identity_bits(self) -> int:
        """The monoid's identity, as an immediate; 0.0 for a sum of floats, whose start is known."""
        return identity_bits(self.monoid, self.dtypes[0])

    def combine(self, ops: Ops, a: State, b: State) -> State:
        """a `op` b; the earlier elements are in a."""
        if self.monoid:
            return [ops.emit(f"v{self.fold_name}", a[0], b[0])]
        return _apply(ops, self, [*a, *b])

    def fold(self, ops: Ops, state: State, axis: str) -> State:
        """Over all lanes or sublanes (`axis`), the result in every one of them."""
        if self.monoid:
            return [ops.emit(f"v{axis}fold.{self.fold_name}", state[0])]
        if self.position:
            return self._folded_position(ops, state, axis)
        distance = 64 if axis == "lane" else 4
        row = "vrot.lane" if axis == "lane" else "vrot.slane"
        while distance:
            turned = [ops.emit(row, value, 0, distance) for value in state]
            state = self.combine(ops, state, turned)
            distance //= 2
        return state

    def _folded_position(self, ops: Ops, state: State, axis: str) -> State:
        """The best value, and the least position of those that are it, or of NaN if there is one."""
        value, place = state
        value_type, place_type = self.dtypes
        best = ops.emit(f"v{axis}fold.{monoid_row(self.position, value_type)}", value)
        is_best = ops.emit(f"vcmp.eq.{'f32' if value_type.is_float else 's32'}", value, best)
        if value_type.is_float:
            is_best = ops.either(is_best, ops.emit("vcmp.ne.f32", value, value))
        last = ops.integer(MAGNITUDE if place_type.is_signed else -1)
        row = f"v{axis}fold.min.{compare_type(place_type)}"
        return [best, ops.emit(row, ops.select(is_best, place, last))]

    def finish(self, ops: Ops, state: State) -> State:
        """Wrap integers narrower than 32 bits, which were summed in 32."""
        return [
            ops.wrap(value, dtype) if value_class(dtype) == "i" else value
            for value, dtype in zip(state, self.dtypes, strict=True)
        ]


def reducer_of(reduce: HloInstruction) -> Reducer:
    """The reducer of a reduce instruction."""
    computation = reduce.to_apply
    count = len(reduce.operands) // 2
    dtypes = tuple(operand.array.dtype for operand in reduce.operands[:count])
    monoid = widened_kind(computation, MONOIDS) if count == 1 else None
    if monoid is None or identity(monoid, dtypes[0]) is None:
        return Reducer(computation, dtypes, position=_position(computation, dtypes))
    return Reducer(computation, dtypes, monoid)


def _position(computation: HloComputation, dtypes: tuple[DType, ...]) -> str:
    """The kind of an argmax or argmin whose values and positions are numbers in lanes."""
    has_rows = len(dtypes) == 2 and all(value_class(dtype) in ("f", "i") for dtype in dtypes)
    return (position_kind(computation) or "") if has_rows and dtypes[1].is_integer else ""


def _apply(ops: Ops, reducer: Reducer, arguments: Sequence[VReg]) -> State:
    values: dict[HloInstruction, int] = {}
    computation = reducer.computation
    for parameter, argument in zip(computation.parameters, arguments, strict=True):
        is_mask = value_class(parameter.array.dtype) == "m"
        values[parameter] = ops.integer_to_mask(argument) if is_mask else argument
    for node in computation:
        if node.opcode not in ("parameter", "tuple"):
            values[node] = _emit_scalar_node(ops, node, [values[o] for o in node.operands])
    return [
        ops.mask_to_integer(values[node]) if value_class(node.array.dtype) == "m" else values[node]
        for node in computation.results
    ]


def _emit_scalar_node(ops: Ops, node: HloInstruction, operands: list[int]) -> int:
    if node.opcode == "constant":
        return emit_constant(ops, node)
    if node.opcode == "bitcast" or OPCODES[node.opcode].has(Trait.REARRANGES):
        return operands[0]
    info = OPCODES.get(node.opcode)
    is_known = info is not None and info.has(Trait.ELEMENTWISE)
    if not is_known and node.opcode != "bitcast-convert":
        message = f"%{node.name}: {node.opcode} in a reducer computation"
        raise UnsupportedError(message, node.span)
    return emit_elementwise(ops, node, operands)
