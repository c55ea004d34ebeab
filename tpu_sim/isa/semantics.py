"""`Lanes`: the primitives that meanings are composed of.

A meaning never sees whole registers, NumPy or LLVM: it combines opaque lane values with these
methods. `tpu_sim.interp` implements them on NumPy arrays, `tpu_sim.jit` emits LLVM for one
16-lane chunk. The two must agree bit for bit, but for the sign and the payload of a NaN that float
arithmetic gives, which are the host's; no result is undefined.

A lane value `I` is 32 raw bits per lane; `F` is the same bits seen as IEEE f32; `B` is one bit
per lane (a vmask). Arithmetic is IEEE round-to-nearest-even, denormals kept, never contracted.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from tpu_sim.isa.instruction import Does

I = TypeVar("I")  # noqa: E741 - the letter of the field: integer lanes
F = TypeVar("F")
B = TypeVar("B")


class Lanes(Protocol[I, F, B]):
    """Primitives on lane values. Compare predicates are eq, ne, lt, le, gt, ge."""

    # constants and reinterpretation
    def const_i(self, value: int) -> I:
        """`value` modulo 2**32 in every lane."""

    def const_f(self, value: float) -> F:
        """`value` rounded to f32 in every lane."""

    def as_f(self, x: I) -> F:
        """The same bits as f32."""

    def as_i(self, x: F) -> I:
        """The same bits as an integer."""

    # f32 arithmetic
    def fadd(self, a: F, b: F) -> F:
        """a + b."""

    def fsub(self, a: F, b: F) -> F:
        """a - b."""

    def fmul(self, a: F, b: F) -> F:
        """a * b."""

    def fdiv(self, a: F, b: F) -> F:
        """a / b."""

    def fma(self, a: F, b: F, c: F) -> F:
        """a * b + c, rounded once."""

    def fsqrt(self, a: F) -> F:
        """The square root, correctly rounded."""

    def fmaximum(self, a: F, b: F) -> F:
        """IEEE maximum: NaN wins, +0 > -0."""

    def fminimum(self, a: F, b: F) -> F:
        """IEEE minimum: NaN wins, -0 < +0."""

    def ffloor(self, a: F) -> F:
        """Rounded down to an integral value."""

    def fceil(self, a: F) -> F:
        """Rounded up to an integral value."""

    def fround_even(self, a: F) -> F:
        """Rounded to the nearest integral value, ties to even."""

    def ftrunc(self, a: F) -> F:
        """Rounded toward zero to an integral value."""

    def f_to_s(self, a: F) -> I:
        """Signed integer, toward zero, saturating; NaN gives 0."""

    def f_to_u(self, a: F) -> I:
        """Unsigned integer, toward zero, saturating; NaN gives 0."""

    def s_to_f(self, a: I) -> F:
        """The nearest f32 of a signed integer."""

    def u_to_f(self, a: I) -> F:
        """The nearest f32 of an unsigned integer."""

    # i32 arithmetic, wrapping
    def iadd(self, a: I, b: I) -> I:
        """a + b modulo 2**32."""

    def isub(self, a: I, b: I) -> I:
        """a - b modulo 2**32."""

    def imul(self, a: I, b: I) -> I:
        """The low half of a * b."""

    def imulhi_u(self, a: I, b: I) -> I:
        """The high half of a * b, both unsigned."""

    def iand(self, a: I, b: I) -> I:
        """Bitwise and."""

    def ior(self, a: I, b: I) -> I:
        """Bitwise or."""

    def ixor(self, a: I, b: I) -> I:
        """Bitwise exclusive or."""

    def shl(self, a: I, b: I) -> I:
        """Shifted left; counts outside 0..31 give 0."""

    def lshr(self, a: I, b: I) -> I:
        """Shifted right with zeros; counts outside 0..31 give 0."""

    def ashr(self, a: I, b: I) -> I:
        """Shifted right with the sign; counts outside 0..31 give the sign."""

    def idiv_s(self, a: I, b: I) -> I:
        """Signed quotient toward zero: x/0 = -1, INT_MIN/-1 = INT_MIN."""

    def irem_s(self, a: I, b: I) -> I:
        """Signed remainder with the sign of a: x%0 = x, INT_MIN%-1 = 0."""

    def idiv_u(self, a: I, b: I) -> I:
        """Unsigned quotient: x/0 = all ones."""

    def irem_u(self, a: I, b: I) -> I:
        """Unsigned remainder: x%0 = x."""

    def imin_s(self, a: I, b: I) -> I:
        """The smaller as signed."""

    def imax_s(self, a: I, b: I) -> I:
        """The larger as signed."""

    def imin_u(self, a: I, b: I) -> I:
        """The smaller as unsigned."""

    def imax_u(self, a: I, b: I) -> I:
        """The larger as unsigned."""

    def clz(self, a: I) -> I:
        """Leading zero bits; clz(0) = 32."""

    def popcnt(self, a: I) -> I:
        """Bits that are 1."""

    # masks
    def fcmp(self, predicate: str, a: F, b: F) -> B:
        """Compare; ordered, but ne is true on NaN."""

    def icmp_s(self, predicate: str, a: I, b: I) -> B:
        """Compare as signed."""

    def icmp_u(self, predicate: str, a: I, b: I) -> B:
        """Compare as unsigned."""

    def select(self, mask: B, a: I, b: I) -> I:
        """a where the mask is set, else b."""

    def mand(self, a: B, b: B) -> B:
        """Both."""

    def mor(self, a: B, b: B) -> B:
        """Either."""

    def mxor(self, a: B, b: B) -> B:
        """One of them alone."""

    def mnot(self, a: B) -> B:
        """The opposite."""

    def mconst(self, value: bool) -> B:
        """The same bit in every lane."""

    # position and scalars
    def lane_index(self) -> I:
        """0..127 along a sublane."""

    def sublane_index(self) -> I:
        """0..7."""

    def splat(self, scalar: object) -> I:
        """An sreg's value in every lane."""

    def scalar_add(self, scalar: object, k: int) -> object:
        """An sreg's value plus an immediate."""

    # lane-crossing (LANES): result lane depends on its own sublane row only
    def lane_fold(self, x: I, op: str) -> I:
        """Halving tree over 128 lanes: x[l] op x[l+64], then +32, ..., +1; lane 0 goes to all lanes.
        `op` is a primitive's name taking two F (f*) or two I (i*); of F a NaN is canonical."""

    def lane_rotate(self, x: I, amount: object) -> I:
        """y[s,l] = x[s,(l - amount) mod 128]; `amount` a Python int or a scalar value."""

    def lane_broadcast(self, x: I, lane: object) -> I:
        """y[s,l] = x[s, lane mod 128]; `lane` a Python int or a scalar value."""

    def lane_permute(self, x: I, index: I) -> I:
        """y[s,l] = x[s, index[s,l] mod 128]."""

    # sublane-crossing (SUBLANES)
    def sublane_fold(self, x: I, op: str) -> I:
        """Halving tree over 8 sublanes: x[s] op x[s+4], then +2, +1; sublane 0 goes to all.
        Of F a NaN is canonical."""

    def sublane_rotate(self, x: I, amount: object) -> I:
        """y[s,l] = x[(s - amount) mod 8,l]."""

    def sublane_broadcast(self, x: I, sublane: object) -> I:
        """y[s,l] = x[sublane mod 8,l]."""

    def sublane_permute(self, x: I, index: I) -> I:
        """y[s,l] = x[index[s,l] mod 8, l]."""


def calls(method: str) -> Does:
    """What calls a primitive, or a method of `tpu_sim.isa.effects.CorePrimitives`, with plain operands."""
    return lambda m, *operands: getattr(m, method)(*operands)


def by_constant(primitive: str) -> Does:
    """A primitive of integers whose second operand is an immediate, the same in every lane."""
    return lambda m, a, k: getattr(m, primitive)(a, m.const_i(k))


def floats(primitive: str) -> Does:
    """A primitive of the operands as f32."""
    return lambda m, *operands: m.as_i(getattr(m, primitive)(*map(m.as_f, operands)))


def floats_by_constant(primitive: str) -> Does:
    """A primitive of f32 whose second operand is an immediate: f32 bits, the same in every lane."""
    return lambda m, a, k: m.as_i(getattr(m, primitive)(m.as_f(a), m.as_f(m.const_i(k))))


COMPARES = tuple(
    (dtype, predicate)
    for dtype in ("f32", "s32", "u32")
    for predicate in ("eq", "ne", "lt", "le", "gt", "ge")
)
"""The type and predicate of every compare, in the order of their opcodes."""


def compares(predicate: str, dtype: str) -> Does:
    """A mask of how two operands compare; floats ordered, but ne is true when either side is NaN."""
    if dtype == "f32":
        return lambda m, a, b: m.fcmp(predicate, m.as_f(a), m.as_f(b))
    primitive = f"icmp_{dtype[0]}"
    return lambda m, a, b: getattr(m, primitive)(predicate, a, b)
