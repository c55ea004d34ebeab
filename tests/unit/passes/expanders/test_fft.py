"""Fourier transforms as products with matrices."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.diagnostics import UnsupportedError
from tests.support.expansions import Array, assert_close, expanded, on_machine, reference

TEXT = """HloModule m
ENTRY e {{
  x = {operand} parameter(0)
  ROOT f = {result} fft(x), fft_type={kind}, fft_length={{{lengths}}}
}}
"""


def _case(kind: str, batch: int, *lengths: int) -> tuple[str, Array]:
    full = ",".join(str(n) for n in (batch, *lengths))
    half = ",".join(str(n) for n in (batch, *lengths[:-1], lengths[-1] // 2 + 1))
    operand = {"RFFT": f"f32[{full}]", "IRFFT": f"c64[{half}]"}.get(kind, f"c64[{full}]")
    result = {"RFFT": f"c64[{half}]", "IRFFT": f"f32[{full}]"}.get(kind, f"c64[{full}]")
    text = TEXT.format(
        operand=operand, result=result, kind=kind, lengths=",".join(map(str, lengths))
    )
    dims = [int(n) for n in (half if kind == "IRFFT" else full).split(",")]
    rng = np.random.default_rng(len(dims) + dims[-1])
    if kind == "RFFT":
        return text, rng.standard_normal(dims).astype(np.float32)
    value = rng.standard_normal(dims) + 1j * rng.standard_normal(dims)
    return text, value.astype(np.complex64)


KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 3, 97, 128, 131, 200, 521, 1042])
def test_one_dimension(kind: str, length: int) -> None:
    text, x = _case(kind, 3, length)
    assert_close(reference(text, [x]), expanded(text, [x], ["fft-expander"], ["fft"]), 2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_several_dimensions(kind: str) -> None:
    text, x = _case(kind, 2, 6, 5, 10)
    assert_close(reference(text, [x]), expanded(text, [x], ["fft-expander"], ["fft"]), 2e-6)


@pytest.mark.parametrize(("kind", "length"), [("FFT", 260), ("RFFT", 12), ("IRFFT", 9)])
def test_on_the_machine(kind: str, length: int) -> None:
    text, x = _case(kind, 2, length)
    assert_close(reference(text, [x]), on_machine(text, [x]), 2e-6)


def test_a_transform_of_doubles_is_refused() -> None:
    text = TEXT.format(operand="c128[4]", result="c128[4]", kind="FFT", lengths="4")
    with pytest.raises(UnsupportedError, match="convert to f32 or c64"):
        expanded(text, [np.zeros(4, np.complex128)], ["fft-expander"])
