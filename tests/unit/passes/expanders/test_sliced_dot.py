"""Products whose sums are exact: better than any order of f32 additions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.expansions import expanded, on_machine

FFT = """HloModule m
ENTRY e {{
  p = c64[{rows},{n}] parameter(0)
  ROOT r = c64[{rows},{n}] fft(p), fft_type=FFT, fft_length={{{n}}}
}}
"""


def rows_of_many_sizes(rows: int, n: int) -> np.ndarray[tuple[int, int], np.dtype[np.complex64]]:
    """Rows from 1e-30 to 1e30, one of zeros, one with a single element."""
    rng = np.random.default_rng(n)
    z = rng.standard_normal((rows, n)) + 1j * rng.standard_normal((rows, n))
    z *= 10.0 ** np.linspace(-30, 30, rows)[:, None]
    z[1], z[2, 1:] = 0, 0
    return z.astype(np.complex64)


@pytest.mark.parametrize("n", [2, 17, 96, 127])
def test_a_transform_is_rounded_about_once(n: int) -> None:
    z = rows_of_many_sizes(9, n)
    (got,) = expanded(FFT.format(rows=9, n=n), [z], ["fft-expander"], ["fft"])
    want = np.fft.fft(z.astype(np.complex128))
    scale = np.sqrt(np.mean(np.abs(want) ** 2, axis=1, keepdims=True))
    error = np.abs(got - want) / np.where(scale == 0, 1, scale)
    assert np.max(error) < 4 * 2.0**-24
    assert np.sqrt(np.mean(error**2)) < 0.6 * 2.0**-24


def test_the_machine_agrees() -> None:
    z = rows_of_many_sizes(9, 17)
    text = FFT.format(rows=9, n=17)
    (want,) = expanded(text, [z], ["fft-expander"])
    (got,) = on_machine(text, [z])
    scale = np.max(np.abs(want), axis=1, keepdims=True)
    assert np.max(np.abs(got - want) / np.where(scale == 0, 1, scale)) < 2.0**-23


def test_an_infinity_spoils_its_row_only() -> None:
    z = rows_of_many_sizes(4, 17)
    z[3, 2] = np.inf
    with np.errstate(all="ignore"):
        (got,) = expanded(FFT.format(rows=4, n=17), [z], ["fft-expander"])
    assert np.isfinite(got[:3]).all()
    assert not np.isfinite(got[3]).any()
