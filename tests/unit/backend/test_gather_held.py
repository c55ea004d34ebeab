"""A gather holds its operand in VMEM by what that takes there: eight rows a tile, however few it has."""

from __future__ import annotations

from compiler.analysis.gather_dims import gather_dims, is_large
from compiler.hlo.parser import parse_module
from tests.support.run_hlo import compile_text
from tpu_sim.isa.chips import load_chip

ATTRIBUTES = (
    "offset_dims={0,2,4}, collapsed_slice_dims={3}, start_index_map={3}, operand_batching_dims={1}, "
    "start_indices_batching_dims={0}, index_vector_dim=2, slice_sizes={300,1,1,1,1}"
)
TEXT = f"""HloModule m
ENTRY e {{
  a = f32[300,100,1,3,1] parameter(0)
  i = s32[100,3,1] parameter(1)
  ROOT r = f32[300,100,1,3,1] gather(a, i), {ATTRIBUTES}
}}
"""


def test_tiles_of_few_rows_take_all_of_a_tile_there() -> None:
    gather = parse_module(TEXT).entry.root_instruction
    assert is_large(gather_dims(gather), load_chip("v5e"))
    compile_text(TEXT)
