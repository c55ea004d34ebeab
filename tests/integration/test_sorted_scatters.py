"""Rows that are sorted by place before they are added to a large table: values, beside the evaluator."""

from __future__ import annotations

from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest

from tests.support.against_evaluator import binary
from tests.support.run_hlo import Array, compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

NUMPY = {"f32": np.float32, "s32": np.int32, "u32": np.uint32, "bf16": ml_dtypes.bfloat16}

SMALL = replace(load_chip("v5e"), vmem_bytes=768 << 10)


@dataclass(frozen=True)
class Case:
    """A scatter of `vectors` rows into a table; `table`: its first element, None for a parameter."""

    dims: tuple[int, ...]
    vectors: tuple[int, ...]
    combine: str = "add"
    dtype: str = "f32"
    fill: int | None = None
    is_batched: bool = False
    claim: str = ""
    low: int = -3
    is_sorted: bool = True

    @property
    def text(self) -> str:
        *majors, width = self.dims
        numbers = ",".join(map(str, self.vectors))
        place = len(majors) - 1
        shape = f"{self.dtype}[{','.join(map(str, self.dims))}]"
        made = "" if self.fill is None else f"z = {self.dtype}[] constant({self.fill})\n"
        table = "parameter(2)" if self.fill is None else "broadcast(z), dimensions={}"
        batching = "input_batching_dims={0}, scatter_indices_batching_dims={0},"
        inserted = "" if not self.is_batched else batching
        return f"""HloModule m
{binary("f", self.combine, self.dtype)}
ENTRY e {{
  i = s32[{numbers}] parameter(0)
  u = {self.dtype}[{numbers},{width}] parameter(1)
  {made}x = {shape} {table}
  ROOT r = {shape} scatter(x, i, u), update_window_dims={{{len(self.vectors)}}}, {inserted}
    inserted_window_dims={{{place}}}, scatter_dims_to_operand_dims={{{place}}},
    index_vector_dim={len(self.vectors)}, to_apply=f{self.claim}
}}
"""

    @property
    def inputs(self) -> list[Array]:
        rng = np.random.default_rng(len(self.dims) + self.vectors[-1])
        kind, most = NUMPY[self.dtype], 2 if self.combine == "multiply" else 9
        least = 0 if self.dtype == "u32" else -most
        places = rng.integers(self.low, self.dims[-2] + 3, self.vectors).astype(np.int32)
        places[..., 1::3] = places[..., :1]  # many to one row
        places[..., 7], places[..., 11] = -(1 << 31), (1 << 31) - 1
        sizes = [(*self.vectors, self.dims[-1]), *([self.dims] if self.fill is None else [])]
        return [places, *(rng.integers(least, most, size).astype(kind) for size in sizes)]


CASES = {
    "a register across": Case((6000, 128), (4500,)),
    "no multiple of eight, narrower than a tile": Case((5003, 100), (4099,), fill=0),
    "several tiles across": Case((2500, 300), (4200,), "maximum", "s32", fill=4),
    "from a constant": Case((6000, 128), (5000,), "minimum", fill=4),
    "unsigned": Case((6000, 40), (5000,), "add", "u32"),
    "places of two dimensions": Case((6000, 128), (5, 1000)),
    "of batches": Case((2, 3500, 128), (2, 2500), is_batched=True),
    "most are outside": Case((5000, 128), (5000,), low=-90000),
    "said to be sorted, and are not": Case((6000, 128), (4500,), claim=", indices_are_sorted=true"),
    "halves of words stay": Case((6000, 256), (4500,), dtype="bf16", is_sorted=False),
    "few stay": Case((6000, 128), (800,), is_sorted=False),
    "a small table stays": Case((300, 128), (4500,), is_sorted=False),
}


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    made = compile_text(case.text, chip=SMALL)
    assert case.is_sorted == ("indices_are_sorted=true" in made.hlo_text())
    (got,) = run_compiled(made, case.inputs, "llvm").outputs
    assert np.array_equal(got, expected(case.text, case.inputs)[0])


def test_one_row_is_added_to_in_order() -> None:
    """What meets in a row does so as before: rounding is the same with and without the sort."""
    case = Case((6000, 128), (4500,))
    rng = np.random.default_rng(4)
    places = rng.permutation(np.repeat(np.arange(0, 6000, 8, dtype=np.int32), 6))
    inputs = [places, *(rng.normal(size=s).astype(np.float32) for s in ((4500, 128), (6000, 128)))]
    (got,) = run_compiled(compile_text(case.text, chip=SMALL), inputs, "llvm").outputs
    in_order = inputs[2].copy()
    for place, row in zip(places, inputs[1], strict=True):
        in_order[place] += row
    assert np.allclose(got, in_order, rtol=0, atol=2e-6)
