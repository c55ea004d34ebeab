"""Rows and columns repeated to arrays whose last tile has one row or one column."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.run_hlo import expected, run_text

TEXT = """HloModule m
ENTRY e {{
  d = {dtype}[{rows},{columns}] parameter(0)
  c = {dtype}[{operand}] parameter(1)
  r = {dtype}[{count}] reshape(c)
  b = {dtype}[{rows},{columns}] broadcast(r), dimensions={{{dim}}}
  ROOT a = {dtype}[{rows},{columns}] add(d, b)
}}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 9), (9, 17), (17, 129), (33, 1), (129, 5)])
def test_a_row_and_a_column_of_either_shape(dtype: str, rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows)
    kind = BY_NAME[dtype].numpy
    for dim, count in ((0, rows), (1, columns)):
        for dims in ((count, 1), (1, count)):
            operand = ",".join(map(str, dims))
            text = TEXT.format(
                dtype=dtype, rows=rows, columns=columns, operand=operand, count=count, dim=dim
            )
            inputs = [rng.integers(-60, 60, (rows, columns)).astype(kind)]
            inputs.append(rng.integers(-60, 60, dims).astype(kind))
            got = run_text(text, inputs, machine="llvm").outputs[0]
            assert np.array_equal(got, expected(text, inputs)[0]), text
