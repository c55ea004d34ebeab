"""Which of the shardings that a program states spread first, where an estimate decides."""

from __future__ import annotations

import pytest

from compiler.hlo.ir import HloModule
from compiler.hlo.parser import parse_module
from compiler.hlo.sharding import HloSharding
from compiler.partitioner.partitioner import partition_module
from compiler.partitioner.traffic import collectives_of
from compiler.passes.context import PassContext
from compiler.passes.sharding_propagation import propagate_shardings
from tpu_sim.isa import chips

TURNS = """HloModule m, num_partitions=8

condition {{
  s = (s32[], f32[{rows},2048], f32[2048,1024], f32[1024,2048]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(20)
  ROOT more = pred[] compare(i, n), direction=LT
}}

body {{
  s = (s32[], f32[{rows},2048], f32[2048,1024], f32[1024,2048]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{rows},2048] get-tuple-element(s), index=1
  v = f32[2048,1024] get-tuple-element(s), index=2
  w = f32[1024,2048] get-tuple-element(s), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  h = f32[{rows},1024] dot(x, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  a = f32[{rows},1024] tanh(h)
  y = f32[{rows},2048] dot(a, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = (s32[], f32[{rows},2048], f32[2048,1024], f32[1024,2048]) tuple(j, y, v, w)
}}

ENTRY main {{
  x = f32[{rows},2048] parameter(0), sharding={{{sharding}}}
  v = f32[2048,1024] parameter(1), sharding={{devices=[8,1]<=[8]}}
  w = f32[1024,2048] parameter(2), sharding={{devices=[8,1]<=[8]}}
  zero = s32[] constant(0)
  s = (s32[], f32[{rows},2048], f32[2048,1024], f32[1024,2048]) tuple(zero, x, v, w)
  t = (s32[], f32[{rows},2048], f32[2048,1024], f32[1024,2048]) while(s), condition=condition, body=body
  ROOT y = f32[{rows},2048] get-tuple-element(t), index=1
}}
"""

LOOKED_UP = """HloModule m, num_partitions=8

ENTRY main {
  table = f32[4096,2048] parameter(0), sharding={devices=[1,8]<=[8]}
  i = s32[16384,1] parameter(1), sharding={devices=[8,1]<=[8]}
  w = f32[2048,2048] parameter(2), sharding={devices=[8,1]<=[8]}
  x = f32[16384,2048] gather(table, i), offset_dims={1}, collapsed_slice_dims={0},
    start_index_map={0}, index_vector_dim=1, slice_sizes={1,2048}
  y = f32[16384,2048] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[16384,2048] tanh(y)
  ROOT r = f32[16384,2048] dot(z, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def propagated(text: str) -> tuple[HloModule, list[str]]:
    module, context = parse_module(text), PassContext(chips.load_chip("v5e"))
    propagate_shardings(module, context)
    return module, context.remarks


def sent(module: HloModule) -> int:
    """Bytes that all-gathers and reductions make, once each."""
    partition_module(module, PassContext(chips.load_chip("v5e")))
    return sum(traffic.result_bytes for traffic in collectives_of(module))


def test_weights_in_pieces_do_not_cut_what_is_computed_of_whole_arrays() -> None:
    """Two products a turn would send activations 20 times; the weights go once, before the loop."""
    module, remarks = propagated(TURNS.format(rows=4096, sharding="replicated"))
    assert any("stored" in remark for remark in remarks)
    loop = next(i for i in module.entry if i.opcode == "while")
    assert all(str(i.attrs["sharding"]) == "{replicated}" for i in loop.body if i.opcode == "dot")
    assert all(
        isinstance(p.attrs["sharding"], HloSharding) and p.attrs["sharding"].tiles is not None
        for p in module.entry.parameters[1:]
    )
    assert sent(module) == 2 * 2048 * 1024 * 4


def test_an_axis_that_cuts_rows_stays_with_them() -> None:
    module, _ = propagated(TURNS.format(rows=4096, sharding="devices=[8,1]<=[8]"))
    loop = next(i for i in module.entry if i.opcode == "while")
    dots = [str(i.attrs["sharding"]) for i in loop.body if i.opcode == "dot"]
    assert dots == ["{devices=[8,1]<=[8]}"] * 2


def test_rows_that_are_looked_up_are_cut_as_their_numbers_are() -> None:
    """The table's columns are cut along the same axis, and the table is the larger operand."""
    module, remarks = propagated(LOOKED_UP)
    assert any("dimensions of 16384" in remark for remark in remarks)
    dots = [str(i.attrs["sharding"]) for i in module.entry if i.opcode == "dot"]
    assert dots == ["{devices=[8,1]<=[8]}"] * 2


@pytest.mark.parametrize("rows", [8, 64])
def test_what_takes_little_is_left_as_it_is(rows: int) -> None:
    text = LOOKED_UP.replace("16384", str(rows)).replace("2048", "128").replace("4096", "64")
    assert propagated(text)[1] == []


ROLLED = """HloModule m, num_partitions=8

condition {{
  s = (s32[], f32[{n},2048]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(20)
  ROOT more = pred[] compare(i, n), direction=LT
}}

body {{
  s = (s32[], f32[{n},2048]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{n},2048] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  head = f32[1,2048] slice(x), slice={{[0:1], [0:2048]}}
  tail = f32[{rest},2048] slice(x), slice={{[1:{n}], [0:2048]}}
  y = f32[{n},2048] concatenate(tail, head), dimensions={{0}}
  z = f32[{n},2048] add(x, y)
  ROOT r = (s32[], f32[{n},2048]) tuple(j, z)
}}

ENTRY main {{
  x = f32[{n},2048] parameter(0), sharding={{devices=[8,1]<=[8]}}
  zero = s32[] constant(0)
  s = (s32[], f32[{n},2048]) tuple(zero, x)
  t = (s32[], f32[{n},2048]) while(s), condition=condition, body=body
  ROOT y = f32[{n},2048] get-tuple-element(t), index=1
}}
"""


def test_rows_that_neighbours_hold_are_no_reason_to_gather_all() -> None:
    module, remarks = propagated(ROLLED.format(n=1 << 16, rest=(1 << 16) - 1))
    loop = next(i for i in module.entry if i.opcode == "while")
    total = next(i for i in loop.body if i.name.startswith("z"))
    assert remarks == []
    assert str(total.attrs["sharding"]) == "{devices=[8,1]<=[8]}"


TRANSFORMED = """HloModule m, num_partitions=8

condition {{
  s = (s32[], f32[{n},512,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(4)
  ROOT more = pred[] compare(i, n), direction=LT
}}

body {{
  s = (s32[], f32[{n},512,512]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[{n},512,512] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  f = c64[{n},512,257] fft(x), fft_type=RFFT, fft_length={{512,512}}
  g = c64[{n},512,257] multiply(f, f)
  y = f32[{n},512,512] fft(g), fft_type=IRFFT, fft_length={{512,512}}
  z = f32[{n},512,512] tanh(y)
  ROOT r = (s32[], f32[{n},512,512]) tuple(j, z)
}}

ENTRY main {{
  x = f32[{n},512,512] parameter(0), sharding={{devices=[1,8,1]<=[8]}}
  zero = s32[] constant(0)
  s = (s32[], f32[{n},512,512]) tuple(zero, x)
  t = (s32[], f32[{n},512,512]) while(s), condition=condition, body=body
  ROOT y = f32[{n},512,512] get-tuple-element(t), index=1, sharding={{devices=[1,8,1]<=[8]}}
}}
"""


def test_what_must_be_whole_is_cut_along_another_dimension() -> None:
    """The rows of the transforms lie on all devices: their batch is cut instead, once for all turns."""
    module, remarks = propagated(TRANSFORMED.format(n=64))
    assert any("beside what must be whole" in remark for remark in remarks)
    loop = next(i for i in module.entry if i.opcode == "while")
    found = {str(i.attrs["sharding"]) for i in loop.body if i.opcode == "fft"}
    assert found == {"{devices=[8,1,1]<=[8]}"}
    partition_module(module, PassContext(chips.load_chip("v5e")))
    assert [traffic.kind for traffic in collectives_of(module)] == ["all-to-all"] * 2


def test_without_another_dimension_that_divides_it_is_gathered() -> None:
    module, remarks = propagated(TRANSFORMED.format(n=61))
    assert not any("beside" in remark for remark in remarks)
    partition_module(module, PassContext(chips.load_chip("v5e")))
    assert {traffic.kind for traffic in collectives_of(module)} == {"all-gather"}
