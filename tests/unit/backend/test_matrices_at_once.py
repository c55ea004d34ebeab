"""How many small matrices a loop body turns, and that they come out right."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from compiler.backend.vector.transposed_reads import matrices_at_once
from tests.support.against_evaluator import check


@pytest.mark.parametrize(
    ("count", "usual", "most", "expected"),
    [
        (32, 3, 99, 8),  # three rounds of three units for eight
        (12, 3, 99, 3),  # no unit waits
        (7, 3, 99, 7),
        (32, 3, 4, 3),  # no room for more than four, which take as long as the usual three do
        (11, 2, 99, 2),  # nothing divides it
        (5, 1, 0, 1),
    ],
)
def test_units_wait_as_little_as_the_count_allows(
    count: int, usual: int, most: int, expected: int
) -> None:
    assert matrices_at_once(count, usual, most, 3) == expected


@pytest.mark.parametrize("kind", ["bf16", "f32", "s8"])
@pytest.mark.parametrize("dims", [(2, 8, 64, 64), (24, 48, 40), (11, 64, 96)])
def test_transposes_of_matrices(kind: str, dims: tuple[int, ...]) -> None:
    *major, rows, cols = dims
    order = (*range(len(major)), len(major) + 1, len(major))
    turned = (*major, cols, rows)
    text = f"""HloModule m
ENTRY main {{
  x = {kind}[{",".join(map(str, dims))}] parameter(0)
  t = {kind}[{",".join(map(str, turned))}] transpose(x), dimensions={{{",".join(map(str, order))}}}
  ROOT r = f32[{",".join(map(str, turned))}] convert(t)
}}
"""
    dtype = {"bf16": ml_dtypes.bfloat16, "f32": np.float32, "s8": np.int8}[kind]
    check(text, [np.random.default_rng(1).integers(-99, 99, dims).astype(dtype)])
