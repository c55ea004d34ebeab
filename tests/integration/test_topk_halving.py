"""topk of many elements by sorted groups that are halved, against the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from compiler.passes.expanders import custom_call_expander, topk_halving
from tests.support.against_evaluator import check, random_values
from tpu_sim.isa.chips import load_chip


@pytest.mark.parametrize(
    ("dtype", "dims", "k"),
    [
        ("f32", (3, 200), 17),
        ("f32", (130, 129), 32),
        ("s32", (1, 300), 33),
        ("bf16", (9, 257), 64),
        ("u8", (2, 2, 100), 20),
        ("u32", (5, 140), 18),
        ("s8", (150, 70), 32),
        ("f32", (256,), 100),
    ],
)
def test_the_greatest_of_rows(
    dtype: str, dims: tuple[int, ...], k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of so few rows a sort is cheaper
    monkeypatch.setattr(custom_call_expander, "halving_cycles", lambda *_: 0)
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
        values[..., ::7] = 2.5  # ties all over the row
        values[..., :5] = np.inf, -np.inf, np.nan, 0.0, -0.0
        values[..., 9] = np.copysign(np.nan, -1)
    if dtype in ("s32", "s8"):
        values[..., 4:] = np.iinfo(values.dtype).min  # as what is padded
    check(text, [values])


def test_blocks_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_call_expander, "halving_cycles", lambda *_: 0)
    monkeypatch.setattr(custom_call_expander.vmem_shares, "SORTED_PARTS", 2e-3)
    text = """HloModule m
ENTRY e {
  x = f32[300,200] parameter(0)
  ROOT t = (f32[300,20], s32[300,20]) topk(x), k=20, largest=true
}
"""
    rows = np.random.default_rng(1).integers(0, 40, (300, 200)).astype(np.float32)
    check(text, [rows])
    assert topk_halving.halving_cycles(4096, 4096, 32, load_chip("v5e")) < 4e6
