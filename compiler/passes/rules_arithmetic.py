"""Laws of arithmetic that hold bit for bit (any NaN equals any NaN) but for the freedom a rule states.
Right sides are cheaper."""

from __future__ import annotations

import math

from compiler.analysis.value_range import value_range
from compiler.hlo.dtypes import DType, integer_limits
from compiler.hlo.ir import HloInstruction
from compiler.hlo.representability import converts_as_one
from compiler.rewrite import make
from compiler.rewrite.graph import emit
from compiler.rewrite.pattern import Match, Op, Splat, X, Y, splat_value
from compiler.rewrite.rewriter import Freedom, rule

_REFLEXIVE = frozenset({"EQ", "LE", "GE"})


def _is_integral(dtype: DType) -> bool:
    return dtype.is_integer or dtype.kind == "pred"


# x + -0.0 == x; with +0.0, -0.0 would become 0.0
@rule("add-negative-zero", Op("add", X, Splat(-0.0)))
def add_negative_zero(_: HloInstruction, m: Match) -> HloInstruction | None:
    """Adding negative zero changes no float."""
    return m["x"]


# x + 0 == x - 0 == x for integers; x - 0.0 == x for floats as well
@rule("add-integer-zero", Op("add", X, Splat(0)))
def add_integer_zero(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Adding integer zero changes nothing."""
    return m["x"] if instr.array.dtype.is_integer else None


@rule("subtract-zero", Op("subtract", X, Splat(0.0)))
def subtract_zero(_: HloInstruction, m: Match) -> HloInstruction | None:
    """Subtracting positive zero changes nothing."""
    return m["x"]


# x * 1 == x / 1 == x
@rule("multiply-one", Op("multiply", X, Splat(1)), Freedom.COMPLEX_PARTS)
def multiply_one(_: HloInstruction, m: Match) -> HloInstruction | None:
    """Multiplying by one."""
    return m["x"]


@rule("divide-one", Op("divide", X, Splat(1)), Freedom.COMPLEX_PARTS)
def divide_one(_: HloInstruction, m: Match) -> HloInstruction | None:
    """Dividing by one."""
    return m["x"]


# x * 0 == 0 for integers (a float x may be NaN, infinite or negative)
@rule("multiply-integer-zero", Op("multiply", X, Splat(0)))
def multiply_integer_zero(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Multiplying an integer by zero."""
    return make.splat(instr, instr.array, 0) if instr.array.dtype.is_integer else None


# x - x == 0 for integers
@rule("subtract-self", Op("subtract", X, X))
def subtract_self(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """An integer minus itself."""
    return make.splat(instr, instr.array, 0) if instr.array.dtype.is_integer else None


# x / 2^k == x * 2^-k, exactly, when both are normal numbers
@rule("divide-power-of-two", Op("divide", X, Splat(name="c")))
def divide_power_of_two(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Multiply by the reciprocal of a power of two."""
    value = splat_value(m["c"])
    if value is None or not instr.array.dtype.is_float:
        return None
    mantissa, exponent = math.frexp(float(value))
    if abs(mantissa) != 0.5 or not -60 < exponent < 60 or instr.array.dtype.bits < 16:
        return None
    if instr.array.dtype.name == "f16" and not -12 < exponent < 12:
        return None
    reciprocal = make.splat(instr, instr.array, 1.0 / float(value))
    return emit(instr, "multiply", instr.array, (m["x"], reciprocal))


# x ** 1 == x, x ** 2 == x * x
@rule("power-of-small-integer", Op("power", X, Splat(name="c")))
def power_of_small_integer(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A first or second power."""
    value = splat_value(m["c"])
    if value is None or not instr.array.dtype.is_float or float(value) not in (1.0, 2.0):
        return None
    if float(value) == 1.0:
        return m["x"]
    return emit(instr, "multiply", instr.array, (m["x"], m["x"]))


# max(x, -inf) == x and min(x, inf) == x: both hand a NaN on
@rule("maximum-of-least", Op(("maximum", "minimum"), X, Splat(name="c")))
def maximum_of_least(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A maximum with the least value, or a minimum with the greatest."""
    value, dtype = splat_value(m["c"]), instr.array.dtype
    if value is None or dtype.is_complex:
        return None
    sign = -1 if instr.opcode == "maximum" else 1
    if dtype.is_float:
        return m["x"] if float(value) == sign * math.inf else None
    if dtype.kind == "pred":
        return m["x"] if bool(value) == (sign > 0) else None
    low, high = integer_limits(dtype)
    return m["x"] if int(value) == (high if sign > 0 else low) else None


# max(x, x) == min(x, x) == x & x == x | x == x
@rule("idempotent", Op(("maximum", "minimum", "and", "or"), X, X))
def idempotent(_: HloInstruction, m: Match) -> HloInstruction | None:
    """An idempotent operation on the same operand twice."""
    return m["x"]


# x & true == x, x | false == x
@rule("and-true", Op("and", X, Splat(True)))
def and_true(_: HloInstruction, m: Match) -> HloInstruction | None:
    """And with true."""
    return m["x"]


@rule("or-false", Op("or", X, Splat(False)))
def or_false(_: HloInstruction, m: Match) -> HloInstruction | None:
    """Or with false."""
    return m["x"]


# x & false == false, x | true == true
@rule("and-false", Op("and", X, Splat(False)))
def and_false(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """And with false."""
    return make.splat(instr, instr.array, value=False)


@rule("or-true", Op("or", X, Splat(True)))
def or_true(instr: HloInstruction, _: Match) -> HloInstruction | None:
    """Or with true."""
    return make.splat(instr, instr.array, value=True)


# not not x == x, -(-x) == x
@rule("involution", Op(("not", "negate"), Op(("not", "negate"), X, name="inner")))
def involution(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Undoing a not or a negate."""
    return m["x"] if m["inner"].opcode == instr.opcode else None


# x + -y == x - y, x - -y == x + y
@rule("add-negate", Op("add", X, Op("negate", Y)))
def add_negate(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Adding a negated value subtracts it."""
    return emit(instr, "subtract", instr.array, (m["x"], m["y"]))


@rule("subtract-negate", Op("subtract", X, Op("negate", Y)))
def subtract_negate(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Subtracting a negated value adds it."""
    return emit(instr, "add", instr.array, (m["x"], m["y"]))


# select(true, x, y) == x, select(false, x, y) == y
@rule("select-constant", Op("select", Splat(name="c"), X, Y))
def select_constant(_: HloInstruction, m: Match) -> HloInstruction | None:
    """A select whose predicate is known."""
    value = splat_value(m["c"])
    return m["x"] if value is not None and bool(value) else m["y"]


# select(p, x, x) == x
@rule("select-same", Op("select", Y, X, X))
def select_same(_: HloInstruction, m: Match) -> HloInstruction | None:
    """A select between equals."""
    return m["x"]


# select(p, true, false) == p
@rule("select-true-false", Op("select", X, Splat(True), Splat(False)))
def select_true_false(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A select between true and false is its predicate."""
    return m["x"] if m["x"].array.dims == instr.array.dims else None


# x == x, x <= x, x >= x hold for integers; x != x, x < x, x > x do not
@rule("compare-self", Op("compare", X, X))
def compare_self(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """An integer compared with itself."""
    if not _is_integral(m["x"].array.dtype):
        return None
    return make.splat(instr, instr.array, instr.direction in _REFLEXIVE)


# an unsigned x, or iota, is never below 0
@rule("compare-non-negative", Op("compare", X, Splat(name="c")))
def compare_non_negative(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """A comparison with a bound that a non-negative value always or never passes."""
    value, direction = splat_value(m["c"]), instr.direction
    least_and_most = value_range(m["x"]) if instr.operands[0] is m["x"] else None
    if value is None or least_and_most is None:
        return None
    least, most = least_and_most
    bound = int(value)
    match direction:
        case "LT" | "GE":
            is_always = most < bound if direction == "LT" else least >= bound
            is_never = least >= bound if direction == "LT" else most < bound
        case "LE" | "GT":
            is_always = most <= bound if direction == "LE" else least > bound
            is_never = least > bound if direction == "LE" else most <= bound
        case _:
            is_outside = bound < least or most < bound
            is_always, is_never = (is_outside and direction == d for d in ("NE", "EQ"))
    if not is_always and not is_never:
        return None
    return make.splat(instr, instr.array, is_always)


# sign(x) is 1 for x > 0, -1 for x < 0
@rule("sign-of-bounded", Op("sign", X), examples=(Op("sign", Splat()),))
def sign_of_bounded(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """The sign of an integer that has only one."""
    bounds = value_range(m["x"])
    if bounds is None:
        return None
    signs = {(bound > 0) - (bound < 0) for bound in bounds}
    return make.splat(instr, instr.array, signs.pop()) if len(signs) == 1 else None


# sign(x) != 1 and remainder(x, c) != 0 is false for x >= 0: the former says that x is 0
@rule(
    "remainder-of-zero",
    Op(
        "and",
        Op("compare", Op("sign", X), Splat(1), name="sign"),
        Op("compare", Op("remainder", X, Splat(name="c")), Splat(0), name="rest"),
    ),
)
def remainder_of_zero(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Whether a quotient is rounded up, as a division that rounds down asks, which one of natural numbers is
    not."""
    bounds, divisor = value_range(m["x"]), splat_value(m["c"])
    if bounds is None or bounds[0] < 0 or divisor is None or int(divisor) <= 0:
        return None
    is_as_said = all(m[name].direction == "NE" for name in ("sign", "rest"))
    if not is_as_said or m["sign"].operands[0].opcode != "sign":
        return None
    if m["rest"].operands[0].opcode != "remainder":
        return None
    return make.splat(instr, instr.array, False)


# convert(convert(x: a -> b): b -> c) == convert(x: a -> c) for the types where that is so
@rule("convert-of-convert", Op("convert", Op("convert", X, name="inner")))
def convert_of_convert(instr: HloInstruction, m: Match) -> HloInstruction | None:
    """Skip a conversion in the middle that the last one does not notice."""
    types = (m["x"].array.dtype, m["inner"].array.dtype, instr.array.dtype)
    if not converts_as_one(*types):
        return None
    return make.convert(m["x"], instr.array.dtype)


# clamp(-inf.., x, ..inf) with constant bounds that hold every value of x
@rule("clamp-in-range", Op("clamp", Splat(name="low"), X, Splat(name="high")))
def clamp_in_range(_: HloInstruction, m: Match) -> HloInstruction | None:
    """A clamp of a value already known to lie inside."""
    bounds, low, high = value_range(m["x"]), splat_value(m["low"]), splat_value(m["high"])
    if bounds is None or low is None or high is None:
        return None
    return m["x"] if int(low) <= bounds[0] and bounds[1] <= int(high) else None
