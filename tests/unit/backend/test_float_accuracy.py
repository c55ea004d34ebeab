"""f32 functions of the vector unit against extended precision: at most 3 ulp, whatever the argument.

The inputs are log-uniform over all exponents, dense where a function cancels or overflows, and
special values; results of denormal size count in units of the smallest normal number's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tests.support.vector_runs import Run

F32 = npt.NDArray[np.float32]
Wide = npt.NDArray[np.longdouble]
SHAPE = (48, 128)
SPECIALS = np.array(
    [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 0.5, -0.5, 3, -3, 1e-45, -1e-45, 1e-40, 1e-38,
     -1e-38, 3.4e38, -3.4e38, 88.7, 88.73, 89.3, -87.5, -103.9, -104.5, 1.0000001, 0.99999994, 1e-20],
    np.float32,
)  # fmt: skip


def arguments(seed: int) -> F32:
    """[48, 128]: every size and sign; around 1; up to 100; special values."""
    rng = np.random.default_rng(seed)
    exponents = rng.integers(-149, 128, (16, 128))
    wide = np.ldexp(rng.uniform(1, 2, (16, 128)), exponents)
    near_one = 1 + np.ldexp(rng.uniform(-1, 1, (8, 128)), rng.integers(-24, 0, (8, 128)))
    common = rng.standard_normal((16, 128)) * 4.0 ** rng.integers(-3, 3, (16, 128))
    dense = rng.uniform(-110, 110, (8, 128))
    data = np.concatenate([wide, near_one, common, dense]) * rng.choice([-1, 1], SHAPE)
    result = data.astype(np.float32)
    result[-1, : len(SPECIALS)] = SPECIALS
    return result


def units(got: F32, want: Wide) -> npt.NDArray[np.float64]:
    """Errors in units in the last place of the exact values; 0 where the nearest f32 was found.

    A zero of the other sign is infinitely wrong where the result is no underflow.
    """
    with np.errstate(all="ignore"):
        nearest = want.astype(np.float32)
        exponent = np.floor(np.log2(np.maximum(np.abs(want), np.longdouble(2.0**-126))))
        error = np.abs(got.astype(np.longdouble) - want) / np.exp2(exponent - 23)
    same = (got == nearest) | (np.isnan(got) & np.isnan(want))
    with np.errstate(all="ignore"):
        is_other_zero = (got == 0) & (want == 0) & (np.signbit(got) != np.signbit(want))
    same &= ~is_other_zero
    error = np.where(is_other_zero, np.inf, error)
    return np.where(same, 0.0, np.where(np.isfinite(error), error, np.inf)).astype(np.float64)


def logistic(x: Wide) -> Wide:
    return 1 / (1 + np.exp(-x))


def rsqrt(x: Wide) -> Wide:
    return 1 / np.sqrt(x)


def erf(x: Wide) -> Wide:
    return np.vectorize(math.erf, otypes=[np.longdouble])(x)


UNARY: dict[str, Callable[[Wide], Wide]] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh,
    "atan": np.arctan, "atanh": np.arctanh, "cbrt": np.cbrt, "cosh": np.cosh, "cosine": np.cos,
    "erf": erf, "exponential": np.exp, "exponential-minus-one": np.expm1, "log": np.log,
    "log-plus-one": np.log1p, "logistic": logistic, "rsqrt": rsqrt, "sine": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh,
}  # fmt: skip


def check(opcode: str, function: Callable[..., Wide], args: list[F32], limit: float) -> None:
    names = ", ".join(f"p{k}" for k in range(len(args)))
    check_code([f"ROOT r = f32[48,128] {opcode}({names})"], function, args, limit)


def check_code(
    code: list[str], function: Callable[..., Wide], args: list[F32], limit: float
) -> None:
    lines = [f"p{k} = f32[48,128] parameter({k})" for k in range(len(args))]
    text = "\n".join([*lines, *code])
    with np.errstate(all="ignore"):
        got = np.asarray(Run(text, args).results[0], np.float32)
        want = function(*(a.astype(np.longdouble) for a in args))
    error = units(got, want)
    worst = np.unravel_index(int(np.argmax(error)), SHAPE)
    found = [a[worst] for a in args], got[worst], want[worst]
    assert error[worst] <= limit, (error[worst], found)


@pytest.mark.parametrize("opcode", UNARY)
def test_unary_functions_are_within_3_ulp(opcode: str) -> None:
    check(opcode, UNARY[opcode], [arguments(11)], 3)


def test_exponentials_of_what_is_never_positive_are_within_3_ulp() -> None:
    """Which have code of their own."""
    code = ["a = f32[48,128] abs(p0)", "n = f32[48,128] negate(a)"]
    code.append("ROOT r = f32[48,128] exponential(n)")
    check_code(code, lambda x: np.exp(-np.abs(x)), [arguments(18)], 3)


def test_quotients_that_are_only_rounded_are_the_nearest_of_bf16() -> None:
    """But next to the middle of two: exact quotients stay what they are, special values as well."""
    rng = np.random.default_rng(19)
    sizes = [np.ldexp(rng.uniform(1, 2, SHAPE), rng.integers(-60, 60, SHAPE)) for _ in range(2)]
    a, b = (x.astype(np.float32) * rng.choice([-1, 1], SHAPE).astype(np.float32) for x in sizes)
    a[:8] = b[:8] * np.float32(3)
    specials = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -2], np.float32)
    a[8, :49], b[8, :49] = np.repeat(specials, 7), np.tile(specials, 7)
    code = ["q = f32[48,128] divide(p0, p1)", "h = bf16[48,128] convert(q)"]
    code.append("ROOT r = f32[48,128] convert(h)")
    lines = ["p0 = f32[48,128] parameter(0)", "p1 = f32[48,128] parameter(1)"]
    got = np.asarray(Run("\n".join([*lines, *code]), [a, b]).results[0], np.float32)
    with np.errstate(all="ignore"):
        exact = a.astype(np.longdouble) / b
        want = exact.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert (got[:8] == 3).all()
    assert np.array_equal(got[8, :49], want[8, :49], equal_nan=True)
    assert np.mean(got == want) > 0.98  # NaNs are among the others
    error = np.abs(got[9:] - exact[9:])
    assert (error <= np.abs(exact[9:]) * (2.0**-8 + 2.0**-22)).all()


def test_power_is_within_3_ulp_up_to_its_limits() -> None:
    rng = np.random.default_rng(5)
    base = np.abs(arguments(12))
    with np.errstate(all="ignore"):
        size = np.log2(base.astype(np.float64))
    size = np.where(np.isfinite(size) & (size != 0), size, 1.0)
    exponent = (rng.uniform(-126, 127.9, SHAPE) / size).astype(np.float32)
    check("power", np.power, [base, exponent], 3)


def test_atan2_of_any_two_numbers() -> None:
    rng = np.random.default_rng(6)
    y = arguments(13)
    near = y * np.float32(0.3)
    x = np.where(rng.random(SHAPE) < 0.5, rng.permutation(y.reshape(-1)).reshape(SHAPE), near)
    check("atan2", np.arctan2, [y, x.astype(np.float32)], 3)


def test_division_by_normal_numbers_is_within_2_ulp() -> None:
    a, b = arguments(14), np.roll(arguments(15), 5, axis=1)  # special values meet others
    a[0, :4], b[0, :4] = [0.0, -0.0, 0.0, -0.0], [3, 3, -3, -3]
    b = np.where((np.abs(b) < 2.0**-126) & (b != 0), np.float32(1.5), b)
    check("divide", np.divide, [a, b], 2)


def test_remainders_are_exact() -> None:
    check("remainder", np.fmod, [arguments(16), arguments(17)], 0)


@pytest.mark.parametrize(
    "divisor", [1.0, -2.0, 1024.0, 2.0**126, 1.0000001, 6.2831855, -3.0, 1e10, 8.5e37, 3.4e38, 0.75]
)
def test_remainders_by_a_known_number_are_exact(divisor: float) -> None:
    """Which have code of their own, from 1 to 2**126; also beside multiples, halves and neighbours."""
    known = np.float32(divisor)
    args = arguments(20)
    with np.errstate(over="ignore"):
        near = (np.arange(-64, 64) * np.float32(0.5)).astype(np.float32) * known
        args[1:4] = np.stack([near, np.nextafter(near, np.float32(0)), np.nextafter(near, known)])
    code = [f"c = f32[] constant({divisor!r})", "b = f32[48,128] broadcast(c), dimensions={}"]
    code.append("ROOT r = f32[48,128] remainder(p0, b)")
    check_code(code, lambda x: np.fmod(x, np.longdouble(known)), [args], 0)
