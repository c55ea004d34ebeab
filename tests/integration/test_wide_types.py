"""64-bit integers, complex numbers and 4-bit integers compiled and executed, host types included."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import tpuc
from compiler.driver import CompileOptions
from runtime.buffer import Array as DeviceArray
from runtime.executable import Executable

Array = npt.NDArray[np.generic]
RNG = np.random.default_rng(11)

COUNTING = """HloModule counting
cond {
  s = (s64[], s64[20,30]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  n = s64[] constant(3)
  ROOT c = pred[] compare(i, n), direction=LT
}
body {
  s = (s64[], s64[20,30]) parameter(0)
  i = s64[] get-tuple-element(s), index=0
  x = s64[20,30] get-tuple-element(s), index=1
  one = s64[] constant(1)
  j = s64[] add(i, one)
  b = s64[20,30] broadcast(j), dimensions={}
  y = s64[20,30] multiply(x, b)
  ROOT t = (s64[], s64[20,30]) tuple(j, y)
}
sum {
  a = s64[] parameter(0)
  b = s64[] parameter(1)
  ROOT r = s64[] add(a, b)
}
ENTRY e {
  x = s64[20,30] parameter(0)
  k = s64[] parameter(1)
  zero = s64[] constant(0)
  init = (s64[], s64[20,30]) tuple(zero, x)
  w = (s64[], s64[20,30]) while(init), condition=cond, body=body
  y = s64[20,30] get-tuple-element(w), index=1
  kb = s64[20,30] broadcast(k), dimensions={}
  q = s64[20,30] divide(y, kb)
  m = s64[20,30] remainder(y, kb)
  rows = s64[20] reduce(y, zero), dimensions={1}, to_apply=sum
  columns = s64[30] reduce(y, zero), dimensions={0}, to_apply=sum
  ROOT t = (s64[20,30], s64[20,30], s64[20], s64[30]) tuple(q, m, rows, columns)
}
"""

WAVES = """HloModule waves, input_output_alias={ {}: (0, {}, may-alias) }
ENTRY e {
  z = c64[20,30] parameter(0)
  w = c64[30,30] parameter(1)
  d = c64[20,30] dot(z, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  x = c64[20,30] exponential(d)
  ROOT r = c64[20,30] multiply(x, z)
}
"""


def compiled(text: str, **options: bool) -> Executable:
    chosen = CompileOptions(precision="highest", **options)
    return tpuc.compile(text, options=chosen)


def complexes(*dims: int) -> Array:
    return (RNG.standard_normal(dims) + 1j * RNG.standard_normal(dims)).astype(np.complex64) / 8


def check_counting(outputs: list[Array], x: Array, k: int) -> None:
    y = x * 6
    quotient = np.array(
        [int(abs(int(v)) // abs(k)) * (1 if (v < 0) == (k < 0) else -1) for v in y.flat]
    )
    assert all(output.dtype == np.int64 for output in outputs)
    np.testing.assert_array_equal(outputs[0], quotient.reshape(y.shape))
    np.testing.assert_array_equal(outputs[1], y - quotient.reshape(y.shape) * k)
    np.testing.assert_array_equal(outputs[2], y.sum(axis=1))
    np.testing.assert_array_equal(outputs[3], y.sum(axis=0))


@pytest.mark.parametrize("k", [7, -3_000_000_019])
def test_integers_of_64_bits(k: int) -> None:
    x = RNG.integers(-(2**60), 2**60, (20, 30))
    outputs = compiled(COUNTING)(x, np.int64(k))
    check_counting([np.asarray(o) for o in outputs], x, k)


def test_saved_program_keeps_host_types(tmp_path: Path) -> None:
    compiled(COUNTING).save(tmp_path / "m.tpux")
    loaded = tpuc.compile(tmp_path / "m.tpux")
    x = RNG.integers(-(2**60), 2**60, (20, 30))
    check_counting([np.asarray(o) for o in loaded(x, np.int64(5))], x, 5)


def test_complex_arrays_stay_on_the_device() -> None:
    z, w = complexes(20, 30), complexes(30, 30)
    executable = compiled(WAVES)
    on_device = [tpuc.device_put(z), tpuc.device_put(w)]
    assert [a.dtype for a in on_device] == [np.complex64, np.complex64]
    np.testing.assert_array_equal(on_device[0].numpy(), z)
    (first,) = executable(*on_device)
    assert isinstance(first, DeviceArray) and first.dtype == np.complex64
    want = np.exp(z @ w) * z
    np.testing.assert_allclose(np.asarray(first), want, rtol=1e-5, atol=1e-6)
    (second,) = executable(first, on_device[1])
    assert on_device[0].is_deleted()  # donated
    with pytest.raises(RuntimeError, match="deleted"):
        np.asarray(first)
    want = np.exp(want @ w) * want
    np.testing.assert_allclose(np.asarray(second), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(on_device[1].numpy(), w)


def test_integers_of_4_bits() -> None:
    text = """HloModule nibbles
ENTRY e {
  x = s4[5,40] parameter(0)
  c = s4[] constant(-3)
  b = s4[5,40] broadcast(c), dimensions={}
  y = s4[5,40] multiply(x, b)
  z = s32[5,40] convert(y)
  ROOT t = (s4[5,40], s32[5,40]) tuple(y, z)
}
"""
    x = RNG.integers(-8, 8, (5, 40)).astype(np.int8)
    narrow, wide = (np.asarray(o) for o in compiled(text)(x.astype(ml_dtypes.int4)))
    want = (x.astype(np.int32) * -3 + 8) % 16 - 8
    assert narrow.dtype == ml_dtypes.int4
    np.testing.assert_array_equal(narrow.astype(np.int32), want)
    np.testing.assert_array_equal(wide, want)


def test_doubles_as_floats() -> None:
    text = """HloModule doubles
ENTRY e {
  x = f64[5,40] parameter(0)
  z = c128[40] parameter(1)
  y = f64[5,40] exponential(x)
  w = c128[40] multiply(z, z)
  ROOT t = (f64[5,40], c128[40]) tuple(y, w)
}
"""
    x, z = RNG.standard_normal((5, 40)), complexes(40).astype(np.complex128)
    real, imag = (np.asarray(o) for o in compiled(text, f64_as_f32=True)(x, z))
    assert (real.dtype, imag.dtype) == (np.float64, np.complex128)
    np.testing.assert_allclose(real, np.exp(x), rtol=1e-6)
    np.testing.assert_allclose(imag, z * z, rtol=1e-6, atol=1e-7)
