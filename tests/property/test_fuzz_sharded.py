"""Random programs under random shardings compute what they do without any."""

from __future__ import annotations

import pytest

from benchmarks.fuzz.annotations import annotated, without_shardings
from benchmarks.fuzz.check import OK
from benchmarks.fuzz.generator import generate
from benchmarks.fuzz.sharded import check_annotated, check_sharded
from compiler.hlo.parser import parse_module
from compiler.hlo.printer import print_module


@pytest.mark.parametrize("seed", [1, 2, 5, 7, 9, 10])
def test_devices_compute_what_one_computes(seed: int) -> None:
    outcome = check_sharded(generate(seed), seed)
    assert outcome.kind == OK, outcome.detail


@pytest.mark.parametrize("dtype", ["f8e8m0fnu", "s32"])
def test_products_are_filled_up_and_summed_as_floats(dtype: str) -> None:
    """A type without zero is filled up with another's, and parts of a sum are no integers."""
    text = f"""HloModule m, num_partitions=4
ENTRY e {{
  a_tame = f8e8m0fnu[1,6,3] parameter(0), sharding={{devices=[1,4,1]<=[4]}}
  b_tame = f8e8m0fnu[2,3,8] parameter(1), sharding={{devices=[1,2,2]<=[4]}}
  c_tame = f8e8m0fnu[5,8] parameter(2), sharding={{devices=[1,4]<=[4]}}
  d_tame = f8e8m0fnu[8,6] parameter(3), sharding={{devices=[4,1]<=[4]}}
  v = {dtype}[1,6,8] convolution(a_tame, b_tame), window={{size=2 pad=1_0}}, dim_labels=b0f_0io->b0f
  w = {dtype}[5,6] dot(c_tame, d_tame), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = ({dtype}[1,6,8], {dtype}[5,6]) tuple(v, w), sharding={{{{devices=[1,4,1]<=[4]}}, {{replicated}}}}
}}
"""
    outcome = check_annotated(text, 0)
    assert outcome.kind == OK, outcome.detail


def test_parts_of_sums_of_narrow_floats_may_be_beyond_their_range() -> None:
    """Some are +inf and some -inf where parts are rounded to the type."""
    text = """HloModule m, num_partitions=8
add { a = f8e3m4[] parameter(0) b = f8e3m4[] parameter(1) ROOT r = f8e3m4[] add(a, b) }
also { a = f8e3m4[] parameter(0) b = f8e3m4[] parameter(1) ROOT r = f8e3m4[] call(a, b), to_apply=add }
ENTRY e {
  x_whole = f8e3m4[16,64] parameter(0), sharding={devices=[1,8]<=[8]}
  y_whole = f8e3m4[64,16] parameter(1), sharding={devices=[8,1]<=[8]}
  z = f8e3m4[] constant(0)
  v = f8e3m4[16,16] dot(x_whole, y_whole), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  w = f8e3m4[16] reduce(x_whole, z), dimensions={1}, to_apply=also
  ROOT r = (f8e3m4[16,16], f8e3m4[16]) tuple(v, w), sharding={{replicated}, {replicated}}
}
"""
    outcome = check_annotated(text, 0)
    assert outcome.kind == OK, outcome.detail


def test_elements_of_a_type_without_zero_are_read_where_they_lie() -> None:
    text = """HloModule m, num_partitions=4
ENTRY e {
  a_tame = f8e8m0fnu[12,6] parameter(0), sharding={devices=[4,1]<=[4]}
  i_index = s32[] parameter(1)
  k_index = s32[5,1] parameter(2), sharding={replicated}
  v = f8e8m0fnu[3,6] dynamic-slice(a_tame, i_index, i_index), dynamic_slice_sizes={3,6}
  w = f8e8m0fnu[5,6] gather(a_tame, k_index), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,6}
  ROOT r = (f8e8m0fnu[3,6], f8e8m0fnu[5,6]) tuple(v, w), sharding={{replicated}, {replicated}}
}
"""
    outcome = check_annotated(text, 0)
    assert outcome.kind == OK, outcome.detail


def test_updates_without_an_index_that_fill_a_part_up_add_nothing() -> None:
    text = """HloModule m, num_partitions=8
add { a = s16[] parameter(0) b = s16[] parameter(1) ROOT r = s16[] add(a, b) }
ENTRY e {
  x_small = s16[9,3] parameter(0), sharding={devices=[1,2,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}
  u_small = s16[3,7,3,4] parameter(1), sharding={devices=[2,1,2,2]<=[2,2,2]T(0,2,1)}
  i_index = s8[3,7,3,0] parameter(2), sharding={devices=[1,2,1,1,4]<=[8] last_tile_dim_replicate}
  v = s16[9,3] scatter(x_small, i_index, u_small), update_window_dims={3}, inserted_window_dims={},
    scatter_dims_to_operand_dims={}, input_batching_dims={1}, scatter_indices_batching_dims={2},
    index_vector_dim=3, to_apply=add, sharding={replicated}
  ROOT r = (s16[9,3]) tuple(v)
}
"""
    outcome = check_annotated(text, 39000791)
    assert outcome.kind == OK, outcome.detail


def test_both_ways_of_annotating_are_made_and_undone() -> None:
    texts = [annotated(generate(seed), seed) for seed in (1, 2, 5, 7, 9, 10)]
    assert any("xla.sdy.meshes" in text for text in texts)
    assert any("sharding={devices=" in text and "xla.sdy" not in text for text in texts)
    for text in texts:
        plain = print_module(parse_module(without_shardings(text)))
        assert "sharding" not in plain.lower()
        assert "num_partitions" not in plain
