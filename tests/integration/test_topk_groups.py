"""topk of long rows by groups, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.against_evaluator import check, random_values


@pytest.mark.parametrize(
    ("dtype", "dims", "k"),
    [
        ("f32", (3, 6000), 20),
        ("s32", (2, 2, 5000), 17),
        ("bf16", (9000,), 33),
        ("u8", (2, 5200), 18),
        ("f32", (33, 8200), 8),  # few enough for rounds, rows too many
        ("bf16", (64, 8192), 5),
    ],
)
def test_the_greatest_of_long_rows(dtype: str, dims: tuple[int, ...], k: int) -> None:
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    few = ",".join(map(str, (*dims[:-1], k)))
    text = f"""HloModule m
ENTRY e {{
  x = {shape} parameter(0)
  ROOT t = ({dtype}[{few}], s32[{few}]) topk(x), k={k}, largest=true
}}
"""
    values = random_values(BY_NAME[dtype], dims, 1)
    if dtype == "f32":
        values[0, ::7] = 2.5  # ties all over the row
        values[1, :5] = np.inf, -np.inf, np.nan, 0.0, -0.0
        values[2] = -np.inf  # what is padded is never taken
    check(text, [values])
