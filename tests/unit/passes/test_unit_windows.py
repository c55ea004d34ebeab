"""Tables whose slices are single elements in dimensions of one: looked up and added to as vectors."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.run_hlo import check_text

_TEXT = """HloModule m
add {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}}
ENTRY main {{
  t = f32[{dims}] parameter(0)
  i = s32[{count},{parts}] parameter(1)
  u = f32[{slices}] parameter(2)
  g = f32[{slices}] gather(t, i), offset_dims={{{offsets}}}, collapsed_slice_dims={{{gone}}},
    start_index_map={{{gone}}}, index_vector_dim=1, slice_sizes={{{ones}}}
  s = f32[{dims}] scatter(t, i, u), update_window_dims={{{offsets}}}, inserted_window_dims={{{gone}}},
    scatter_dims_to_operand_dims={{{gone}}}, index_vector_dim=1, to_apply=add
  ROOT r = (f32[{slices}], f32[{dims}]) tuple(g, s)
}}
"""


@pytest.mark.parametrize("machine", ["numpy", "llvm"])
@pytest.mark.parametrize(
    ("dims", "indexed"),
    [
        ((300, 1), (0,)),
        ((1, 1000), (1,)),
        ((40, 1, 1), (0,)),
        ((1, 17, 1, 9), (1, 3)),
        ((200_000, 1), (0,)),
    ],
)
@pytest.mark.parametrize("count", [5, 700])
def test_values(dims: tuple[int, ...], indexed: tuple[int, ...], count: int, machine: str) -> None:
    """Some indices are outside: a gather moves them inside, a scatter leaves them out."""
    slices = (count, *(1 for d in range(len(dims)) if d not in indexed))
    text = _TEXT.format(
        dims=",".join(map(str, dims)), count=count, parts=len(indexed),
        slices=",".join(map(str, slices)),
        offsets=",".join(map(str, range(1, len(slices)))),
        gone=",".join(map(str, indexed)), ones=",".join("1" for _ in dims),
    )  # fmt: skip
    rng = np.random.default_rng(4)
    table = rng.integers(-9, 9, dims).astype(np.float32)
    most = max(dims[d] for d in indexed)
    indices = rng.integers(-2, most + 2, (count, len(indexed))).astype(np.int32)
    updates = rng.integers(-9, 9, slices).astype(np.float32)
    check_text(text, [table, indices, updates], machine=machine, tolerance=0)
