"""Rows that an index counts by numbers: every device reads and changes its own, nothing is sent."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from runtime.slice_executable import SliceExecutable

ROWS, PLACES, TAKEN = 12, 9, 3

TEXT = f"""HloModule m, num_partitions=4
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{ROWS},{PLACES}] parameter(0), sharding={{devices=[4,1]<=[4]}}
  i = s32[{ROWS},{TAKEN}] parameter(1), sharding={{devices=[4,1]<=[4]}}
  n = s32[{ROWS}] iota(), iota_dimension=0
  rows = s32[{ROWS},{TAKEN},1] broadcast(n), dimensions={{0}}
  chosen = s32[{ROWS},{TAKEN},1] reshape(i)
  at = s32[{ROWS},{TAKEN},2] concatenate(rows, chosen), dimensions={{2}}
  g = f32[{ROWS},{TAKEN}] gather(x, at), offset_dims={{}},
    collapsed_slice_dims={{0,1}}, start_index_map={{0,1}}, index_vector_dim=2, slice_sizes={{1,1}}
  ROOT r = f32[{ROWS},{PLACES}] scatter(x, at, g), update_window_dims={{}}, inserted_window_dims={{0,1}},
    scatter_dims_to_operand_dims={{0,1}}, index_vector_dim=2, to_apply=add,
    sharding={{devices=[4,1]<=[4]}}
}}
"""


@pytest.mark.parametrize("highest", [PLACES, 3], ids=["apart", "some meet"])
def test_nothing_is_sent(highest: int) -> None:
    exe = tpuc.compile(TEXT, target="v5e:2x2")
    assert isinstance(exe, SliceExecutable)
    rng = np.random.default_rng(5)
    x = rng.integers(0, 50, (ROWS, PLACES)).astype(np.float32)
    i = rng.integers(0, highest, (ROWS, TAKEN)).astype(np.int32)
    wanted = x.copy()
    rows = np.arange(ROWS)[:, None]
    np.add.at(wanted, (rows, i), x[rows, i])
    np.testing.assert_array_equal(np.asarray(exe(x, i)[0]), wanted)
    assert not exe.collectives


def test_indices_that_are_looked_up_in_themselves() -> None:
    text = f"""HloModule m, num_partitions=4
ENTRY e {{
  i = s32[{ROWS},2] parameter(0), sharding={{devices=[4,1]<=[4]}}
  n = s32[{ROWS},2,1] iota(), iota_dimension=0
  d = s32[{ROWS},2,1] reshape(i)
  c = s32[{ROWS},2,2] concatenate(n, d), dimensions={{2}}
  ROOT g = s32[{ROWS},2,2] gather(c, c), offset_dims={{2}}, collapsed_slice_dims={{0,1}},
    start_index_map={{0,1}}, index_vector_dim=2, slice_sizes={{1,1,2}}
}}
"""
    exe = tpuc.compile(text, target="v5e:2x2")
    i = np.random.default_rng(5).integers(0, 2, (ROWS, 2)).astype(np.int32)
    c = np.stack(np.broadcast_arrays(np.arange(ROWS)[:, None], i), -1)
    np.testing.assert_array_equal(np.asarray(exe(i)[0]), c[c[..., 0], c[..., 1]])
