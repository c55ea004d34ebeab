"""Taps of an image whose batch lies along the lanes, side by side and turned into the rows of a product."""

from __future__ import annotations

import pytest

from runtime.api import compile as compile_model
from tests.support.run_hlo import check_text, normal


def _text(size: int, features: int, batch: int, taps: int) -> str:
    """Windows of ``taps x taps`` with stride 2 over ``[size, features, size, batch]``."""
    count = (size - taps) // 2 + 1
    last, depth, rows = 2 * count - 1, taps * taps * features, count * count * batch
    cuts, names = [], []
    for row in range(taps):
        for column in range(taps):
            names.append(f"s{row}{column}")
            cuts.append(
                f"  s{row}{column} = bf16[{count},{features},{count},{batch}] slice(p), slice="
                f"{{[{row}:{row + last}:2], [0:{features}], [{column}:{column + last}:2], [0:{batch}]}}"
            )
    return f"""HloModule m
ENTRY main {{
  p = bf16[{size},{features},{size},{batch}] parameter(0)
  k = bf16[{depth},64] parameter(1)
  q = bf16[{rows},64] parameter(2)
{chr(10).join(cuts)}
  c = bf16[{count},{depth},{count},{batch}] concatenate({", ".join(names)}), dimensions={{1}}
  t = bf16[{count},{count},{batch},{depth}] transpose(c), dimensions={{0,2,3,1}}
  r = bf16[{rows},{depth}] reshape(t)
  d = bf16[{rows},64] dot(r, k), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  e = bf16[{depth},64] dot(r, q), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT o = (bf16[{rows},64], bf16[{depth},64]) tuple(d, e)
}}
"""


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize(
    ("size", "features", "batch", "taps"), [(6, 32, 128, 4), (8, 16, 192, 4), (7, 24, 256, 3)]
)
def test_values(size: int, features: int, batch: int, taps: int, machine: str) -> None:
    count = (size - taps) // 2 + 1
    inputs = [
        normal(1, size, features, size, batch, dtype="bfloat16"),
        normal(2, taps * taps * features, 64, dtype="bfloat16"),
        normal(3, count * count * batch, 64, dtype="bfloat16"),
    ]
    check_text(_text(size, features, batch, taps), inputs, "default", machine, tolerance=2e-2)


def test_blocks_keep_to_positions_and_know_their_taps() -> None:
    """81 positions of 512 images, 512 columns of 16 taps: the rows alone took 2,290,534 cycles where
    blocks of the grid began anywhere in a position, 775,057 where code did not know which taps it joins."""
    assert compile_model(_text(20, 32, 512, 4)).estimate().cycles < 300_000
