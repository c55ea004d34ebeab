"""What of a fusion is a row chain, and what is not."""

from __future__ import annotations

from compiler.analysis.fusion_body import FusionBody, fusion_body
from compiler.hlo.parser import parse_module

HEAD = """HloModule m
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT total = f32[] add(a, b)
}
fused {
  x = f32[64,256] parameter(0)
  y = f32[256,64] parameter(1)
  zero = f32[] constant(0)
"""
TAIL = """}
ENTRY e {
  p = f32[64,256] parameter(0)
  q = f32[256,64] parameter(1)
  ROOT f = f32[64,256] fusion(p, q), kind=kLoop, calls=fused
}
"""


def _body(text: str) -> FusionBody:
    return fusion_body(parse_module(HEAD + text + TAIL).entry.root_instruction)


def test_reductions_and_results_of_the_same_rows() -> None:
    chain = _body("""  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  sb = f32[64,256] broadcast(s), dimensions={0}
  d = f32[64,256] subtract(x, sb)
  t = f32[64] reduce(d, zero), dimensions={1}, to_apply=add
  tb = f32[64,256] broadcast(t), dimensions={0}
  ROOT r = f32[64,256] multiply(d, tb)
""").chain
    assert chain is not None
    assert [n.name for n in chain.members] == ["s", "t"]
    assert [n.name for n in chain.roots] == ["r"]
    assert not chain.left


def test_sums_of_other_rows_are_none() -> None:
    """The result at a row reads the sums of other rows: they must be there before."""
    assert (
        _body("""  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  v = f32[64] reverse(s), dimensions={0}
  sb = f32[64,256] broadcast(v), dimensions={0}
  ROOT r = f32[64,256] subtract(x, sb)
""").chain
        is None
    )


def test_sums_over_columns_between_two_are_left_for() -> None:
    """A reduction that waits for one over other dimensions is not computed in the same pass."""
    chain = _body("""  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  sb = f32[64,256] broadcast(s), dimensions={0}
  d = f32[64,256] subtract(x, sb)
  c = f32[256] reduce(d, zero), dimensions={0}, to_apply=add
  cb = f32[64,256] broadcast(c), dimensions={1}
  e = f32[64,256] subtract(d, cb)
  t = f32[64] reduce(e, zero), dimensions={1}, to_apply=add
  tb = f32[64,256] broadcast(t), dimensions={0}
  ROOT r = f32[64,256] multiply(d, tb)
""").chain
    assert chain is None or not {"s", "t"} <= {n.name for n in chain.members}


def test_what_lies_turned_is_none() -> None:
    """An array whose rows lie along the lanes goes through the transpose unit, a block at a time."""
    assert (
        _body("""  t = f32[64,256] transpose(y), dimensions={1,0}
  s = f32[64] reduce(t, zero), dimensions={1}, to_apply=add
  sb = f32[64,256] broadcast(s), dimensions={0}
  ROOT r = f32[64,256] subtract(x, sb)
""").chain
        is None
    )


def test_the_only_row_read_as_a_scalar_is_none() -> None:
    """Code has the sum of a row beside the row, not at the place of a scalar."""
    text = (
        HEAD
        + """  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  c = f32[] reshape(s)
  cb = f32[64,256] broadcast(c), dimensions={}
  ROOT r = f32[64,256] multiply(x, cb)
"""
    )
    text = (text + TAIL).replace("64,256", "1,256").replace("256,64", "256,1")
    one_row = text.replace("f32[64]", "f32[1]")
    assert fusion_body(parse_module(one_row).entry.root_instruction).chain is None


def test_rows_that_are_read_from_several_places_are_a_chain() -> None:
    chain = _body("""  top = f32[16,256] slice(x), slice={[48:64], [0:256]}
  rest = f32[48,256] slice(x), slice={[0:48], [0:256]}
  v = f32[64,256] concatenate(top, rest), dimensions={0}
  s = f32[64] reduce(v, zero), dimensions={1}, to_apply=add
  sb = f32[64,256] broadcast(s), dimensions={0}
  ROOT r = f32[64,256] subtract(v, sb)
""").chain
    assert chain is not None
    assert [n.name for n in chain.members] == ["s"]


def test_rows_of_a_member_from_another_place_are_none() -> None:
    assert (
        _body("""  s = f32[64] reduce(x, zero), dimensions={1}, to_apply=add
  top = f32[16] slice(s), slice={[48:64]}
  rest = f32[48] slice(s), slice={[0:48]}
  v = f32[64] concatenate(top, rest), dimensions={0}
  sb = f32[64,256] broadcast(v), dimensions={0}
  ROOT r = f32[64,256] subtract(x, sb)
""").chain
        is None
    )
