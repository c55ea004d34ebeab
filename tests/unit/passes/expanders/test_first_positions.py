"""argmax and argmin as JAX writes them give the first of several NaN."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tests.support.expansions import assert_close, on_machine, reference
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
best {{
  a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  better = pred[] compare(a, b), direction={direction}
  is_nan = pred[] compare(a, a), direction=NE
  takes = pred[] or(better, is_nan)
  value = f32[] select(takes, a, b)
  same = pred[] compare(a, b), direction=EQ
  earlier = pred[] compare(i, j), direction={order}
  tie = pred[] and(same, earlier)
  position = pred[] or(takes, tie)
  place = s32[] select(position, i, j)
  ROOT r = (f32[], s32[]) tuple(value, place)
}}
ENTRY e {{
  x = f32[{rows},{columns}] parameter(0)
  n = s32[{rows},{columns}] iota(), iota_dimension={dim}
  least = f32[] constant({least})
  zero = s32[] constant(0)
  pair = (f32[{kept}], s32[{kept}]) reduce(x, n, least, zero), dimensions={{{dim}}}, to_apply=best
  ROOT p = s32[{kept}] get-tuple-element(pair), index=1
}}
"""


def _text(rows: int, columns: int, dim: int, direction: str = "GT", order: str = "LT") -> str:
    least = "-inf" if direction == "GT" else "inf"
    kept = rows if dim else columns
    sizes = {"rows": rows, "columns": columns, "kept": kept, "dim": dim}
    return TEXT.format(direction=direction, order=order, least=least, **sizes)


@pytest.mark.parametrize(("rows", "columns", "dim"), [(9, 300, 1), (300, 9, 0), (40, 1, 0)])
@pytest.mark.parametrize("direction", ["GT", "LT"])
def test_the_first_nan_is_found(rows: int, columns: int, dim: int, direction: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, (rows, columns)).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = np.nan
    text = _text(rows, columns, dim, direction)
    (want,) = reference(text, [x])
    np.testing.assert_array_equal(want, (np.argmax if direction == "GT" else np.argmin)(x, dim))
    assert_close([want], on_machine(text, [x]), 0)


@pytest.mark.parametrize(("order", "is_changed"), [("LT", True), ("GT", False)])
def test_only_that_reducer_is_changed(order: str, is_changed: bool) -> None:
    module = parse_module(_text(9, 300, 1, order=order))
    run_pipeline(module, load_chip("v5e"), passes=["simple-expansions"])
    assert any(name.startswith("best_first") for name in module.computations) == is_changed
