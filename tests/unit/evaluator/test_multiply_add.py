"""``multiply-add`` rounds once: against exact rational arithmetic, evaluator and vector unit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from compiler.diagnostics import CompileError
from compiler.hlo.evaluator.numerics import multiply_add
from compiler.hlo.parser import parse_module
from compiler.hlo.verifier import verify
from tests.support.vector_runs import Run

F32 = npt.NDArray[np.float32]


def operands() -> tuple[F32, F32, F32]:
    """Products that nearly cancel the addend, and ties between two f32."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal((8, 128)).astype(np.float32) for _ in range(2))
    c = (-(a.astype(np.float64) * b)).astype(np.float32)
    c[4:] += np.ldexp(rng.standard_normal((4, 128)), -20).astype(np.float32)
    c[6] = 2.0**24 * a[6] * b[6]
    a[7], b[7], c[7] = 1 + 2.0**-12, 1 + 2.0**-12, 2.0**-60  # just above half a unit
    return a, b, c


def nearest(value: Fraction) -> np.float32:
    """Round to the nearest f32, ties to even; not for denormals."""
    guess = np.float32(float(value))
    around = [np.nextafter(guess, np.float32(d)) for d in (-np.inf, np.inf)]
    options = [guess, *around]
    distance = [abs(Fraction(float(o)) - value) for o in options]
    best = min(distance)
    found = [o for o, d in zip(options, distance, strict=True) if d == best]
    return min(found, key=lambda o: int(o.view(np.uint32)) & 1)


def test_one_rounding() -> None:
    a, b, c = operands()
    got = multiply_add(a, b, c).reshape(-1)
    flat = zip(a.reshape(-1), b.reshape(-1), c.reshape(-1), strict=True)
    want = [
        nearest(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))) for x, y, z in flat
    ]
    np.testing.assert_array_equal(got, np.array(want, np.float32))


def test_infinities_and_nan() -> None:
    inf = np.float32(np.inf)
    with np.errstate(all="ignore"):
        got = multiply_add(
            *(np.array(v, np.float32) for v in ([inf, inf, 0], [1, 0, inf], [1, 1, 1]))
        )
    assert got[0] == inf
    assert np.isnan(got[1:]).all()


def test_the_vector_unit_agrees() -> None:
    lines = [f"p{k} = f32[8,128] parameter({k})" for k in range(3)]
    Run("\n".join([*lines, "ROOT r = f32[8,128] multiply-add(p0, p1, p2)"]), operands()).check()


def test_only_f32_of_one_shape() -> None:
    text = "HloModule m\nENTRY e {\n  p = F[4] parameter(0)\n  ROOT r = F[4] multiply-add(p, p, p)\n}\n"
    verify(parse_module(text.replace("F[", "f32[")))
    with pytest.raises(CompileError, match="want f32"):
        verify(parse_module(text.replace("F[", "bf16[")))
