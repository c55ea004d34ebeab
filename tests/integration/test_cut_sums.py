"""Sums over rows of packed types that the grid cuts within a tile: each row counts once."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.hlo.dtypes import BY_NAME
from tests.support.run_hlo import check_text, compile_text, expected, run_compiled
from tpu_sim.isa.chips import load_chip

TEXT = """HloModule m
f {{
  a = {wide}[] parameter(0)
  b = {wide}[] parameter(1)
  ROOT c = {wide}[] {kind}(a, b)
}}
ENTRY e {{
  x = {dtype}[{rows},{columns}] parameter(0)
  w = {wide}[{rows},{columns}] convert(x)
  z = {wide}[] constant({start})
  ROOT y = {wide}[{kept}] reduce(w, z), dimensions={{{dims}}}, to_apply=f
}}
"""
MOVED = """HloModule m
f {{
  a = {wide}[] parameter(0)
  b = {wide}[] parameter(1)
  ROOT c = {wide}[] {kind}(a, b)
}}
ENTRY e {{
  x = {given} parameter(0)
  m = {given} {moved}
  w = {wide}[{dims}] convert(m)
  z = {wide}[] constant({start})
  ROOT y = {wide}[{kept}] reduce(w, z), dimensions={{{reduced}}}, to_apply=f
}}
"""


@pytest.mark.parametrize(("dtype", "wide"), [("s8", "s32"), ("bf16", "f32"), ("u16", "s32")])
@pytest.mark.parametrize(("rows", "columns"), [(1000, 1100), (8008, 130)])
@pytest.mark.parametrize(("kind", "start"), [("add", 0), ("maximum", -1000)])
@pytest.mark.parametrize("dims", ["0", "0,1"])
def test_each_row_counts_once(
    dtype: str, wide: str, rows: int, columns: int, kind: str, start: int, dims: str
) -> None:
    kept = columns if dims == "0" else ""
    text = TEXT.format(
        dtype=dtype, wide=wide, rows=rows, columns=columns, kind=kind, start=start, kept=kept,
        dims=dims,
    )  # fmt: skip
    low, high = (0, 2) if dtype == "u16" or kind == "add" else (-90, -3)
    values = np.random.default_rng(1).integers(low, high, (rows, columns))
    check_text(text, [values.astype(BY_NAME[dtype].numpy)], machine="llvm")


@pytest.mark.parametrize("kind", ["add", "minimum"])
@pytest.mark.parametrize(
    ("given", "dims", "reduced"),
    [
        ("f32[105001]", (105001,), "0"),
        ("bf16[210001]", (210001,), "0"),
        ("f32[12347,3]", (12347, 3), "0"),
        ("f32[1009,137]", (1009, 137), "0"),
        ("s8[11,1009,137]", (11, 1009, 137), "0,1"),
        ("f32[37,11,211]", (37, 11, 211), "0,1,2"),
    ],
)
@pytest.mark.parametrize("moved", ["copy(x)", "reverse(x), dimensions={0}"])
def test_blocks_end_after_what_they_do_not_divide(
    given: str, dims: tuple[int, ...], reduced: str, kind: str, moved: str
) -> None:
    """What lies beyond the end, padding of the last tile and what no tile holds, counts for nothing."""
    dtype = given.split("[")[0]
    wide = "s32" if dtype == "s8" else "f32"
    kept = [n for d, n in enumerate(dims) if str(d) not in reduced]
    text = MOVED.format(
        given=given, wide=wide, dims=",".join(map(str, dims)), reduced=reduced, kind=kind,
        kept=",".join(map(str, kept)), moved=moved, start=0 if kind == "add" else 1000,
    )  # fmt: skip
    values = np.random.default_rng(1).integers(1, 4, dims).astype(BY_NAME[dtype].numpy)
    compiled = compile_text(text, chip=load_chip("v5e{vmem=128KiB}"))
    (found,) = run_compiled(compiled, [values]).outputs
    np.testing.assert_array_equal(found, expected(text, [values])[0])


def test_a_prime_number_of_tiles_is_not_summed_tile_by_tile() -> None:
    text = MOVED.format(
        given="f32[52069125]", wide="f32", dims="52069125", reduced="0", kind="add", kept="",
        moved="negate(x)", start=0,
    )  # fmt: skip
    (note,) = [kernel.note for kernel in compile_text(text).program.kernels.values()]
    steps = int(note.split("grid ")[1].split()[0])
    assert 1 < steps < 200
