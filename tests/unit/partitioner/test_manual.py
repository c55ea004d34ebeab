"""Regions of device-own shapes: other axes that cut them unevenly, axes of other meshes, other statements."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.fuzz.sharded import on_devices
from compiler.diagnostics import UnsupportedError

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


OTHER_ORDER = """HloModule m, num_partitions=6
ENTRY main {
  x = f32[6,6] parameter(0), sharding={devices=[1,3,2]<=[6] last_tile_dim_replicate}
  a = f32[6,6] negate(x), sharding={devices=[1,3,2]<=[6] last_tile_dim_replicate}
  b = f32[6,6] custom-call(a), custom_call_target="Sharding", sharding={AROUND}
  c = f32[6,3] custom-call(b), custom_call_target="SPMDFullToShardShape", sharding={INSIDE}
  d = f32[6,3] negate(c), sharding={INSIDE}
  e = f32[6,6] custom-call(d), custom_call_target="SPMDShardToFullShape", sharding={AROUND}
  ROOT f = f32[6,6] subtract(e, x), sharding={devices=[1,3,2]<=[6] last_tile_dim_replicate}
}
"""
"""The first sharding cuts 6 devices into 3 times 2; the region does so into 2 times 3."""


@pytest.mark.parametrize(
    ("around", "inside"),
    [
        ("devices=[1,2,3]<=[6] last_tile_dim_replicate", "manual"),
        ("devices=[1,2,3]5,1,3,2,0,4 last_tile_dim_replicate", "manual"),
        ("devices=[3,2]<=[2,3]T(1,0)", "devices=[3,1,2]<=[2,3]T(1,0) last_tile_dims={manual}"),
        ("devices=[3,2]0,3,1,4,2,5", "devices=[1,3,2]0,3,1,4,2,5 last_tile_dims={manual}"),
    ],
)
def test_regions_over_a_mesh_of_their_own(around: str, inside: str) -> None:
    x = np.arange(36, dtype=np.float32).reshape(6, 6)
    (got,) = on_devices(OTHER_ORDER.replace("AROUND", around).replace("INSIDE", inside), [x])
    np.testing.assert_array_equal(got, np.zeros_like(x))


SAID_BY_A_BRANCH = """HloModule m, num_partitions=4
same {
  ROOT p = f32[8] parameter(0), sharding={replicated}
}
turned {
  q = f32[8] parameter(0), sharding={devices=[4]<=[4]}
  ROOT n = f32[8] negate(q)
}
ENTRY main {
  x = f32[8] parameter(0), sharding={replicated}
  which = s32[] parameter(1), sharding={replicated}
  a = f32[8] custom-call(x), custom_call_target="Sharding",
    sharding={devices=[2,2]<=[4] last_tile_dim_replicate}
  b = f32[4] custom-call(a), custom_call_target="SPMDFullToShardShape", sharding={manual}
  c = f32[4] negate(b), sharding={manual}
  d = f32[8] custom-call(c), custom_call_target="SPMDShardToFullShape",
    sharding={devices=[2,2]<=[4] last_tile_dim_replicate}
  ROOT e = f32[8] conditional(which, d, d), branch_computations={same, turned}
}
"""


@pytest.mark.parametrize("which", [0, 1])
def test_shapes_of_a_region_follow_its_boundary_whatever_a_branch_says(which: int) -> None:
    x = np.arange(8, dtype=np.float32)
    (got,) = on_devices(SAID_BY_A_BRANCH, [x, np.int32(which)])
    np.testing.assert_array_equal(got, x if which else -x)


CROSSED = """HloModule m, num_partitions=6
ENTRY main {
  x = f32[6] parameter(0), sharding={devices=[2,3]<=[6] last_tile_dim_replicate}
  y = f32[9] parameter(1), sharding={devices=[3,2]<=[6] last_tile_dim_replicate}
  a = f32[3] custom-call(x), custom_call_target="SPMDFullToShardShape",
    sharding={devices=[1,3,2]<=[2,3]T(1,0) last_tile_dims={replicated, manual}}
  b = f32[3] custom-call(y), custom_call_target="SPMDFullToShardShape",
    sharding={devices=[1,2,3]<=[3,2]T(1,0) last_tile_dims={replicated, manual}}
  c = f32[3] add(a, b)
  ROOT d = f32[9] custom-call(c), custom_call_target="SPMDShardToFullShape",
    sharding={devices=[3,2]<=[6] last_tile_dim_replicate}
}
"""


def test_manual_axes_of_two_meshes_in_one_region_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedError, match="%b: manual axes of two meshes"):
        on_devices(CROSSED, [np.zeros(6, np.float32), np.zeros(9, np.float32)])
