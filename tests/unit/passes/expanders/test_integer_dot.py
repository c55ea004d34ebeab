"""Dots of integers are exact."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.expansions import Array, expanded, on_machine

TYPES = {"s8": np.int8, "u8": np.uint8, "s16": np.int16, "u16": np.uint16, "s32": np.int32,
         "u32": np.uint32}  # fmt: skip
TEXT = """HloModule m
ENTRY e {{
  x = {a}[{m},{k}] parameter(0)
  y = {b}[{k},{n}] parameter(1)
  ROOT d = {c}[{m},{n}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""
WIDENED = """HloModule m
ENTRY e {
  x = s8[3,40] parameter(0)
  y = u8[40,5] parameter(1)
  p = s32[3,40] convert(x)
  q = s32[40,5] convert(y)
  ROOT d = s32[3,5] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def _extremes(dtype: str, *dims: int) -> Array:
    """Random values, most of them the extreme ones, so that sums are as large as they get."""
    rng = np.random.default_rng(sum(dims))
    info = np.iinfo(TYPES[dtype])
    drawn = rng.integers(info.min, info.max, dims, TYPES[dtype], endpoint=True)
    return np.where(rng.random(dims) < 0.7, TYPES[dtype](info.min or info.max), drawn)


@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        ("s8", "s8", "s32"),
        ("u8", "u8", "s32"),
        ("s8", "u8", "s8"),
        ("s16", "u16", "s16"),
        ("s32", "s32", "s32"),
        ("u32", "s8", "u32"),
    ],
)
@pytest.mark.parametrize("dims", [(3, 9, 5), (64, 1500, 64)])
def test_every_pair_of_types(a: str, b: str, c: str, dims: tuple[int, int, int]) -> None:
    m, k, n = dims
    x, y = _extremes(a, m, k), _extremes(b, k, n)
    text = TEXT.format(a=a, b=b, c=c, m=m, k=k, n=n)
    want = (x.astype(np.int64) @ y.astype(np.int64)).astype(TYPES[c])
    (got,) = expanded(text, [x, y], ["integer-dot-expander"])
    np.testing.assert_array_equal(want, got)
    if dims[0] == 64 and a in ("u8", "s16"):
        np.testing.assert_array_equal(want, on_machine(text, [x, y])[0])


def test_widened_operands_count_as_narrow() -> None:
    x, y = _extremes("s8", 3, 40), _extremes("u8", 40, 5)
    want = x.astype(np.int32) @ y.astype(np.int32)
    np.testing.assert_array_equal(want, on_machine(WIDENED, [x, y])[0])
