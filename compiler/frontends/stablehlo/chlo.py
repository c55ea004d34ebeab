"""Client HLO (``chlo``): operations with broadcasting, special functions, top_k and the like.

Where HLO has an opcode (erf, tan, asinh, ...) that is used, as XLA does; the rest are formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.frontends.stablehlo.body import Body, Instr, Lowering
from compiler.frontends.stablehlo.contraction import precision_attrs
from compiler.frontends.stablehlo.dynamic import dynamic_reshape
from compiler.frontends.stablehlo.elementwise import binary, compare, namesakes, take
from compiler.frontends.stablehlo.movement import TABLE as MOVEMENT
from compiler.frontends.stablehlo.movement import broadcast_in_dim
from compiler.frontends.stablehlo.reduction import region_computation
from compiler.frontends.stablehlo.syntax import Operation
from compiler.hlo import special_functions
from compiler.hlo.expression import INFINITY, Expr
from compiler.hlo.opcodes import ELEMENTWISE_BINARY, Trait, with_trait
from compiler.hlo.shape import ArrayShape, is_compatible

NAMESAKES = namesakes(Trait.CHLO)
"""By their name without the dialect's."""
_BINARY = sorted(with_trait(Trait.STABLEHLO) & ELEMENTWISE_BINARY)


def _special(function: Callable[..., Expr], count: int) -> Lowering:
    """A formula of `count` operands of one shape, computed in f32 where they are narrower."""

    def lower(b: Body, op: Operation) -> Instr:
        return _apply(b, function, take(b, op, count))

    return lower


def _apply(b: Body, function: Callable[..., Expr], operands: Sequence[Instr]) -> Instr:
    dtype = operands[0].array.dtype
    if not dtype.is_float:
        b.op.fail(f"{dtype} operands are not supported; want a real floating-point type")
    if function is special_functions.next_after:
        return function(*(Expr(b, operand) for operand in operands)).instr
    wide = [special_functions.wide(Expr(b, operand)) for operand in operands]
    return function(*wide).convert(dtype).instr


def broadcast_together(b: Body, operands: Sequence[Instr]) -> list[Instr]:
    """Operands spread to their common shape, aligned at the last dimension as in NumPy.

    An attribute broadcast_dimensions says instead where the operand of lower rank goes.
    """
    ranks = [operand.array.rank for operand in operands]
    rank = max(ranks)
    a = b.attributes()
    given = a.ints("broadcast_dimensions") if a.has("broadcast_dimensions") else None
    places = [
        given if given is not None and r == len(given) < rank else tuple(range(rank - r, rank))
        for r in ranks
    ]
    if any(not 0 <= dim < rank for place in places for dim in place):
        b.op.fail(f"broadcast_dimensions {list(given or ())}: want dimensions below {rank}")
    sizes = [1] * rank
    for operand, place in zip(operands, places, strict=True):
        for dim, size in zip(place, operand.array.dims, strict=True):
            if 1 not in (size, sizes[dim]) and size != sizes[dim]:
                b.op.fail(f"operands do not broadcast: sizes {sizes[dim]} and {size} in {dim}")
            sizes[dim] = size if sizes[dim] == 1 else sizes[dim]
    return [
        broadcast_in_dim(b, operand, sizes, place)
        for operand, place in zip(operands, places, strict=True)
    ]


def _broadcast_binary(opcode: str) -> Lowering:
    def lower(b: Body, op: Operation) -> Instr:
        lhs, rhs = broadcast_together(b, take(b, op, 2))
        return b.binary(opcode, lhs, rhs)

    return lower


def _broadcast_special(function: Callable[..., Expr]) -> Lowering:
    def lower(b: Body, op: Operation) -> Instr:
        return _apply(b, function, broadcast_together(b, take(b, op, 2)))

    return lower


def _broadcast_compare(b: Body, op: Operation) -> Instr:
    lhs, rhs = broadcast_together(b, take(b, op, 2))
    a = b.attributes()
    return compare(b, lhs, rhs, a.word("comparison_direction"), a.word("compare_type", ""))


def _broadcast_select(b: Body, op: Operation) -> Instr:
    predicate, on_true, on_false = broadcast_together(b, take(b, op, 3))
    return b.select(predicate, on_true, on_false)


def _square(b: Body, op: Operation) -> Instr:
    """Of a complex number without the squares that overflow: (x - y)(x + y) + 2xyi."""
    (operand,) = take(b, op, 1)
    if not operand.array.dtype.is_complex:
        return b.multiply(operand, operand)
    x, y = b.unary("real", operand), b.unary("imag", operand)
    product = b.multiply(x, y)
    width, height = b.unary("abs", x), b.unary("abs", y)
    real = b.select(
        b.compare(width, height, "EQ"),
        b.subtract(width, height),  # 0, or NaN where both are infinite
        b.multiply(b.subtract(x, y), b.add(x, y)),
    )
    return b.binary("complex", real, b.add(product, product))


def _conj(b: Body, op: Operation) -> Instr:
    (x,) = take(b, op, 1)
    if not x.array.dtype.is_complex:
        return x
    return b.binary("complex", b.unary("real", x), b.negate(b.unary("imag", x)))


def _equals(value: float, *, of_size: bool = False) -> Lowering:
    """Whether each element is this value."""

    def lower(b: Body, op: Operation) -> Instr:
        (operand,) = take(b, op, 1)
        x = Expr(b, operand)
        return (abs(x) if of_size else x).equals(value).instr

    return lower


def _constant_like(b: Body, op: Operation) -> Instr:
    (operand,) = take(b, op, 1)
    dtype = b.result_array().dtype
    value = b.attributes().get("value")
    number = 0.0 if not isinstance(value, int | float) else value
    return b.spread(b.constant(dtype, number), operand)


def _top_k(b: Body, op: Operation) -> list[Instr]:
    """The k largest (or smallest) of the last dimension, and where they were."""
    (operand,) = take(b, op, 1)
    a = b.attributes()
    attrs: dict[str, object] = {"k": a.integer("k"), "largest": a.flag("largest", default=True)}
    return b.results_of(b.instruction("topk", (operand,), attrs), 2)


def _scan(b: Body, op: Operation) -> list[Instr]:
    """A loop over slices: operands are what is sliced, then what is carried."""
    operands = b.operands()
    a = b.attributes()
    body = region_computation(b, op, 0, "scan_body")
    taken = [parameter.shape for parameter in body.parameters]
    if len(taken) != len(operands):
        op.fail(f"the region takes {len(taken)} values, want {len(operands)}")
    carries = 0
    while carries < len(taken) and is_compatible(taken[~carries], operands[~carries].shape):
        carries += 1
    attrs: dict[str, object] = {"dimensions": (a.integer("dimension"),), "num_carries": carries}
    if a.flag("is_reverse"):
        attrs["is_reverse"] = True
    if a.has("is_associative"):
        attrs["is_associative"] = "true" if a.flag("is_associative") else "false"
    attrs["to_apply"] = body
    results = b.result_types()
    made = b.instruction("scan", operands, attrs, b.pack_types(results))
    return b.results_of(made, len(results))


def _ragged_dot(b: Body, op: Operation) -> Instr:
    operands = take(b, op, 3)
    numbers = b.attributes().record("ragged_dot_dimension_numbers")
    nested = numbers.record("dot_dimension_numbers")  # as mhlo has it
    dot = nested if nested.fields else numbers
    attrs: dict[str, object] = {}
    for side in ("lhs", "rhs"):
        if batch := dot.ints(f"{side}_batching_dimensions"):
            attrs[f"{side}_batch_dims"] = batch
        attrs[f"{side}_contracting_dims"] = dot.ints(f"{side}_contracting_dimensions")
    attrs["lhs_ragged_dims"] = numbers.ints("lhs_ragged_dimensions")
    attrs["rhs_group_dims"] = numbers.ints("rhs_group_dimensions")
    declared = ArrayShape(b.result_array().dtype, ())
    return b.instruction("ragged-dot", operands, attrs | precision_attrs(b), declared)


def ragged_dot_composite(b: Body, op: Operation) -> Instr:
    """``stablehlo.composite "chlo.ragged_dot"``: the decomposition that stands beside it multiplies all rows
    with every group."""
    operands = take(b, op, 3)
    inside = b.attributes().inside("composite_attributes")
    names = ("lhs_batch_dims", "rhs_batch_dims", "lhs_contracting_dims", "rhs_contracting_dims",
             "lhs_ragged_dims", "rhs_group_dims")  # fmt: skip
    numbers = inside.pairs("ragged_dot_dimension_numbers") or ()
    if len(numbers) != len(names):
        op.fail("chlo.ragged_dot: want six lists of ragged_dot_dimension_numbers")
    attrs: dict[str, object] = {n: v for n, v in zip(names, numbers, strict=True) if v}
    declared = ArrayShape(b.result_array().dtype, ())
    attrs |= precision_attrs(b, inside)
    return b.instruction("ragged-dot", operands, attrs, declared)


TABLE: dict[str, Lowering] = {
    **{f"chlo.{name}": lower for name, lower in NAMESAKES.items()},
    **{f"chlo.broadcast_{name.replace('-', '_')}": _broadcast_binary(name) for name in _BINARY},
    "chlo.bessel_i1e": _special(special_functions.bessel_i1e, 1),
    "chlo.broadcast_compare": _broadcast_compare,
    "chlo.broadcast_next_after": _broadcast_special(special_functions.next_after),
    "chlo.broadcast_polygamma": _broadcast_special(special_functions.polygamma),
    "chlo.broadcast_select": _broadcast_select,
    "chlo.broadcast_zeta": _broadcast_special(special_functions.zeta),
    "chlo.conj": _conj,
    "chlo.constant": MOVEMENT["stablehlo.constant"],
    "chlo.constant_like": _constant_like,
    "chlo.digamma": _special(special_functions.digamma, 1),
    "chlo.dynamic_reshape": dynamic_reshape,
    "chlo.erf_inv": _special(special_functions.erf_inv, 1),
    "chlo.erfc": _special(special_functions.erfc, 1),
    "chlo.is_inf": _equals(INFINITY, of_size=True),
    "chlo.is_neg_inf": _equals(-INFINITY),
    "chlo.is_pos_inf": _equals(INFINITY),
    "chlo.lgamma": _special(special_functions.lgamma, 1),
    "chlo.mulhi": binary("mulhi"),
    "chlo.next_after": _special(special_functions.next_after, 2),
    "chlo.polygamma": _special(special_functions.polygamma, 2),
    "chlo.ragged_dot": _ragged_dot,
    "chlo.scan": _scan,
    "chlo.square": _square,
    "chlo.top_k": _top_k,
    "chlo.topk": _top_k,
    "chlo.zeta": _special(special_functions.zeta, 2),
}
