"""Functions of complex numbers against extended precision, in units in the last place of |result|.

The evaluator computes the rewritten module with f32 functions rounded from f64; the machine's are
within 3 units (`tests/unit/backend/test_float_accuracy.py`). Inputs: all sizes and directions, the
unit circle's neighbourhood, and near the axes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from compiler.hlo.evaluator import evaluate
from tests.support.pair_checks import before_and_after, rewritten, split

C64 = npt.NDArray[np.complex64]
Wide = npt.NDArray[Any]
COUNT = 3000


def plane(seed: int, spread: int = 60) -> C64:
    """A third log-uniform up to 2**spread, a third near the unit circle, a third normal."""
    rng = np.random.default_rng(seed)
    n = COUNT // 3
    parts = np.ldexp(rng.uniform(-2, 2, (2, n)), rng.integers(-spread, spread + 1, (2, n)))
    radius = 1 + rng.standard_normal(n) * 2.0 ** rng.integers(-24, 0, n)
    circle = radius * np.exp(2j * np.pi * rng.random(n))
    normal = rng.standard_normal(n) + 1j * rng.standard_normal(n)
    z = np.concatenate([parts[0] + 1j * parts[1], circle, normal])
    return z.astype(np.complex64)


def strip(seed: int) -> C64:
    """Arguments of exponentials: real and imaginary parts up to about 80."""
    rng = np.random.default_rng(seed)
    size = 2.0 ** rng.uniform(-20, 6.2, (2, COUNT)) * rng.choice([-1, 1], (2, COUNT))
    return (size[0] + 1j * size[1]).astype(np.complex64)


def log(z: Wide) -> Wide:
    x, y = np.abs(z.real), np.abs(z.imag)
    large, small = np.maximum(x, y), np.minimum(x, y)
    near = 0.5 * np.log1p((large - 1) * (large + 1) + small * small)
    size = np.where((large > 0.5) & (large < 2), near, np.log(np.abs(z)))
    return size + 1j * np.angle(z)


def log1p(z: Wide) -> Wide:
    x, y = z.real, z.imag
    near = 0.5 * np.log1p(2 * x + x * x + y * y)
    size = np.where(np.abs(z) < 0.5, near, np.log(np.abs(1 + z)))
    return size + 1j * np.arctan2(y, 1 + x)


def expm1(z: Wide) -> Wide:
    x, y = z.real, z.imag
    real = np.expm1(x) * np.cos(y) - 2 * np.sin(y / 2) ** 2
    return real + 1j * np.exp(x) * np.sin(y)


def power(z: Wide, w: Wide) -> Wide:
    return np.exp(w * log(z))


Case = tuple[Callable[..., Wide], Callable[[int], C64], float]
UNARY: dict[str, Case] = {
    "abs": (np.abs, plane, 1),
    "acos": (np.arccos, plane, 3),
    "acosh": (np.arccosh, plane, 3),
    "asin": (np.arcsin, plane, 3),
    "asinh": (np.arcsinh, plane, 3),
    "atan": (np.arctan, plane, 3),
    "atanh": (np.arctanh, plane, 3),
    "cbrt": (lambda z: np.exp(log(z) / 3), plane, 3),
    "cosh": (np.cosh, strip, 3),
    "cosine": (np.cos, strip, 3),
    "exponential": (np.exp, strip, 3),
    "exponential-minus-one": (expm1, strip, 3),
    "log": (log, plane, 1),
    "log-plus-one": (log1p, plane, 2),
    "logistic": (lambda z: 1 / (1 + np.exp(-z)), strip, 6),
    "rsqrt": (lambda z: 1 / np.sqrt(z), plane, 2),
    "sign": (lambda z: z / np.abs(z), plane, 2),
    "sine": (np.sin, strip, 3),
    "sinh": (np.sinh, strip, 3),
    "sqrt": (np.sqrt, plane, 1),
    "tan": (np.tan, strip, 5),
    "tanh": (np.tanh, strip, 5),
}


def found(opcode: str, args: list[C64]) -> npt.NDArray[Any]:
    names = [f"p{k}" for k in range(len(args))]
    lines = [f"  {name} = c64[{COUNT}] parameter({k})" for k, name in enumerate(names)]
    kind = "f32" if opcode == "abs" else "c64"
    lines.append(f"  ROOT r = {kind}[{COUNT}] {opcode}({', '.join(names)})")
    module = rewritten("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")
    with np.errstate(all="ignore"):
        parts = evaluate(module, [part for a in args for part in split(a)], "highest")
    result = np.zeros(COUNT, np.longdouble if opcode == "abs" else np.clongdouble)
    result.real = parts[0]
    if opcode != "abs":
        result.imag = parts[1]
    return result


def check(opcode: str, function: Callable[..., Wide], args: list[C64], limit: float) -> None:
    got = found(opcode, args)
    with np.errstate(all="ignore"):
        want = function(*(a.astype(np.clongdouble) for a in args))
        size = np.abs(want)
        error = np.abs(got - want) / np.exp2(np.floor(np.log2(size)) - 23)
    counted = (size > 2.0**-120) & (size < 2.0**127)
    assert counted.sum() > COUNT // 4
    error = np.where(counted, np.where(np.isfinite(error), error, np.inf), 0)
    worst = int(np.argmax(error))
    assert error[worst] <= limit, ([a[worst] for a in args], got[worst], want[worst])


@pytest.mark.parametrize("opcode", UNARY)
def test_unary(opcode: str) -> None:
    function, inputs, limit = UNARY[opcode]
    check(opcode, function, [inputs(1)], limit)


def test_angles_of_pairs() -> None:
    """Also results that are small: both operands nearly real, or one much larger."""

    def reference(y: Wide, x: Wide) -> Wide:
        return np.asarray(-1j * log((x + 1j * y) / np.sqrt(x * x + y * y)))

    rng = np.random.default_rng(5)
    turned = (rng.choice([1, -1, 1j, 1], COUNT) * np.ldexp(1.0, rng.integers(-9, 9, COUNT))).astype(
        np.complex64
    )
    for y, x in ((plane(2, 12), plane(3, 12)), (plane(4, 12), turned), (turned, plane(5, 12))):
        check("atan2", reference, [y, x], 4)


def test_quotients_are_nearly_correctly_rounded() -> None:
    check("divide", np.divide, [plane(1), plane(2)], 1)


def test_products() -> None:
    check("multiply", np.multiply, [plane(1), plane(2)], 2)


def test_power_keeps_its_digits_where_the_result_is_huge() -> None:
    rng = np.random.default_rng(3)
    w = plane(2, 6) * rng.choice([1, 4, 20], COUNT)
    check("power", power, [plane(1, 8), w.astype(np.complex64)], 3)


def test_parts_of_a_quotient_keep_their_digits() -> None:
    """Although one is the difference of nearly equal products."""
    rng = np.random.default_rng(4)
    b = plane(5, 10)
    a = (b * (1 + 1j * 2.0 ** rng.uniform(-20, -5, COUNT))).astype(np.complex64)
    got = found("divide", [a, b])
    want = a.astype(np.clongdouble) / b.astype(np.clongdouble)
    error = np.abs(got.imag - want.imag) / np.abs(want.imag)
    assert np.max(error) < 2.0**-23


def test_logarithm_near_the_unit_circle_keeps_its_digits() -> None:
    z = plane(6)[COUNT // 3 : 2 * COUNT // 3]
    z = np.resize(z, COUNT)
    want = log(z.astype(np.clongdouble)).real
    got = found("log", [z]).real
    with np.errstate(all="ignore"):
        error = np.abs(got - want) / np.abs(want)
    assert np.max(error[want != 0]) < 2.0**-23


def test_powers_of_zero_and_by_zero() -> None:
    z = np.resize(np.array([0, 0, 0, 2 + 1j, np.inf, 1, -1, 0, 0], np.complex64), COUNT)
    w = np.resize(np.array([0, 0.5, 2, 0, 2, 3 - 2j, 2, 1 + 1j, -2], np.complex64), COUNT)
    got = found("power", [z, w])[:9]
    assert got[:6].real.tolist() == [1, 0, 0, 1, np.inf, 1]
    assert got[[0, 1, 2, 3, 5]].imag.tolist() == [0, 0, 0, 0, 0]
    assert abs(got[6] - 1) < 1e-7
    assert np.isnan(got[7:].real).all() and np.isnan(got[7:].imag).all()


def test_the_square_of_a_number_as_the_reference_rounds_it() -> None:
    """Of the two products of each part, the one with the second operand's real part is fused."""
    text = f"HloModule m\nENTRY e {{\n  p = c64[{COUNT}] parameter(0)\n"
    text += f"  q = c64[{COUNT}] parameter(1)\n  ROOT r = c64[{COUNT}] multiply(p, q)\n}}\n"
    a, b = plane(1, 4), plane(2, 4)
    ((_, got),) = before_and_after(text, [a, b])
    x, y = a.astype(np.complex128), b.astype(np.complex128)
    second = np.multiply(a.imag, b.imag, dtype=np.float32).astype(np.float64)
    real = (x.real * y.real - second).astype(np.float32)
    close = np.abs(got.real - real) <= np.spacing(np.abs(real))
    assert close.all()


@pytest.mark.parametrize("opcode", ["acos", "acosh", "asin", "asinh", "atan", "atanh"])
def test_inverses_of_zeros_ones_and_infinities(opcode: str) -> None:
    """C's answers; the cuts are approached from +0, as XLA does for either sign of a zero."""
    parts = [0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 1e-30, 1e30, np.inf, -np.inf]
    z = np.array([complex(x, y) for x in parts for y in parts], np.complex64)
    with np.errstate(all="ignore"):
        want = getattr(np, f"arc{opcode[1:]}")(z.astype(np.complex128))
    got = found(opcode, [np.resize(z, COUNT)])[: z.size]
    for mine, theirs in ((got.real, want.real), (got.imag, want.imag)):
        np.testing.assert_allclose(mine.astype(float), theirs, 1e-6, 1e-37)


def test_the_exponential_of_an_angle_that_is_none() -> None:
    """NaN, however small its factor: as XLA has it, where C has 0."""
    z = np.array([complex(-np.inf, np.inf), complex(-np.inf, 1), complex(-np.inf, 0)], np.complex64)
    got = found("exponential", [np.resize(z, COUNT)])[:3]
    assert np.isnan(got[0])
    assert got[1:].tolist() == [0, 0]
