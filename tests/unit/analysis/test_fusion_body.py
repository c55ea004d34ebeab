"""What the stages of a kernel leave in VMEM for later ones."""

from __future__ import annotations

import pytest

from compiler.analysis.fusion_body import fusion_body
from compiler.hlo.parser import parse_module
from tests.support.run_hlo import ADD


@pytest.mark.parametrize(("links", "is_stored"), [(60, True), (4, False)])
def test_a_long_chain_that_several_stages_read_is_stored(links: int, is_stored: bool) -> None:
    """A row's sum and what is made of the row both need it."""
    chain = "\n".join(f"  c{n + 1} = f32[64,96] add(c{n}, p)" for n in range(links))
    module = parse_module(f"""HloModule m
{ADD}
body {{
  p = f32[64,96] parameter(0)
  c0 = f32[64,96] multiply(p, p)
{chain}
  zero = f32[] constant(0)
  s = f32[64] reduce(c{links}, zero), dimensions={{1}}, to_apply=add_f32
  b = f32[64,96] broadcast(s), dimensions={{0}}
  ROOT r = f32[64,96] subtract(c{links}, b)
}}
ENTRY main {{
  x = f32[64,96] parameter(0)
  ROOT f = f32[64,96] fusion(x), kind=kLoop, calls=body
}}
""")
    found = [node.name for node in fusion_body(module.entry.root_instruction).materialised]
    assert found == ([f"c{links}", "s"] if is_stored else ["s"])
