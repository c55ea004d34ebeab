"""Reductions, windows, sorts, random bits and linear algebra."""

from __future__ import annotations

from collections.abc import Sequence

from compiler.frontends.stablehlo.attributes import Attributes
from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.elementwise import TABLE as ELEMENTWISE
from compiler.frontends.stablehlo.elementwise import take
from compiler.frontends.stablehlo.syntax import Operation
from compiler.hlo.attributes import Window, WindowDim
from compiler.hlo.dtypes import DType
from compiler.hlo.ir import HloComputation
from compiler.hlo.shape import ArrayShape, TupleShape

_RNG_ALGORITHMS = {
    "DEFAULT": "rng_default",
    "THREE_FRY": "rng_three_fry",
    "PHILOX": "rng_philox",
}


def region_computation(b: Body, op: Operation, index: int, name: str) -> HloComputation:
    """The computation of one of the operation's regions."""
    if index >= len(op.regions):
        op.fail(f"want {index + 1} regions, found {len(op.regions)}")
    return b.embedded(op.regions[index], name)


def promoted(b: Body, operands: Sequence[Instr], types: Sequence[DType]) -> list[Instr]:
    """Operands in the types that a computation takes, which StableHLO lets be wider."""
    pairs = zip(operands, types, strict=True)
    return [o if o.array.dtype is t else b.convert(o, t) for o, t in pairs]


def _reducer(b: Body, op: Operation, inits: list[Instr]) -> HloComputation:
    applies = op.attributes.get("applies")
    if not isinstance(applies, str):
        return region_computation(b, op, 0, "reducer")
    opcode = applies.partition(".")[2]
    if applies not in ELEMENTWISE or len(inits) != 1:
        op.fail(f"applies {applies}: want an elementwise operation on one operand")
    return b.scalar(opcode, inits[0].array.dtype)


def _reduce(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    count = len(operands) // 2
    inits = operands[count:]
    to_apply = _reducer(b, op, inits)
    reduced = b.reduce(operands[:count], inits, b.attributes().ints("dimensions"), to_apply)
    return b.results_of(reduced, count)


def _window(b: Body, a: Attributes, base: str, dilation: str) -> Window:
    sizes = a.ints("window_dimensions")
    ones = (1,) * len(sizes)
    rows = zip(
        sizes,
        a.ints("window_strides", ones),
        a.pairs("padding") or ((0, 0),) * len(sizes),
        a.ints(base, ones),
        a.ints(dilation, ones),
        strict=False,
    )
    dims = tuple(WindowDim(n, s, p[0], p[1], lhs, rhs) for n, s, p, lhs, rhs in rows)
    if len(dims) != len(sizes):
        b.op.fail(f"strides, padding and dilations must have {len(sizes)} entries")
    return Window(dims)


def _reduce_window(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    window = _window(b, b.attributes(), "base_dilations", "window_dilations")
    attrs: dict[str, object] = {
        "window": window,
        "to_apply": region_computation(b, op, 0, "reducer"),
    }
    return b.results_of(b.instruction("reduce-window", operands, attrs), len(operands) // 2)


def _select_and_scatter(b: Body, op: Operation) -> Instr:
    operand, source, start = take(b, op, 3)
    select = region_computation(b, op, 0, "select")
    scatter = region_computation(b, op, 1, "scatter")
    wide = scatter.parameters[0].array.dtype
    if wide is not operand.array.dtype and select.parameters[0].array.dtype is not wide:
        op.fail(f"values are selected as {operand.array.dtype} and added as {wide}; convert them")
    attrs: dict[str, object] = {
        "window": _window(b, b.attributes(), "base_dilations", "window_dilations"),
        "select": select,
        "scatter": scatter,
    }
    operands = promoted(b, (operand, source, start), (wide,) * 3)
    return b.instruction("select-and-scatter", operands, attrs)


def _sort(b: Body, op: Operation) -> list[Instr]:
    operands = b.operands()
    a = b.attributes()
    dimension = a.integer("dimension", -1) % max(1, operands[0].array.rank)
    comparator = region_computation(b, op, 0, "comparator")
    ordered = b.sort(operands, dimension, comparator, stable=a.flag("is_stable"))
    return b.results_of(ordered, len(operands))


def _fft(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    a = b.attributes()
    attrs: dict[str, object] = {"fft_type": a.word("fft_type"), "fft_length": a.ints("fft_length")}
    return b.instruction("fft", (operand,), attrs)


def _cholesky(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    attrs: dict[str, object] = {"lower": True} if b.attributes().flag("lower") else {}
    return b.instruction("cholesky", (operand,), attrs)


def _triangular_solve(b: Body, op: Operation) -> Instr:
    operands = take(b, op, 2)
    a = b.attributes()
    names = ("left_side", "lower", "unit_diagonal")
    attrs: dict[str, object] = {name: True for name in names if a.flag(name)}
    attrs["transpose_a"] = a.word("transpose_a", "NO_TRANSPOSE")
    return b.instruction("triangular-solve", operands, attrs)


def _rng(b: Body, op: Operation) -> Instr:
    low, high, shape = take(b, op, 3)
    dims = b.constant_ints(shape, "the shape")
    declared = ArrayShape(b.result_array().dtype, dims)
    distribution = b.attributes().word("rng_distribution").lower()
    return b.instruction("rng", (low, high), {"distribution": f"rng_{distribution}"}, declared)


def _rng_bit_generator(b: Body, op: Operation) -> list[Instr]:
    (state,) = take(b, op, 1)
    algorithm = _RNG_ALGORITHMS.get(b.attributes().word("rng_algorithm"))
    if algorithm is None:
        op.fail(f"want rng_algorithm = {', '.join(_RNG_ALGORITHMS)}")
    declared = TupleShape(b.result_types())
    made = b.instruction("rng-bit-generator", (state,), {"algorithm": algorithm}, declared)
    return b.results_of(made, 2)


TABLE: dict[str, Lowering] = {
    "stablehlo.cholesky": _cholesky,
    "stablehlo.fft": _fft,
    "stablehlo.reduce": _reduce,
    "stablehlo.reduce_window": _reduce_window,
    "stablehlo.rng": _rng,
    "stablehlo.rng_bit_generator": _rng_bit_generator,
    "stablehlo.select_and_scatter": _select_and_scatter,
    "stablehlo.sort": _sort,
    "stablehlo.triangular_solve": _triangular_solve,
}
