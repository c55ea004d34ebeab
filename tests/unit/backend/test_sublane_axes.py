"""Stages of few rows: eight tiles of one row along the sublanes, against the evaluator, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.backend.vector.sublane_axes import sublane_axes
from compiler.backend.vector.tile_loops import TileSpace
from compiler.hlo.dtypes import BY_NAME
from tests.support.vector_runs import Array, Run

SHAPES = [
    (1, 1024),
    (1, 3000),
    (2, 2048),
    (3, 1153),
    (5, 4100),
    (7, 1024),
    (9, 1030),
    (40, 2, 64),
    (19, 3, 200),
    (3, 1, 1100),
    (2, 9, 3, 130),
]


def _values(dtype: str, *dims: int, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    if dtype == "pred":
        return rng.random(dims) < 0.5
    return (8 * rng.standard_normal(dims)).astype(BY_NAME[dtype].numpy)


def _run(text: str, *args: Array) -> Run:
    result = Run(text, args)
    result.check()
    Run(text, args, guard=True).check()
    return result


@pytest.mark.parametrize("dtype", ["f32", "bf16", "s8", "pred"])
@pytest.mark.parametrize("dims", SHAPES)
def test_elementwise(dtype: str, dims: tuple[int, ...]) -> None:
    sizes = f"[{','.join(map(str, dims))}]"
    text = f"""c = pred{sizes} parameter(0)
        p = {dtype}{sizes} parameter(1)
        q = {dtype}{sizes} parameter(2)
        ROOT r = {dtype}{sizes} select(c, p, q)"""
    arrays = _values(dtype, *dims), _values(dtype, *dims, seed=1)
    _run(text, _values("pred", *dims), *arrays)


@pytest.mark.parametrize(
    ("source", "target"),
    [("bf16", "f32"), ("f32", "bf16"), ("s8", "f32"), ("f32", "s8"), ("pred", "bf16")],
)
@pytest.mark.parametrize("dims", SHAPES)
def test_packings_meet(source: str, target: str, dims: tuple[int, ...]) -> None:
    sizes = f"[{','.join(map(str, dims))}]"
    text = f"p = {source}{sizes} parameter(0)\nROOT r = {target}{sizes} convert(p)"
    _run(text, _values(source, *dims))


MOVES = {
    "along_rows": ("b = f32[3,1300] broadcast(p), dimensions={1}", "1300"),
    "along_columns": ("b = f32[3,1300] broadcast(p), dimensions={0}", "3"),
    "joined_rows": ("b = f32[3,1300] concatenate(p, p, p), dimensions={0}", "1,1300"),
    "joined_columns": ("b = f32[2,1800] concatenate(p, p), dimensions={1}", "2,900"),
    "row": ("b = f32[1,1300] slice(p), slice={[1:2],[0:1300]}", "3,1300"),
    "columns": ("b = f32[3,1200] slice(p), slice={[0:3],[7:1207]}", "3,1300"),
    "every_other_column": ("b = f32[3,1100] slice(p), slice={[0:3],[1:2201:2]}", "3,2300"),
    "reverse": ("b = f32[2,1300] reverse(p), dimensions={0,1}", "2,1300"),
    "matrix_rows": ("b = f32[2,20,130] transpose(p), dimensions={1,0,2}", "20,2,130"),
    "apart": ("b = f32[20,1,260] reshape(p)", "20,260"),
    "together": ("b = f32[2,1280] reshape(p)", "2,10,128"),
    "pad": ("z = f32[] constant(2)\nb = f32[3,1400] pad(p,z), padding=1_0x80_20", "2,1300"),
    "shift": ("z = f32[] constant(0)\nb = f32[2,1300] pad(p,z), padding=0_0x-1_1", "2,1300"),
    "iota": ("i = f32[2,1300] iota(), iota_dimension=1\nb = f32[2,1300] add(p,i)", "2,1300"),
    "first": ("i = f32[40,2,64] iota(), iota_dimension=0\nb = f32[40,2,64] add(p,i)", "40,2,64"),
}


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("move", MOVES)
def test_moves(move: str, dtype: str) -> None:
    body, dims = MOVES[move]
    text = f"p = f32[{dims}] parameter(0)\n{body}"
    head, _, last = text.rpartition("\n")
    text = f"{head}\nROOT {last}".replace("f32", dtype)
    _run(text, _values(dtype, *map(int, dims.split(","))))


@pytest.mark.parametrize("dims", [(1, 16384), (2, 16384), (3, 4096), (64, 1, 256), (64, 2, 128)])
def test_every_sublane_computes(dims: tuple[int, ...]) -> None:
    sizes = f"[{','.join(map(str, dims))}]"
    result = _run(
        f"p = f32{sizes} parameter(0)\nROOT r = f32{sizes} multiply(p, p)", _values("f32", *dims)
    )
    assert result.count("vmul.f32") == np.prod(dims) // 1024


def test_eights_and_the_rest() -> None:
    across, rest = sublane_axes(TileSpace((), 3, 128 * 19 + 5, 1))
    assert (across.first, across.count, rest.first, rest.count) == (0, 16, 16, 4)
    assert across.space(TileSpace((), 3, 128 * 19 + 5, 1)).tile_count == 3 * 2
    assert not sublane_axes(TileSpace((), 8, 1024, 1))  # whole tiles
    assert not sublane_axes(TileSpace((7,), 3, 900, 1))  # nothing has eight places
