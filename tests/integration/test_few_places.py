"""Elements that are looked up along a short dimension, each at an index of its own, are chosen from all of
it.
"""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from compiler.hlo.parser import parse_module
from compiler.passes.pipeline import run_pipeline
from tests.support.run_hlo import compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

ALONG = """HloModule m
ENTRY e {{
  x = {dtype}[{dims}] parameter(0)
  i = {integer}[{looked}] parameter(1)
  ROOT g = {dtype}[{looked}] gather(x, i), offset_dims={{}}, collapsed_slice_dims={{{axis}}},
    start_index_map={{{axis}}}, operand_batching_dims={{{batch}}}, start_indices_batching_dims={{{batch}}},
    index_vector_dim={rank}, slice_sizes={{{ones}}}
}}
"""
TURNED = """HloModule m
ENTRY e {
  x = f32[5,1001,7,4] parameter(0)
  i = s32[4,1,2,1001] parameter(1)
  ROOT g = f32[4,7,2,1001] gather(x, i), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},
    operand_batching_dims={1,3}, start_indices_batching_dims={3,0}, index_vector_dim=1, slice_sizes={1,1,7,1}
}
"""


COLUMNS = """HloModule m
ENTRY e {
  x = f32[140001,3] parameter(0)
  i = s32[5,1] parameter(1)
  ROOT g = f32[140001,5] gather(x, i), offset_dims={0}, collapsed_slice_dims={1}, start_index_map={1},
    index_vector_dim=1, slice_sizes={140001,1}
}
"""


@pytest.mark.parametrize(
    ("dtype", "integer"), [("f32", "s32"), ("bf16", "u8"), ("s8", "s32"), ("pred", "s32")]
)
@pytest.mark.parametrize(
    ("dims", "axis", "count"), [((9001, 3), 1, 2), ((3, 2003, 2), 0, 3), ((11, 13, 401), 1, 60)]
)
def test_elements_along_a_short_dimension(
    dtype: str, integer: str, dims: tuple[int, ...], axis: int, count: int
) -> None:
    """Indices outside are clamped, as HLO says; those of a number that has no sign are large then."""
    looked = tuple(count if d == axis else n for d, n in enumerate(dims))
    text = ALONG.format(
        dtype=dtype, integer=integer, dims=",".join(map(str, dims)),
        looked=",".join(map(str, looked)), axis=axis, rank=len(dims),
        batch=",".join(str(d) for d in range(len(dims)) if d != axis), ones=",".join("1" * len(dims)),
    )  # fmt: skip
    rng = np.random.default_rng(1)
    values = rng.integers(0, 2 if dtype == "pred" else 90, dims)
    places = rng.integers(-2, dims[axis] + 2, looked)
    check(
        text, [values.astype(BY_NAME[dtype].numpy), places.astype(BY_NAME[integer].numpy)], "256KiB"
    )


def test_slices_in_another_order() -> None:
    values = np.arange(5 * 1001 * 28, dtype=np.float32).reshape(5, 1001, 7, 4)
    places = np.random.default_rng(1).integers(-2, 8, (4, 1, 2, 1001))
    check(TURNED, [values, places.astype(np.int32)], "256KiB")


def test_columns_are_chosen_where_they_lie_along_the_rows() -> None:
    """A parameter of few columns lies with its rows along the lanes, also where columns are looked up."""
    values = np.arange(140001 * 3, dtype=np.float32).reshape(-1, 3)
    check(COLUMNS, [values, np.array([[2], [-1], [0], [7], [1]], np.int32)], "256KiB")
    port = compile_text(COLUMNS).program.buffers[0]
    assert port.size_bytes <= 4 * 4 * (140001 + 127)


def check(text: str, inputs: list[np.ndarray], vmem: str) -> None:
    """Compare with the evaluator on a chip whose VMEM has no room for the operand."""
    chip = load_chip(f"v5e{{vmem={vmem}}}")
    module = parse_module(text)
    run_pipeline(module, chip)
    assert not any(i.opcode == "gather" for c in module.computations.values() for i in c)
    run = run_compiled(compile_text(text, chip=chip), inputs)
    np.testing.assert_array_equal(run.outputs[0], expected(text, inputs)[0])
