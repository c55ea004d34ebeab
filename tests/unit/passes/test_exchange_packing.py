"""Arrays of few lanes are exchanged in full planes."""

from __future__ import annotations

import numpy as np
import pytest

import tpuc
from compiler.hlo.dtypes import F32, S8, S32, DType
from compiler.hlo.shape import ArrayShape
from compiler.passes.collectives.packing import plane_of


@pytest.mark.parametrize(
    ("dtype", "dims", "plane"),
    [
        (F32, (152, 152, 16), (2888, 128)),
        (F32, (150, 150, 16), (150, 2400)),
        (S32, (512, 16, 1), (64, 128)),
        (S8, (1024, 8, 32), (2048, 128)),
        (F32, (4096, 128), (4096, 128)),
        (F32, (16, 4096, 60), (512 * 60, 128)),
        (F32, (16, 4096, 100), (16 * 4096, 100)),
        (F32, (4096, 120), (4096, 120)),
        (F32, (7, 16), (7, 16)),
        (F32, (33331, 3), (33408 * 3 // 128, 128)),
        (F32, (125001, 8), (7813, 128)),
        (F32, (1003, 100), (1003, 100)),
        (F32, (), (1, 1)),
        (F32, (5,), (1, 5)),
    ],
)
def test_the_plane_has_little_padding(
    dtype: DType, dims: tuple[int, ...], plane: tuple[int, int]
) -> None:
    assert plane_of(ArrayShape(dtype, dims), 7) == plane


def test_what_is_sent_once_is_packed_only_where_that_is_much() -> None:
    small = ArrayShape(F32, (2, 304, 64))
    assert plane_of(small, 1) == (608, 64)
    assert plane_of(small, 7) == (304, 128)


HEAD = """HloModule m, num_partitions=4

add {
  a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b)
}

"""
IDS = "channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true"
GATHER = f"""ENTRY main_spmd {{
  x = s32[64,16,1] parameter(0), sharding={{devices=[4,1,1]<=[4]}}
  y = s32[64,16,1] negate(x)
  ROOT g = s32[256,16,1] all-gather(y), {IDS}, dimensions={{0}}, sharding={{replicated}}
}}
"""
SCATTER = f"""ENTRY main_spmd {{
  x = s32[128,16,32] parameter(0), sharding={{replicated}}
  y = s32[128,16,32] negate(x)
  ROOT g = s32[128,16,8] reduce-scatter(y), {IDS}, dimensions={{2}}, to_apply=add,
    sharding={{devices=[1,1,4]<=[4]}}
}}
"""
PERMUTE = """ENTRY main_spmd {
  x = s32[128,16,8] parameter(0), sharding={devices=[4,1,1]<=[4]}
  y = s32[128,16,8] negate(x)
  ROOT g = s32[128,16,8] collective-permute(y), channel_id=1,
    source_target_pairs={{0,1},{1,2},{2,3},{3,0}}, sharding={devices=[4,1,1]<=[4]}
}
"""


ROWS = 4099
ODD_GATHER = f"""ENTRY main_spmd {{
  x = s32[{ROWS},3] parameter(0), sharding={{devices=[4,1]<=[4]}}
  y = s32[{ROWS},3] negate(x)
  ROOT g = s32[{4 * ROWS},3] all-gather(y), {IDS}, dimensions={{0}}, sharding={{replicated}}
}}
"""
ODD_SCATTER = f"""ENTRY main_spmd {{
  x = s32[{ROWS},20] parameter(0), sharding={{replicated}}
  y = s32[{ROWS},20] negate(x)
  ROOT g = s32[{ROWS},5] reduce-scatter(y), {IDS}, dimensions={{1}}, to_apply=add,
    sharding={{devices=[1,4]<=[4]}}
}}
"""
ODD_PERMUTE = PERMUTE.replace("128,16,8", f"{ROWS},8").replace("[4,1,1]", "[4,1]")
ODD_TURN = f"""ENTRY main_spmd {{
  x = s32[{ROWS},20] parameter(0), sharding={{devices=[4,1]<=[4]}}
  y = s32[{ROWS},4,5] reshape(x)
  g = s32[{ROWS},4,5] all-to-all(y), channel_id=1, replica_groups={{{{0,1,2,3}}}}, dimensions={{1}}
  t = s32[4,{ROWS},5] transpose(g), dimensions={{1,0,2}}
  ROOT r = s32[{4 * ROWS},5] reshape(t), sharding={{devices=[1,4]<=[4]}}
}}
"""


@pytest.mark.parametrize(
    ("text", "shape", "columns", "copies", "rows"),
    [
        (ODD_GATHER, (4 * ROWS, 3), 3, 3, 99),
        (ODD_SCATTER, (ROWS, 20), 5, 3, 165),
        (ODD_PERMUTE, (4 * ROWS, 8), 8, 1, 257),
        (ODD_TURN, (4 * ROWS, 20), 5, 3, 165),
    ],
)
def test_rows_are_added_until_they_fill_a_plane(
    text: str, shape: tuple[int, ...], columns: int, copies: int, rows: int
) -> None:
    assert plane_of(ArrayShape(S32, (ROWS, columns)), copies) == (rows, 128)
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    (found,) = tpuc.compile(HEAD + text, target="v5e:2x2")(x)
    want = {
        ODD_GATHER: -x, ODD_SCATTER: -4 * x, ODD_PERMUTE: -np.roll(x, ROWS, axis=0), ODD_TURN: x,
    }[text]  # fmt: skip
    np.testing.assert_array_equal(found, want)


@pytest.mark.parametrize(
    ("text", "shape"),
    [(GATHER, (256, 16, 1)), (SCATTER, (128, 16, 32)), (PERMUTE, (512, 16, 8))],
)
def test_values_are_those_of_the_arrays(text: str, shape: tuple[int, ...]) -> None:
    x = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    (found,) = tpuc.compile(HEAD + text, target="v5e:2x2")(x)
    want = {GATHER: -x, SCATTER: -4 * x, PERMUTE: -np.roll(x, 128, axis=0)}[text]
    np.testing.assert_array_equal(found, want)
