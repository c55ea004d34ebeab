"""Regions of device-own shapes whose other axes cut them unevenly."""

from __future__ import annotations

import numpy as np

from benchmarks.fuzz.sharded import on_devices

UNEVEN = """HloModule m, num_partitions=8
ENTRY main {
  x = f32[12] parameter(0), sharding={devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}
  a = f32[12] custom-call(x), custom_call_target="Sharding", backend_config="unspecified_dims=[0]",
    sharding={devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}
  b = f32[6] custom-call(a), custom_call_target="SPMDFullToShardShape",
    backend_config="unspecified_dims=[0]",
    sharding={devices=[4,2]<=[4,2] last_tile_dims={manual}}
  c = f32[6] collective-permute(b), channel_id=1,
    source_target_pairs={{0,1},{1,0},{2,3},{3,2},{4,5},{5,4},{6,7},{7,6}},
    sharding={devices=[4,2]<=[4,2] last_tile_dims={manual}}
  d = f32[12] custom-call(c), custom_call_target="SPMDShardToFullShape",
    backend_config="unspecified_dims=[0]",
    sharding={devices=[2,4]<=[4,2]T(1,0) last_tile_dim_replicate}
  ROOT e = f32[12] custom-call(d), custom_call_target="Sharding", sharding={devices=[8]<=[4,2]T(1,0)}
}
"""


def test_uneven_tiles_inside_are_not_those_outside() -> None:
    x = np.arange(12, dtype=np.float32)
    (got,) = on_devices(UNEVEN, [x])
    np.testing.assert_array_equal(got, np.roll(x, 6))
