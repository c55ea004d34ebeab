"""Complex numbers as pairs of f32: close to the evaluator, which computes in double precision."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from compiler.diagnostics import UnsupportedError
from tests.support.pair_checks import before_and_after, rewritten, same

Array = npt.NDArray[np.generic]
COUNT = 800

UNARY = (
    "cbrt", "cosh", "cosine", "exponential", "exponential-minus-one", "log", "log-plus-one", "negate",
    "rsqrt", "sign", "sine", "sinh", "sqrt", "tan", "tanh",
)  # fmt: skip


def values(seed: int, scale: float = 1.0) -> Array:
    """Numbers of many sizes in every direction, some on the axes, some on the unit circle."""
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, COUNT)) * 10.0 ** rng.uniform(-3, 1, (2, COUNT)) * scale
    z = (parts[0] + 1j * parts[1]).astype(np.complex64)
    z[:8] = [0, 1, -1, 1j, -1j, 2, -2, 1 + 1j]
    circle = np.exp(1j * rng.uniform(-3, 3, 200)) * (1 + 1e-4 * rng.standard_normal(200))
    z[8:208] = circle.astype(np.complex64)
    return z


def text_of(opcode: str, result: str, operands: int, tail: str = "") -> str:
    lines = [f"  p{k} = c64[{COUNT}] parameter({k})" for k in range(operands)]
    names = ", ".join(f"p{k}" for k in range(operands))
    lines.append(f"  ROOT r = {result}[{COUNT}] {opcode}({names}){tail}")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def largest_error(want: Array, got: Array) -> float:
    """Relative to the modulus, where the wanted value is finite."""
    exact, found = want.astype(np.complex128), got.astype(np.complex128)
    mask = np.isfinite(exact) & (np.abs(exact) > 0)
    assert np.array_equal(found[exact == 0], exact[exact == 0])
    exact, found = exact[mask], found[mask]
    return float(np.max(np.abs(exact - found) / np.abs(exact)))


@pytest.mark.parametrize("scale", [1.0, 1e-4])
@pytest.mark.parametrize("opcode", UNARY)
def test_unary(opcode: str, scale: float) -> None:
    ((want, got),) = before_and_after(text_of(opcode, "c64", 1), [values(1, scale)])
    assert largest_error(want, got) < 4e-7


def test_logistic() -> None:
    ((want, got),) = before_and_after(text_of("logistic", "c64", 1), [values(1)])
    assert largest_error(want, got) < 1e-5  # its poles are nearby


@pytest.mark.parametrize(
    ("opcode", "limit"),
    [("add", 0.0), ("subtract", 0.0), ("multiply", 3e-7), ("divide", 3e-7), ("power", 3e-5)],
)
def test_binary(opcode: str, limit: float) -> None:
    ((want, got),) = before_and_after(text_of(opcode, "c64", 2), [values(1), values(2)])
    assert largest_error(want, got) <= limit


def test_abs_neither_overflows_nor_underflows() -> None:
    z = values(1)
    z[:6] = [3e38 + 1e38j, 1e30j, 1e-30 + 1e-30j, complex(np.inf, np.nan), complex(np.nan, 1), 0]
    ((want, got),) = before_and_after(text_of("abs", "f32", 1), [z])
    assert np.array_equal(np.isnan(want), np.isnan(got))
    assert np.array_equal(np.isinf(want), np.isinf(got))
    assert largest_error(want[6:], got[6:]) < 3e-7
    np.testing.assert_allclose(got[:3], want[:3], rtol=3e-7)


def test_divide_by_zero_and_infinity() -> None:
    a, b = values(1), values(2)
    a[:4] = [1 + 1j, complex(np.inf, 1), 2 - 3j, 0]
    b[:4] = [0, 1 + 1j, complex(np.inf, -1), 1j]
    ((_, got),) = before_and_after(text_of("divide", "c64", 2), [a, b])
    assert np.isinf(got[0].real) and np.isinf(got[0].imag)
    assert np.isinf(got[1].real)
    assert got[2] == 0 and got[3] == 0


def test_divide_by_a_real_number() -> None:
    """Two quotients, with C's answers for zeros and infinities."""
    text = """HloModule m
ENTRY e {
  a = c64[6] parameter(0)
  x = f32[6] parameter(1)
  b = c64[6] convert(x)
  ROOT r = c64[6] divide(a, b)
}
"""
    a = np.array([3 - 4j, 1 + 1j, complex(np.inf, 1), 2 - 3j, 0, 1e30j], np.complex64)
    x = np.array([2, 0, 1, -np.inf, 0, 1e-9], np.float32)
    with np.errstate(all="ignore"):
        ((want, got),) = before_and_after(text, [a, x])
    assert got[0] == 1.5 - 2j
    assert same(np.isinf(want), np.isinf(got))
    assert got[3] == 0 and np.isnan(got[4])
    assert sum(i.opcode == "divide" for i in rewritten(text).entry) == 2


@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
def test_order_by_real_then_imaginary_part(opcode: str) -> None:
    a, b = values(1), values(2)
    b[::3] = a[::3].real + 1j * b[::3].imag
    a[5], b[7] = complex(np.nan, 1), complex(1, np.nan)
    ((want, got),) = before_and_after(text_of(opcode, "c64", 2), [a, b])
    assert same(want, got)


@pytest.mark.parametrize("opcode", ["real", "imag"])
def test_parts(opcode: str) -> None:
    ((want, got),) = before_and_after(text_of(opcode, "f32", 1), [values(1)])
    assert np.array_equal(want, got)


@pytest.mark.parametrize("direction", ["EQ", "NE"])
def test_compare(direction: str) -> None:
    a, b = values(1), values(2)
    b[::3] = a[::3]
    b[1::3] = a[1::3].real + 1j * b[1::3].imag
    text = text_of("compare", "pred", 2, f", direction={direction}")
    ((want, got),) = before_and_after(text, [a, b])
    assert np.array_equal(want, got)


def test_an_order_of_complex_numbers_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="%r: compare of c64: complex numbers have no order"):
        rewritten(text_of("compare", "pred", 2, ", direction=LT"))
