"""Elementwise StableHLO operations -> HLO opcodes of the same meaning."""

from __future__ import annotations

from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.syntax import Operation
from compiler.hlo.dtypes import BY_NAME, PRED, DType
from compiler.hlo.opcodes import OPCODES, Trait, with_trait
from compiler.hlo.shape import ArrayShape


def unary(opcode: str) -> Lowering:
    """The lowering of an operation with one operand and no attributes."""

    def lower(b: Body, op: Operation) -> Instr:
        (operand,) = take(b, op, 1)
        return b.unary(opcode, operand)

    return lower


def binary(opcode: str) -> Lowering:
    """The lowering of an operation with two operands of one shape."""

    def lower(b: Body, op: Operation) -> Instr:
        lhs, rhs = take(b, op, 2)
        return b.binary(opcode, lhs, rhs)

    return lower


def namesakes(dialect: Trait) -> dict[str, Lowering]:
    """Operations of a dialect that are an opcode of one or two operands, by their name there."""
    lowerings = {1: unary, 2: binary}
    found = sorted(with_trait(dialect | Trait.ELEMENTWISE))
    return {name.replace("-", "_"): lowerings[OPCODES[name].arity](name) for name in found}


def take(b: Body, op: Operation, count: int) -> list[Instr]:
    """The operands, of which there must be `count`."""
    operands = b.operands()
    if len(operands) != count:
        op.fail(f"found {len(operands)} operands, want {count}")
    return operands


def take_some(b: Body, op: Operation, least: int) -> list[Instr]:
    """The operands, of which there must be `least` or more."""
    operands = b.operands()
    if len(operands) < least:
        op.fail(f"found {len(operands)} operands, want {least} or more")
    return operands


def _abs(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    return operand if operand.array.dtype.kind == "unsigned" else b.unary("abs", operand)


def _real(b: Body, op: Operation) -> Instr:
    """The real part; a real operand is its own."""
    (operand,) = take(b, op, 1)
    return b.unary("real", operand) if operand.array.dtype.is_complex else operand


def _imag(b: Body, op: Operation) -> Instr:
    """The imaginary part; that of a real operand is zero."""
    (operand,) = take(b, op, 1)
    return b.unary("imag", operand) if operand.array.dtype.is_complex else b.like(operand, 0)


def _compare(b: Body, op: Operation) -> Instr:
    lhs, rhs = take(b, op, 2)
    a = b.attributes()
    return compare(b, lhs, rhs, a.word("comparison_direction"), a.word("compare_type", ""))


def compare(b: Body, lhs: Instr, rhs: Instr, direction: str, kind: str) -> Instr:
    """A comparison; only the total order of floats differs from what the type implies."""
    attrs: dict[str, object] = {"direction": direction}
    if kind == "TOTALORDER":
        attrs["type"] = kind
    return b.instruction("compare", (lhs, rhs), attrs)


def _convert(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    dtype = b.result_array().dtype
    return operand if dtype is operand.array.dtype else b.convert(operand, dtype)


def _bitcast_convert(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    dtype = b.result_array().dtype
    if operand.array.dtype is PRED and dtype is not PRED:
        return b.bitcast_convert(_join_bits(b, operand, dtype), dtype)
    if dtype is PRED and operand.array.dtype is not PRED:
        return _split_bits(b, operand)
    return b.bitcast_convert(operand, dtype)


def _join_bits(b: Body, operand: Instr, dtype: DType) -> Instr:
    """In StableHLO an i1 is one bit: the last dimension holds the bits of a wider type, low first."""
    unsigned = BY_NAME[f"u{dtype.bits}"]
    last = operand.array.rank - 1
    if operand.array.dims[-1:] != (dtype.bits,):
        b.op.fail(f"want a last dimension of {dtype.bits}, the bits of {dtype}")
    bits = b.convert(operand, unsigned)
    placed = b.binary("shift-left", bits, b.iota(unsigned, operand.array.dims, last))
    return b.reduce(placed, b.constant(unsigned, 0), (last,), b.scalar("or", unsigned))


def _split_bits(b: Body, operand: Instr) -> Instr:
    """The bits of each element as i1, low first, in a new last dimension."""
    width = operand.array.dtype.bits
    unsigned = BY_NAME[f"u{width}"]
    bits = b.bitcast_convert(operand, unsigned)
    dims = (*operand.array.dims, width)
    spread = b.broadcast(bits, dims, tuple(range(len(dims) - 1)))
    shifted = b.binary("shift-right-logical", spread, b.iota(unsigned, dims, len(dims) - 1))
    one = b.and_(shifted, b.like(shifted, 1))
    return b.compare(one, b.like(one, 0), "NE")


def _select(b: Body, op: Operation) -> Instr:
    predicate, on_true, on_false = take(b, op, 3)
    return b.select(b.spread(predicate, on_true), on_true, on_false)


def _clamp(b: Body, op: Operation) -> Instr:
    low, operand, high = take(b, op, 3)
    return b.clamp(b.spread(low, operand), operand, b.spread(high, operand))


def _reduce_precision(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    a = b.attributes()
    names = ("exponent_bits", "mantissa_bits")
    attrs: dict[str, object] = {name: a.integer(name) for name in names}
    return b.instruction("reduce-precision", (operand,), attrs)


def _map(b: Body, op: Operation) -> Instr:
    operands = b.operands()
    if len(op.regions) != 1:
        op.fail("want one region")
    dims = tuple(range(operands[0].array.rank)) if operands else ()
    body = b.embedded(op.regions[0], "map")
    declared = ArrayShape(b.result_array().dtype, operands[0].array.dims)
    return b.instruction("map", operands, {"dimensions": dims, "to_apply": body}, declared)


TABLE: dict[str, Lowering] = {
    **{f"stablehlo.{name}": lower for name, lower in namesakes(Trait.STABLEHLO).items()},
    "stablehlo.abs": _abs,
    "stablehlo.bitcast_convert": _bitcast_convert,
    "stablehlo.clamp": _clamp,
    "stablehlo.compare": _compare,
    "stablehlo.convert": _convert,
    "stablehlo.imag": _imag,
    "stablehlo.map": _map,
    "stablehlo.real": _real,
    "stablehlo.reduce_precision": _reduce_precision,
    "stablehlo.select": _select,
}
