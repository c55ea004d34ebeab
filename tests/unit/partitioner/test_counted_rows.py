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
