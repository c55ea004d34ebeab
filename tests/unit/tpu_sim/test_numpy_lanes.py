"""The NumPy primitives against definitions in plain Python integers and fractions."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from tpu_sim.interp.numpy_lanes import NumpyLanes

U32 = npt.NDArray[np.uint32]

EDGES = [
    0, 1, 2, 31, 32, 33, 127, 128, 0x7FFFFF, 0x800000, 0x3F800000, 0xBF800000, 0x3F000000,
    0x4B000000, 0x4F000000, 0xCF000000, 0x4F800000, 0x7F7FFFFF, 0x7F800000, 0xFF800000,
    0x7FC00000, 0xFFC00001, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x00FFFFFF, 0x33800000,
]  # fmt: skip
RNG = np.random.default_rng(7)
WORDS = np.array(EDGES + RNG.integers(0, 2**32, 600, dtype=np.uint64).tolist(), np.uint32)
A = np.concatenate([WORDS, np.repeat(np.array(EDGES, np.uint32), len(EDGES))])
B = np.concatenate([RNG.permutation(WORDS), np.tile(np.array(EDGES, np.uint32), len(EDGES))])
C = np.roll(A, 101)
LANES = NumpyLanes(A.shape)


@pytest.fixture(autouse=True)
def _ieee_flags_are_not_errors() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def to_float(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def is_nan(bits: int) -> bool:
    return bits & 0x7FFFFFFF > 0x7F800000


def round_f32(value: Fraction, negative_zero: bool = False) -> int:
    """Bits of the f32 nearest to an exact value, ties to even."""
    if value == 0:
        return 0x80000000 if negative_zero else 0
    sign = 0x80000000 if value < 0 else 0
    value = abs(value)
    exponent = max(-126, math.floor(math.log2(value)) if value < 2**1000 else 1000)
    while value >= Fraction(2) ** (exponent + 1):
        exponent += 1
    while exponent > -126 and value < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (exponent - 23)
    steps = round(value / quantum)  # Python rounds half to even
    bits = steps + ((exponent + 126) << 23)  # the hidden bit carries into the exponent
    return sign | min(bits, 0x7F800000)


def check(got: U32, want: Callable[..., int], *sources: U32) -> None:
    columns = [source.tolist() for source in sources]
    for bits, *inputs in zip(got.tolist(), *columns, strict=True):
        expected = want(*inputs) & 0xFFFFFFFF
        if is_nan(expected) and is_nan(bits):
            continue
        assert bits == expected, [hex(word) for word in (bits, expected, *inputs)]


def is_finite(*bits: int) -> bool:
    return all(word & 0x7F800000 != 0x7F800000 for word in bits)


def test_fma_has_one_rounding() -> None:
    finite = np.array([is_finite(a, b, c) for a, b, c in zip(A, B, C, strict=True)])
    a, b, c = A[finite], B[finite], C[finite]

    def fma(x: int, y: int, z: int) -> int:
        exact = Fraction(to_float(x)) * Fraction(to_float(y)) + Fraction(to_float(z))
        zero_product = to_float(x) * to_float(y) == 0 and 0.0 in (to_float(x), to_float(y))
        product_negative = bool((x ^ y) >> 31)
        both_negative = product_negative and bool(z >> 31)
        if exact == 0 and not zero_product:
            return 0x80000000 if both_negative else 0
        return round_f32(exact, negative_zero=both_negative)

    got = LANES.as_i(LANES.fma(*(LANES.as_f(x) for x in (a, b, c))))
    check(got, fma, a, b, c)


def test_fma_near_cancellation_and_denormals() -> None:
    rng = np.random.default_rng(3)
    scale = 2.0 ** rng.integers(-75, -55, 3000)
    a = (rng.standard_normal(3000) * scale).astype(np.float32)
    b = (rng.standard_normal(3000) * scale).astype(np.float32)
    c = (-(a * b) * (1 + 2.0**-22)).astype(np.float32)
    got = LANES.as_i(LANES.fma(a, b, c))
    check(
        got,
        lambda x, y, z: round_f32(
            Fraction(to_float(x)) * Fraction(to_float(y)) + Fraction(to_float(z))
        ),
        *(array.view(np.uint32) for array in (a, b, c)),
    )


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("fadd", lambda x, y: x + y), ("fsub", lambda x, y: x - y), ("fmul", lambda x, y: x * y),
        ("fdiv", lambda x, y: x / y),
    ],
)  # fmt: skip
def test_float_arithmetic_is_correctly_rounded(
    name: str, operation: Callable[[Fraction, Fraction], Fraction]
) -> None:
    pairs = zip(A.tolist(), B.tolist(), strict=True)
    usable = np.array([is_finite(a, b) for a, b in pairs], bool)
    usable &= (A & 0x7FFFFFFF != 0) & (B & 0x7FFFFFFF != 0)
    a, b = A[usable], B[usable]

    def want(x: int, y: int) -> int:
        exact = operation(Fraction(to_float(x)), Fraction(to_float(y)))
        return round_f32(exact) if exact or name in ("fadd", "fsub") else 0

    check(LANES.as_i(getattr(LANES, name)(LANES.as_f(a), LANES.as_f(b))), want, a, b)


def extreme(x: int, y: int, largest: bool) -> int:
    if is_nan(x) or is_nan(y):
        return 0x7FC00000
    order = [(to_float(word), 0 if word >> 31 else 1, word) for word in (x, y)]
    return (max(order) if largest else min(order))[2]


def test_maximum_and_minimum_follow_ieee_2019() -> None:
    a, b = LANES.as_f(A), LANES.as_f(B)
    check(LANES.as_i(LANES.fmaximum(a, b)), lambda x, y: extreme(x, y, True), A, B)
    check(LANES.as_i(LANES.fminimum(a, b)), lambda x, y: extreme(x, y, False), A, B)


def truncate(x: int) -> int:
    value = to_float(x)
    if math.isnan(value):
        return 0
    return math.trunc(value) if math.isfinite(value) else (1 << 40) * (1 if value > 0 else -1)


def test_conversions_saturate() -> None:
    a = LANES.as_f(A)
    check(LANES.f_to_s(a), lambda x: min(max(truncate(x), -(2**31)), 2**31 - 1), A)
    check(LANES.f_to_u(a), lambda x: min(max(truncate(x), 0), 2**32 - 1), A)
    check(LANES.as_i(LANES.s_to_f(A)), lambda x: round_f32(Fraction(signed(x))), A)
    check(LANES.as_i(LANES.u_to_f(A)), lambda x: round_f32(Fraction(x)), A)


def test_rounding_to_integers_keeps_the_sign_of_zero() -> None:
    finite = A[np.array([is_finite(a) for a in A.tolist()])]
    x = LANES.as_f(finite)
    for name, rule in (
        ("ffloor", math.floor), ("fceil", math.ceil), ("ftrunc", math.trunc),
        ("fround_even", round),
    ):  # fmt: skip

        def want(bits: int, rule: Callable[[Fraction], int] = rule) -> int:
            return round_f32(Fraction(rule(Fraction(to_float(bits)))), bool(bits >> 31))

        check(LANES.as_i(getattr(LANES, name)(x)), want, finite)


def quotient(x: int, y: int) -> int:
    return -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def remainder(x: int, y: int) -> int:
    return x if y == 0 else abs(x) % abs(y) * (-1 if x < 0 else 1)


INTEGER: dict[str, Callable[[int, int], int]] = {
    "iadd": lambda x, y: x + y,
    "isub": lambda x, y: x - y,
    "imul": lambda x, y: x * y,
    "imulhi_u": lambda x, y: x * y >> 32,
    "iand": lambda x, y: x & y,
    "ior": lambda x, y: x | y,
    "ixor": lambda x, y: x ^ y,
    "shl": lambda x, y: x << y if y < 32 else 0,
    "lshr": lambda x, y: x >> y if y < 32 else 0,
    "ashr": lambda x, y: signed(x) >> min(y, 31),
    "idiv_s": lambda x, y: quotient(signed(x), signed(y)),
    "irem_s": lambda x, y: remainder(signed(x), signed(y)),
    "idiv_u": lambda x, y: x // y if y else -1,
    "irem_u": lambda x, y: x % y if y else x,
    "imin_s": lambda x, y: min(signed(x), signed(y)),
    "imax_s": lambda x, y: max(signed(x), signed(y)),
    "imin_u": min,
    "imax_u": max,
}


@pytest.mark.parametrize("name", INTEGER)
def test_integer_primitives(name: str) -> None:
    check(getattr(LANES, name)(A, B), INTEGER[name], A, B)


def test_bit_counts() -> None:
    check(LANES.clz(A), lambda x: 32 - x.bit_length(), A)
    check(LANES.popcnt(A), lambda x: x.bit_count(), A)


COMPARES: dict[str, Callable[[float, float], bool]] = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y, "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
}  # fmt: skip


@pytest.mark.parametrize("predicate", COMPARES)
def test_compares(predicate: str) -> None:
    rule = COMPARES[predicate]
    one, zero = LANES.const_i(1), LANES.const_i(0)
    for got, convert in (
        (LANES.fcmp(predicate, LANES.as_f(A), LANES.as_f(B)), to_float),
        (LANES.icmp_s(predicate, A, B), signed),
        (LANES.icmp_u(predicate, A, B), int),
    ):

        def want(x: int, y: int, convert: Callable[[int], float] = convert) -> int:
            return int(rule(convert(x), convert(y)))

        check(LANES.select(got, one, zero), want, A, B)


VECTOR = NumpyLanes((8, 128))
X = RNG.integers(0, 2**32, (8, 128), dtype=np.uint64).astype(np.uint32)


def test_masks_and_constants() -> None:
    a, b = X % 2 == 0, X % 3 == 0
    for name, rule in (
        ("mand", lambda p, q: p and q), ("mor", lambda p, q: p or q), ("mxor", lambda p, q: p != q),
    ):  # fmt: skip
        got = getattr(VECTOR, name)(a, b)
        assert got.tolist() == [
            [rule(p, q) for p, q in zip(r, s, strict=True)]
            for r, s in zip(a.tolist(), b.tolist(), strict=True)
        ]
    assert not (VECTOR.mnot(a) & a).any() and VECTOR.mconst(True).all()
    assert (VECTOR.const_i(-1) == 0xFFFFFFFF).all() and (VECTOR.const_f(1.5) == 1.5).all()


def test_positions_and_scalars() -> None:
    assert VECTOR.lane_index()[3, 77] == 77 and VECTOR.sublane_index()[3, 77] == 3
    scalar = np.array([0xFFFFFFFE], np.uint32)
    assert (VECTOR.splat(scalar) == 0xFFFFFFFE).all()
    assert VECTOR.scalar_add(scalar, 5).tolist() == [3]
    assert VECTOR.scalar_add(scalar, -5).tolist() == [0xFFFFFFF9]


def test_lane_moves() -> None:
    index = (X >> np.uint32(3)).astype(np.uint32)
    for s in (0, 5):
        for lane in (0, 1, 63, 127):
            assert VECTOR.lane_rotate(X, 5)[s, lane] == X[s, (lane - 5) % 128]
            assert (
                VECTOR.lane_rotate(X, np.array([0xFFFFFFFF], np.uint32))[s, lane]
                == X[s, (lane + 1) % 128]
            )
            assert VECTOR.lane_broadcast(X, 130)[s, lane] == X[s, 2]
            assert VECTOR.lane_permute(X, index)[s, lane] == X[s, int(index[s, lane]) % 128]


def test_sublane_moves() -> None:
    index = (X >> np.uint32(3)).astype(np.uint32)
    for s in range(8):
        for lane in (0, 127):
            assert VECTOR.sublane_rotate(X, 3)[s, lane] == X[(s - 3) % 8, lane]
            assert VECTOR.sublane_broadcast(X, 9)[s, lane] == X[1, lane]
            assert VECTOR.sublane_permute(X, index)[s, lane] == X[int(index[s, lane]) % 8, lane]


def tree(values: list[int], rule: Callable[[int, int], int]) -> int:
    while len(values) > 1:
        half = len(values) // 2
        values = [rule(values[i], values[i + half]) for i in range(half)]
    return values[0]


def test_folds_are_halving_trees() -> None:
    small = (X >> np.uint32(9) | np.uint32(0x3F800000)).astype(np.uint32)  # floats in [1, 2)

    def add(x: int, y: int) -> int:
        return round_f32(Fraction(to_float(x)) + Fraction(to_float(y)))

    lanes = VECTOR.lane_fold(small, "fadd")
    sublanes = VECTOR.sublane_fold(small, "fadd")
    for s in range(8):
        assert set(lanes[s].tolist()) == {tree(small[s].tolist(), add)}
    for lane in range(0, 128, 17):
        assert set(sublanes[:, lane].tolist()) == {tree(small[:, lane].tolist(), add)}
    assert VECTOR.lane_fold(X, "ixor")[4, 9] == tree(X[4].tolist(), lambda x, y: x ^ y)
